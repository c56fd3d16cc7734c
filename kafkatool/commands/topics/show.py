"""``kt topics list`` and ``kt topics describe`` (TOP-8 to TOP-13, TOP-25X, TOP-26X)."""

from typing import Final

import click

from kafkatool.commands.shared.bootstrap import Bootstrap
from kafkatool.commands.shared.options import (
    KtCommand,
    all_of,
    cluster_options,
    connect,
    no_topic_text,
    output_option,
    read_cluster_id,
)
from kafkatool.commands.shared.output import Answer, Output
from kafkatool.commands.topics.flags import failed, internal_option, pattern_option
from kafkatool.commands.topics.rendering import (
    DESCRIBE_KEYS,
    HEADER_KEYS,
    REQUEST_KEYS,
    description_lines,
    header,
    header_item,
    partition_item,
)
from kafkatool.core.errors import RefusedError, UsageError


@click.command(
    "list",
    cls=KtCommand,
    examples=("kt topics list --zookeeper zk1:2181/kafka", "kt topics list --zookeeper zk1:2181 --topic 'logs-.*'"),
    columns=("topic", "marked_for_deletion", "internal"),
)
@cluster_options
@pattern_option(required=False)
@internal_option
@output_option
def list_(out: Output, zookeeper: str, bootstrap: Bootstrap | None, topic: str | None, exclude_internal: bool) -> int:
    """Names of topics, one per line; exit code 0 even if there are none."""
    if bootstrap is not None:
        from kafkatool.commands.topics import by_request

        return by_request.list_topics(out, bootstrap, topic, exclude_internal=exclude_internal)
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


PAGE_PARTITIONS: Final = 2000
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
    notes=(
        f"With --topics-with-overrides keys and columns are {', '.join(HEADER_KEYS)}.",
        f"With --bootstrap-server there are {', '.join(REQUEST_KEYS[len(DESCRIBE_KEYS) :])} as well.",
    ),
)
@cluster_options
@pattern_option(required=False)
@all_of(*(click.option(f"--{name}", is_flag=True, help=text) for name, text in _FILTERS.items()))
@internal_option
@click.option("--if-exists", is_flag=True, help="No error if no topic matches.")
@click.option("--topic-id", metavar="ID", help="With --bootstrap-server: the topic of that id.")
@click.option(
    "--partition-size-limit-per-response",
    type=click.IntRange(1, PAGE_PARTITIONS),
    metavar="N",
    help=f"With --bootstrap-server: partitions of one answer of a broker. [default: {PAGE_PARTITIONS}]",
)
@output_option
def describe(
    out: Output,
    zookeeper: str,
    bootstrap: Bootstrap | None,
    topic: str | None,
    exclude_internal: bool,
    topic_id: str | None,
    if_exists: bool,
    partition_size_limit_per_response: int | None,
    **filters: bool,
) -> int:
    """Leader, replicas and ISR of each partition, and the topics' overrides."""
    chosen = [name.replace("_", "-") for name, on in filters.items() if on]
    if bootstrap is not None:
        from kafkatool.commands.topics import by_request

        return by_request.describe(
            out,
            bootstrap,
            topic,
            topic_id,
            chosen,
            exclude_internal=exclude_internal,
            if_exists=if_exists,
            page_partitions=partition_size_limit_per_response or PAGE_PARTITIONS,
        )
    if topic_id is not None or partition_size_limit_per_response is not None:
        raise UsageError("--topic-id and --partition-size-limit-per-response need --bootstrap-server")
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
                if if_exists:
                    return 0
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
        out.show(Answer(map(header, found), [header_item(t) for t in found], HEADER_KEYS, view.cluster_id))
        return 0
    selects = descriptions.FILTERS[chosen[0]] if chosen else None
    rows = [(t, [p for p in t.partitions if selects is None or selects(p)]) for t in found]
    items = [] if out.is_text else [partition_item(p) for _, partitions in rows for p in partitions]
    out.show(Answer(description_lines(rows, headers=selects is None), items, cluster_id=view.cluster_id))
    return 0
