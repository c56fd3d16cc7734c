"""``kt transactions list``, ``describe`` and ``describe-producers``, in the words of kafka-transactions of 3.9."""

import time
from typing import TYPE_CHECKING, Final

import click

from kafkatool.commands.shared.bootstrap import Bootstrap, connect_brokers
from kafkatool.commands.shared.options import KtCommand, brokers_only_options, output_option
from kafkatool.commands.shared.output import Answer, Output, error_item
from kafkatool.commands.transactions.rendering import or_none, partition_option, table, topic_option
from kafkatool.core.errors import KafkatoolError
from kafkatool.core.model.values import TopicPartition

if TYPE_CHECKING:
    from kafkatool.core.operations.requests.transactions import Description, Listing, Producer

LISTED: Final = ("transactional_id", "coordinator", "producer_id", "state")
DESCRIBED: Final = (
    *("coordinator", "transactional_id", "producer_id", "producer_epoch", "state", "timeout_ms", "start_time_ms"),
    *("duration_ms", "partitions"),
)
PRODUCERS: Final = (
    *("topic", "partition", "producer_id", "producer_epoch", "coordinator_epoch", "last_sequence"),
    *("last_timestamp_ms", "start_offset"),
)


@click.command(
    "list",
    cls=KtCommand,
    examples=(
        "kt transactions list --bootstrap-server b1:9092",
        "kt transactions list --bootstrap-server b1:9092 --duration-filter 60000",
    ),
    columns=LISTED,
    notes=(
        "Every broker is asked. Exit code 1: a broker did not tell what it coordinates; the others' are shown. "
        "--duration-filter lists what began longer ago than that, whatever its state: brokers from 3.8 on know it.",
    ),
)
@brokers_only_options
@click.option("--duration-filter", type=int, default=-1, metavar="MS", help="Those alone that began longer ago.")
@output_option
def list_(out: Output, bootstrap: Bootstrap, duration_filter: int) -> int:
    """Show all transactional ids."""
    from kafkatool.core.operations.requests import transactions as operations

    out.is_listing = True
    with connect_brokers(bootstrap) as client:
        found, silent = operations.list_all(client, longer_than_ms=max(duration_filter, -1))
    lines = table(("TransactionalId", "Coordinator", "ProducerId", "TransactionState"), map(_listed, found))
    items = [{key: getattr(listing, key) for key in LISTED} for listing in found]
    out.show(Answer(lines, items, LISTED, client.cluster_id, [error_item(e, broker=b) for b, e in silent.items()]))
    for broker, error in silent.items():
        out.note(f"broker {broker}: {error}")
    return 1 if silent else 0


def _listed(one: "Listing") -> tuple[str, ...]:
    return one.transactional_id, str(one.coordinator), str(one.producer_id), one.state


@click.command(
    cls=KtCommand,
    examples=("kt transactions describe --bootstrap-server b1:9092 --transactional-id orders-1",),
    columns=DESCRIBED,
    notes=("partitions: those of the transaction under way; while it is ended, those without a marker yet.",),
)
@brokers_only_options
@click.option("--transactional-id", "id_", required=True, metavar="ID", help="The transactional id.")
@output_option
def describe(out: Output, bootstrap: Bootstrap, id_: str) -> int:
    """Show the state of one transactional id."""
    from kafkatool.core.operations.requests import transactions as operations

    try:
        with connect_brokers(bootstrap) as client:
            found = operations.describe(client, id_)
    except KafkatoolError as e:
        text = f"Failed to describe transaction state of transactional-id `{id_}`: {e}."
        return out.failed(e, text=text, transactional_id=id_)
    duration_ms = None if found.start_ms is None else int(time.time() * 1000) - found.start_ms
    headers = (
        *("CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState"),
        *("TransactionTimeoutMs", "CurrentTransactionStartTimeMs", "TransactionDurationMs", "TopicPartitions"),
    )
    lines = table(headers, [_described(found, duration_ms)])
    item = {
        "coordinator": found.coordinator,
        "transactional_id": found.transactional_id,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "state": found.state,
        "timeout_ms": found.timeout_ms,
        "start_time_ms": found.start_ms,
        "duration_ms": duration_ms,
        "partitions": [str(p) for p in found.partitions],
    }
    out.show(Answer(lines, [item], DESCRIBED, client.cluster_id))
    return 0


def _described(found: "Description", duration_ms: int | None) -> tuple[str, ...]:
    return (
        str(found.coordinator),
        found.transactional_id,
        str(found.producer_id),
        str(found.producer_epoch),
        found.state,
        str(found.timeout_ms),
        or_none(found.start_ms),
        or_none(duration_ms),
        ",".join(map(str, found.partitions)),
    )


@click.command(
    "describe-producers",
    cls=KtCommand,
    examples=("kt transactions describe-producers --bootstrap-server b1:9092 --topic orders --partition 0",),
    columns=PRODUCERS,
    notes=("start_offset: where the transaction begins that the producer has open in this partition.",),
)
@brokers_only_options
@topic_option(required=True)
@partition_option(required=True)
@click.option("--broker-id", "broker", type=int, metavar="ID", help="Ask this replica's broker. [default: the leader]")
@output_option
def describe_producers(out: Output, bootstrap: Bootstrap, topic: str, partition: int, broker: int | None) -> int:
    """Show the producers that a partition's log knows."""
    from kafkatool.core.operations.requests import transactions as operations

    place = TopicPartition(topic, partition)
    try:
        with connect_brokers(bootstrap) as client:
            found, failed = operations.producers_of(client, [place], broker=broker)
        if failed:
            raise failed[place]
    except KafkatoolError as e:
        where = "leader" if broker is None else f"broker {broker}"
        text = f"Failed to describe producers for partition {place} on {where}: {e}."
        return out.failed(e, text=text, topic=topic, partition=partition)
    headers = (
        *("ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp"),
        "CurrentTransactionStartOffset",
    )
    out.show(
        Answer(table(headers, map(_known, found)), [producer_item(p) for p in found], PRODUCERS, client.cluster_id)
    )
    return 0


def _known(one: "Producer") -> tuple[str, ...]:
    return (
        str(one.producer_id),
        str(one.producer_epoch),
        str(-1 if one.coordinator_epoch is None else one.coordinator_epoch),
        str(one.last_sequence),
        str(one.last_timestamp_ms),
        or_none(one.start_offset),
    )


def producer_item(one: "Producer") -> dict[str, object]:
    """Return the JSON object and TSV row of a producer."""
    return {**one.partition._asdict(), **{key: getattr(one, key) for key in PRODUCERS[2:]}}
