"""What operations ask of brokers by the admin protocol, where others go through ZooKeeper.

Doors: `topics`, `elections`, `acls`, `users`, `transactions`, `reassignments` with `moving`, `log_dirs` and `throttles`;
`cluster_view`, the snapshot that plans are made on; `planned`, a request that is shown instead of sent. Who is asked, and
when again, is `core/client`'s.
"""

__all__ = [
    "acls",
    "cluster_view",
    "elections",
    "log_dirs",
    "moving",
    "planned",
    "reassignments",
    "throttles",
    "topics",
    "transactions",
    "users",
]
