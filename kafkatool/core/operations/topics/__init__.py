"""Topics: created, changed, deleted and described through ZooKeeper, by kt and by the bundled broker alike.

Doors: `creation`, `configs`, `brokers_configs` (those that the brokers know), `growth`, `deletion`, `description`,
`permission`, `replica_lists` and `spreading`. A plan is a frozen value with the operations it consists of: ``--dry-run``
shows them, the function beside it carries them out. Nothing is overwritten unseen: each write is a create or bound to the
version read. Kafka's texts are those of 0.10.2.1 (AdminUtils.scala), for added replica lists those of 1.1
(AdminZkClient.scala).
"""

__all__ = [
    "brokers_configs",
    "configs",
    "creation",
    "deletion",
    "description",
    "growth",
    "permission",
    "replica_lists",
    "spreading",
]
