"""One partition with a replica here: role, in-sync replicas, high watermark, reads; and all of them by name.

The doors are ``partition``, ``partition_reads`` and ``local_partitions``. Nothing here starts a thread, waits for a
request's condition or knows a request that waits; ZooKeeper is written by ``isr_writer`` alone.
"""

__all__ = [
    "isr_writer",
    "local_partitions",
    "partition",
    "partition_reads",
    "replica",
    "replica_copy",
    "replication_quota",
    "session_epochs",
]
