"""The values that all of kafkatool shares, and pure rules about them: partitions, brokers, assignments, configs, ACLs.

Doors: `values`, `acls`, `assignment`, `topic_names`, `topic_configs`, `java_hash`; `plan_form`, the JSON of plans. Nothing
here opens a socket or a file, reads ZooKeeper, a clock or random numbers, or knows a wire format.
"""

__all__ = [
    "acls",
    "assignment",
    "java_hash",
    "moves",
    "plan_form",
    "replication_factor",
    "security_protocols",
    "topic_configs",
    "topic_names",
    "uuids",
    "values",
]
