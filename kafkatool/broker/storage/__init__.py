"""Partition logs on disk, in Kafka's formats (BRK-129 to BRK-154, BRK-167).

Doors: ``directories.log_manager`` finds and makes logs, ``log.log`` is one of them, ``log_config`` its settings. Rooms,
the upper use the lower: directories, compaction, log, producers, segment, batches.
Never here: who leads, who follows, what is replicated; ZooKeeper (a topic's settings come by a function).
"""

__all__ = ["batches", "directories", "log", "log_config", "producers", "segment"]
