"""``kt topics list`` and ``kt topics describe`` (TOP-8 to TOP-13, TOP-25X, TOP-26X)."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from kafkatool.commands.shared.options import (
    KtCommand,
    all_of,
    connect,
    no_topic_text,
    output_option,
    read_cluster_id,
    zookeeper_option,
)
from kafkatool.commands.shared.output import Answer, Output, paint
from kafkatool.commands.topics.flags import failed, internal_option, pattern_option
from kafkatool.core.errors import RefusedError, UsageError
from kafkatool.core.model.values import join_ids

if TYPE_CHECKING:
    from kafkatool.core.operations.topics.description import PartitionDescription, TopicDescription

    Row = tuple[TopicDescription, Sequence[PartitionDescription]]

DESCRIBE_KEYS: Final = (
    *("topic", "partition", "leader", "preferred", "replicas", "isr"),
    *("leader_epoch", "controller_epoch", "under_replicated", "available"),
)
HEADER_KEYS: Final = ("topic", "partition_count", "replication_factor", "configs", "marked_for_deletion")


@click.command(
    "list",
    cls=KtCommand,
    examples=("kt topics list --zookeeper zk1:2181/kafka", "kt topics list --zookeeper zk1:2181 --topic 'logs-.*'"),
    columns=("topic", "marked_for_deletion", "internal"),
)
@zookeeper_option
@pattern_option(required=False)
@internal_option
@output_option
def list_(out: Output, zookeeper: str, topic: str | None, exclude_internal: bool) -> int:
    """Names of topics, one per line; exit code 0 even if there are none."""
    from kafkatool.core.model.topic_names import INTERNAL_TOPICS, select
    from kafkatool.core.zookeeper.znodes import DeleteTopicsZnode, TopicsZnode

    with connect(zookeeper) as zk:
        existing, marked = (names or [] for names in zk.children_many([TopicsZnode.PATH, DeleteTopicsZnode.PATH]))
        id_of_cluster = None if out.is_text else read_cluster_id(zk)
    try:
        found = select(existing, topic)
    except RefusedError as e:
        return failed(out, e)
    gone = set(marked)
    found = [t for t in found if not (exclude_internal and t in INTERNAL_TOPICS)]
    lines = (f"{t} - marked for deletion" if t in gone else t for t in found)
    items = [{"topic": t, "marked_for_deletion": t in gone, "internal": t in INTERNAL_TOPICS} for t in found]
    out.show(Answer(lines, items, cluster_id=id_of_cluster))
    return 0


_FILTERS: Final = {
    "under-replicated-partitions": "Only partitions whose ISR is smaller than their replicas.",
    "unavailable-partitions": "Only partitions whose leader is absent or not registered.",
    "leader-not-preferred": "Only partitions not led by their first replica.",
    "under-min-isr-partitions": "Only partitions whose ISR is below the topic's min.insync.replicas (else 1).",
    "at-min-isr-partitions": "Only partitions whose ISR is exactly that.",
    "topics-with-overrides": "Only headers, of topics with overrides.",
}


@click.command(
    cls=KtCommand,
    examples=(
        "kt topics describe --zookeeper zk1:2181/kafka --topic orders",
        "kt topics describe --zookeeper zk1:2181/kafka --under-replicated-partitions --output json",
    ),
    columns=DESCRIBE_KEYS,
    notes=(f"With --topics-with-overrides keys and columns are {', '.join(HEADER_KEYS)}.",),
)
@zookeeper_option
@pattern_option(required=False)
@all_of(*(click.option(f"--{name}", is_flag=True, help=text) for name, text in _FILTERS.items()))
@internal_option
@output_option
def describe(out: Output, zookeeper: str, topic: str | None, exclude_internal: bool, **filters: bool) -> int:
    """Leader, replicas and ISR of each partition, and the topics' overrides."""
    chosen = [name.replace("_", "-") for name, on in filters.items() if on]
    if len(chosen) > 1:
        raise UsageError(f"--{chosen[0]} can't be used with --{chosen[1]}")
    from kafkatool.core.model.topic_names import INTERNAL_TOPICS, select
    from kafkatool.core.operations.topics import description as descriptions
    from kafkatool.core.zookeeper.cluster_view import read_cluster
    from kafkatool.core.zookeeper.znodes import TopicsZnode

    with connect(zookeeper) as zk:
        wanted = None
        if topic is not None or exclude_internal:
            existing = zk.children(TopicsZnode.PATH) or []
            try:
                wanted = select(existing, topic)
            except RefusedError as e:
                return failed(out, e)
            if not wanted and topic is not None:
                missing = RefusedError(
                    f"Topic '{topic}' does not exist as expected", now=no_topic_text(topic, existing)
                )
                return failed(out, missing, topic=topic)
            wanted = [t for t in wanted if not (exclude_internal and t in INTERNAL_TOPICS)]
        headers_only = "topics-with-overrides" in chosen
        view = read_cluster(zk, wanted, states=not headers_only, configs=True)
    found = descriptions.describe(view)
    if headers_only:
        found = [t for t in found if t.configs]
        out.show(Answer(map(_header, found), [_header_item(t) for t in found], HEADER_KEYS, view.cluster_id))
        return 0
    selects = descriptions.FILTERS[chosen[0]] if chosen else None
    rows = [(t, [p for p in t.partitions if selects is None or selects(p)]) for t in found]
    items = [_partition_item(p) for _, partitions in rows for p in partitions]
    out.show(Answer(_description_lines(rows, headers=selects is None), items, cluster_id=view.cluster_id))
    return 0


def _header(topic: "TopicDescription") -> str:
    configs = ",".join(f"{k}={v}" for k, v in topic.configs.items())
    return (
        f"Topic:{topic.topic}\tPartitionCount:{len(topic.partitions)}\tReplicationFactor:{topic.replication_factor}"
        f"\tConfigs:{configs}" + ("\tMarkedForDeletion:true" if topic.marked_for_deletion else "")
    )


def _description_lines(rows: Sequence["Row"], *, headers: bool) -> Iterator[str]:
    for topic, partitions in rows:
        if headers:
            yield _header(topic)
        for p in partitions:
            leader = "none" if p.leader is None else p.leader
            replicas, isr = map(join_ids, (p.replicas, p.isr))
            marked = "\tMarkedForDeletion: true" if topic.marked_for_deletion and not headers else ""
            row = (
                f"\tTopic: {topic.topic}\tPartition: {p.partition.partition}\tLeader: {leader}"
                f"\tReplicas: {replicas}\tIsr: {isr}{marked}"
            )
            yield paint(row, "red" if not p.available else "yellow" if p.under_replicated else None)


def _header_item(topic: "TopicDescription") -> dict[str, Any]:
    return {
        "topic": topic.topic,
        "partition_count": len(topic.partitions),
        "replication_factor": topic.replication_factor,
        "configs": dict(topic.configs),
        "marked_for_deletion": topic.marked_for_deletion,
    }


def _partition_item(p: "PartitionDescription") -> dict[str, Any]:
    return {**p.partition._asdict(), **{key: getattr(p, key) for key in DESCRIBE_KEYS[2:]}}
