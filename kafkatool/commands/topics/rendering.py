"""Texts, rows and columns of ``kt topics describe``: descriptions in, lines and items out, whichever way they came.

With ZooKeeper the words are those of Kafka's tool of 1.1, with ``--bootstrap-server`` those of 3.9 (ADM-22, ADM-24).
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkatool.commands.shared.output import paint
from kafkatool.core.model.values import join_ids

if TYPE_CHECKING:
    from kafkatool.core.operations.topics.description import PartitionDescription, TopicDescription

    Row = tuple[TopicDescription, Sequence[PartitionDescription]]

DESCRIBE_KEYS: Final = (
    *("topic", "partition", "leader", "preferred", "replicas", "isr"),
    *("leader_epoch", "controller_epoch", "under_replicated", "available"),
)
REQUEST_KEYS: Final = (*DESCRIBE_KEYS, "topic_id", "adding_replicas", "removing_replicas", "elr", "last_known_elr")
HEADER_KEYS: Final = ("topic", "partition_count", "replication_factor", "configs", "marked_for_deletion")


def header(topic: "TopicDescription", *, by_request: bool = False) -> str:
    """Write a topic's header."""
    configs = ",".join(f"{k}={v}" for k, v in (topic.configs or {}).items())
    count, factor = len(topic.partitions), topic.replication_factor
    if by_request:
        topic_id = f"\tTopicId: {topic.topic_id}" if topic.topic_id else ""
        return (
            f"Topic: {topic.topic}{topic_id}\tPartitionCount: {count}\tReplicationFactor: {factor}\tConfigs: {configs}"
        )
    return f"Topic:{topic.topic}\tPartitionCount:{count}\tReplicationFactor:{factor}\tConfigs:{configs}" + (
        "\tMarkedForDeletion:true" if topic.marked_for_deletion else ""
    )


def description_lines(rows: Sequence["Row"], *, headers: bool, by_request: bool = False) -> Iterator[str]:
    """Yield headers, if wanted, and a line for each partition."""
    for topic, partitions in rows:
        if headers:
            yield header(topic, by_request=by_request)
        for p in partitions:
            leader = "none" if p.leader is None else p.leader
            replicas, isr = map(join_ids, (p.replicas, p.isr))
            more = _moving_and_eligible(p) if by_request else ""
            marked = "\tMarkedForDeletion: true" if topic.marked_for_deletion and not headers else ""
            row = (
                f"\tTopic: {topic.topic}\tPartition: {p.partition.partition}\tLeader: {leader}"
                f"\tReplicas: {replicas}\tIsr: {isr}{more}{marked}"
            )
            yield paint(row, "red" if not p.available else "yellow" if p.under_replicated else None)


def _moving_and_eligible(p: "PartitionDescription") -> str:
    moving = ""
    if p.adding is not None and p.removing is not None:
        moving = f"\tAdding Replicas: {join_ids(p.adding)}\tRemoving Replicas: {join_ids(p.removing)}"
    eligible, last_known = ("N/A" if ids is None else join_ids(ids) for ids in (p.eligible, p.last_known_eligible))
    return f"{moving}\tElr: {eligible}\tLastKnownElr: {last_known}"


def header_item(topic: "TopicDescription") -> dict[str, Any]:
    """Return a topic's item."""
    return {
        "topic": topic.topic,
        "partition_count": len(topic.partitions),
        "replication_factor": topic.replication_factor,
        "configs": None if topic.configs is None else dict(topic.configs),
        "marked_for_deletion": topic.marked_for_deletion,
    }


def partition_item(p: "PartitionDescription", of: "TopicDescription | None" = None) -> dict[str, Any]:
    """Return a partition's item; with what brokers alone tell if the topic that it is ``of`` is given."""
    item = {**p.partition._asdict(), **{key: getattr(p, key) for key in DESCRIBE_KEYS[2:]}}
    if of is not None:
        item |= {
            "topic_id": of.topic_id,
            "adding_replicas": p.adding,
            "removing_replicas": p.removing,
            "elr": p.eligible,
            "last_known_elr": p.last_known_eligible,
        }
    return item
