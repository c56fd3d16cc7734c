"""What operations ask of brokers by the admin protocol, where others go through ZooKeeper.

Doors: `topic_reading`, `topics`, `elections`, `acls`, `users`, `transactions`, `reassignments` with `moving`, `log_dirs` and
`throttles`, which come off by `throttles_by_controller` where no broker is asked; `cluster_view`, the snapshot that plans
are made on; `quorum`, who leads the controllers; `planned`, a request that is shown instead of sent. Who is asked, and when
again, is `core/client`'s.
"""

__all__ = [
    "acls",
    "cluster_view",
    "comparing",
    "elections",
    "log_dirs",
    "moving",
    "planned",
    "quorum",
    "reassignments",
    "throttles",
    "throttles_by_controller",
    "topic_reading",
    "topics",
    "transactions",
    "users",
]
