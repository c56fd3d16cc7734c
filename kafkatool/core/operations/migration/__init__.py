"""Whether a cluster with ZooKeeper is ready for KRaft, and how far a migration is: for ``kt migrate check``. Only reads.

Doors: `reading` gathers the evidence, `controllers` what the KRaft controllers say; `phases` tells the phase, `conditions`
what stands in the way. The last two are pure.
"""

__all__ = ["conditions", "controllers", "phases", "reading"]
