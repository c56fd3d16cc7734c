"""``kt transactions find-hanging`` and ``abort``, in the words of kafka-transactions of 3.9."""

import time
from typing import TYPE_CHECKING, Final

import click

from kafkatool.commands.shared.bootstrap import Bootstrap, connect_brokers
from kafkatool.commands.shared.options import KtCommand, brokers_only_options, cluster_id_option, output_option
from kafkatool.commands.shared.output import Answer, Output, error_item
from kafkatool.commands.transactions.rendering import partition_option, table, topic_option
from kafkatool.core.errors import KafkatoolError, RefusedError, UsageError
from kafkatool.core.model.values import TopicPartition, join_ids

if TYPE_CHECKING:
    from kafkatool.core.client.cluster import ClusterClient
    from kafkatool.core.operations.requests.transactions import Abort, Producer

HANGING: Final = (
    *("topic", "partition", "producer_id", "producer_epoch", "coordinator_epoch", "start_offset"),
    *("last_timestamp_ms", "duration_min"),
)
ABORTED: Final = ("topic", "partition", "producer_id", "producer_epoch", "coordinator_epoch")
MINUTE_MS: Final = 60_000


@click.command(
    "find-hanging",
    cls=KtCommand,
    examples=(
        "kt transactions find-hanging --bootstrap-server b1:9092 --topic orders",
        "kt transactions find-hanging --bootstrap-server b1:9092 --broker-id 3 --max-transaction-timeout 5",
    ),
    columns=HANGING,
    notes=(
        "A transaction hangs if it is open in a partition, and its coordinator does not know of it: nobody will end it, "
        "and readers with read_committed stand still before it. One that is younger than the longest that producers "
        "may ask for is left out, as its coordinator may be about to know.",
        "kt transactions abort ends one, by its START_OFFSET.",
    ),
)
@brokers_only_options
@topic_option(required=False)
@partition_option(required=False)
@click.option("--broker-id", "broker", type=int, metavar="ID", help="Look at the replicas of this broker.")
@click.option(
    "--max-transaction-timeout",
    "minutes",
    type=click.IntRange(min=0),
    default=15,
    show_default=True,
    metavar="MINUTES",
    help="Leave out what was written to more recently: transaction.max.timeout.ms of the brokers.",
)
@output_option
def find_hanging(
    out: Output, bootstrap: Bootstrap, topic: str | None, partition: int | None, broker: int | None, minutes: int
) -> int:
    """Find open transactions that nobody will end."""
    from kafkatool.core.operations.requests import transactions as operations

    if topic is None and broker is None:
        raise UsageError("find-hanging requires either --topic or --broker-id to limit the scope of the search")
    if partition is not None and topic is None:
        raise UsageError("The --partition argument requires --topic to be provided")
    now_ms = int(time.time() * 1000)
    try:
        with connect_brokers(bootstrap) as client:
            places = _places(client, topic, partition, broker)
            found, failed = operations.find_hanging(
                client, places, idle_ms=minutes * MINUTE_MS, now_ms=now_ms, broker=broker
            )
    except KafkatoolError as e:
        return out.failed(e)
    headers = (
        *("Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset", "LastTimestamp"),
        "Duration(min)",
    )
    items = [_item(p, now_ms) for p in found]
    rows = [[str(-1 if value is None else value) for value in item.values()] for item in items]
    errors = [error_item(e, **place._asdict()) for place, e in failed.items()]
    out.show(Answer(table(headers, rows), items, HANGING, client.cluster_id, errors))
    for place, error in failed.items():
        out.note(f"{place}: {error}")
    return 1 if failed else 0


def _places(
    client: "ClusterClient", topic: str | None, partition: int | None, broker: int | None
) -> list[TopicPartition]:
    """Return the partitions to look at. Raises RefusedError: there is no such topic or broker, or it holds none of it."""
    from kafkatool.core.operations.requests.topic_reading import missing, read_topics

    if topic is not None and partition is not None:
        return [TopicPartition(topic, partition)]
    topics = read_topics(client, None if topic is None else [topic])
    if topic is not None and topic not in topics:
        raise missing(client, topic, RefusedError(f"there is no topic {topic}"))
    places = [
        TopicPartition(name, p.partition)
        for name, found in topics.items()
        for p in found.partitions
        if broker is None or broker in p.replica_nodes
    ]
    if broker is not None and not places and (topic is not None or broker not in client.brokers):
        up = f"; brokers that are up: {join_ids(client.brokers)}"
        raise RefusedError(f"broker {broker} holds no partition" + (f" of {topic}" if topic is not None else "") + up)
    return places


def _item(one: "Producer", now_ms: int) -> dict[str, object]:
    return {
        **one.partition._asdict(),
        **{key: getattr(one, key) for key in HANGING[2:-1]},
        "duration_min": (now_ms - one.last_timestamp_ms) // MINUTE_MS,
    }


@click.command(
    cls=KtCommand,
    examples=(
        "kt transactions abort --bootstrap-server b1:9092 --topic orders --partition 0 --start-offset 4711",
        "kt transactions abort --bootstrap-server b1:9092 --topic orders --partition 0 --producer-id 1001 \\",
        "    --producer-epoch 3 --coordinator-epoch 7",
    ),
    columns=ABORTED,
    notes=(
        "Only what find-hanging shows should be aborted: a transaction that its coordinator knows is torn by this. "
        "Brokers before 2.8 cannot tell their producers: there --producer-id, --producer-epoch and --coordinator-epoch "
        "have to say which, from the log.",
        "--dry-run: items are the request, its broker, api, version and fields.",
    ),
)
@brokers_only_options
@topic_option(required=True)
@partition_option(required=True)
@click.option("--start-offset", type=click.IntRange(min=0), metavar="OFFSET", help="Where the transaction begins.")
@click.option("--producer-id", type=click.IntRange(min=0), metavar="ID", help="Its producer.")
@click.option("--producer-epoch", type=click.IntRange(0, 32767), metavar="EPOCH", help="The producer's epoch.")
@click.option("--coordinator-epoch", type=int, metavar="EPOCH", help="The coordinator's epoch; -1: none is known.")
@click.option("--dry-run", is_flag=True, help="Print the request; send nothing.")
@cluster_id_option
@output_option
def abort(
    out: Output,
    bootstrap: Bootstrap,
    topic: str,
    partition: int,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
    dry_run: bool,
    cluster_id: str | None,
) -> int:
    """End a hanging transaction in one partition; its records are aborted."""
    from kafkatool.core.operations.requests import planned
    from kafkatool.core.operations.requests import transactions as operations
    from kafkatool.core.protocol.messages import write_txn_markers

    place = TopicPartition(topic, partition)
    by_producer = _by_producer(place, start_offset, producer_id, producer_epoch, coordinator_epoch)
    try:
        with connect_brokers(bootstrap, cluster_id=cluster_id) as client:
            what = by_producer
            if what is None:
                assert start_offset is not None  # else it is a usage error
                what = _by_offset(client, place, start_offset)
            if dry_run:
                leader = operations.leader_of(client, place)
                out.planned_requests([planned.plan(client, write_txn_markers.API, what.request(), broker=leader)])
                return 0
            operations.abort(client, what)
    except UsageError:
        raise
    except KafkatoolError as e:
        return out.failed(e, text=f"Failed to abort transaction: {e}", topic=topic, partition=partition)
    item = {**place._asdict(), **{key: getattr(what, key) for key in ABORTED[2:]}}
    out.note(f"aborted the transaction of producer {what.producer_id} in {place}")
    out.show(Answer((), [item], ABORTED, client.cluster_id))
    return 0


def _by_producer(
    place: TopicPartition,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
) -> "Abort | None":
    """Return what the flags say of the producer; None: it is to be found by its offset. Raises UsageError."""
    from kafkatool.core.operations.requests.transactions import Abort

    if start_offset is None and producer_id is None:
        raise UsageError(
            "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or above) or "
            "with --producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)"
        )
    if start_offset is not None:
        if given := [v for v in (producer_id, producer_epoch, coordinator_epoch) if v is not None]:
            raise UsageError(f"--start-offset finds the producer by itself: {given[0]} can't be given beside it")
        return None
    assert producer_id is not None
    if producer_epoch is None:
        raise UsageError("Missing required argument --producer-epoch")
    if coordinator_epoch is None:
        raise UsageError("Missing required argument --coordinator-epoch")
    return Abort(place, producer_id, producer_epoch, max(coordinator_epoch, 0))


def _by_offset(client: "ClusterClient", place: TopicPartition, start_offset: int) -> "Abort":
    from kafkatool.core.operations.requests import transactions as operations

    producers, failed = operations.producers_of(client, [place])
    if failed:
        raise RefusedError(f"Failed to validate producer state for partition {place}: {failed[place]}")
    return operations.abort_of(producers, place, start_offset)
