"""Requests of clients that come late, from a proxy in front of each of three brokers (TXN-105).

Each kind of request of a transaction is kept until its client has repeated it and gone on, and delivered before, during and
after the next transaction: to the same broker, to one that leads no more, and to one that leads again. What is after or
during the next transaction comes before or during a further one. tests/integration has the markers.
"""

from collections.abc import Iterator, Mapping
from itertools import count, product
from pathlib import Path
from typing import Final

import pytest

from kafkatool.broker.coordination.ownership import partition_for
from kafkatool.core.model.topic_names import OFFSETS_TOPIC, TRANSACTION_TOPIC
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.cluster_view import read_cluster
from tests.compat.client_programs import Program
from tests.compat.late_requests import (
    DURING,
    INPUT,
    KINDS,
    LIMIT_S,
    WHEN,
    Case,
    describing,
    producers_of,
)
from tests.compat.test_codes_to_clients import program_of, with_settings
from tests.histories.frames.stage import Ours
from tests.integration.isolation import ISOLATIONS, end_of, values_of
from tests.raw_transactions import RawProducer
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.slowest, pytest.mark.timeout(1800)]

RAW: Final = "raw"
CLIENTS: Final = (RAW, "java-3.9", "confluent-kafka")
HERE, AWAY, BACK = "here", "away", "back"
PATIENCE: Final[Mapping[str, str]] = {
    "java-3.9": "request.timeout.ms=8000",
    "confluent-kafka": "socket.timeout.ms=8000\nrequest.timeout.ms=8000",
}
"""So long a client waits for an answer, if it hears nothing."""
_INTERNAL_PARTITIONS: Final = 10


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ours]:
    with Ours(tmp_path_factory.mktemp("late") / "cluster") as made:
        made.make_topics(INPUT.topic, partitions=1)
        made.cluster.create_offsets_topic()
        yield made


def leader_of(stage: Ours, place: TopicPartition) -> int:
    found = read_cluster(stage.zk, [place.topic]).states[place].leader_and_isr.leader
    assert found is not None
    return found


def turn(stage: Ours, places: tuple[TopicPartition, ...], where: str, asks: RawProducer) -> None:
    """Have others lead these partitions, or others and then those again who led them before."""
    for place in places:
        before = leader_of(stage, place)
        if where != HERE:
            stage.cluster.faults.move_leader(*place)
        if where == BACK:
            stage.cluster.faults.move_leader(*place, to=before)
    own, offsets, data = (leader_of(stage, place) for place in places)
    ready = (own, offsets, data)
    eventually(
        lambda: (
            (asks.coordinator, asks.coordinator_of_group(asks.transactional_id), asks.leader_of(places[2])) == ready
        ),
        "all to know the leaders",
        LIMIT_S,
    )


def ids(prefix: str) -> Iterator[str]:
    """Yield ids that belong into one partition, as transactional ids and as groups."""
    made = (f"{prefix}-{number}" for number in count())
    return (id_ for id_ in made if partition_for(id_, _INTERNAL_PARTITIONS) == 0)


def play(
    stage: Ours,
    program: Program | None,
    log: Path,
    name: str,
    when: tuple[str, ...],
    where: str,
    *,
    silent: bool = False,
) -> None:
    """Play a case of each kind for each of those times."""
    topic, named, obeyed = name, ids(name.replace(".", "")), where != AWAY
    stage.make_topics(topic, partitions=1)
    place, own, offsets = (TopicPartition(one, 0) for one in (topic, TRANSACTION_TOPIC, OFFSETS_TOPIC))
    with (
        producers_of(program, stage.bootstrap, log) as by,
        RawProducer(stage.bootstrap, next(named)) as asks,
        describing(stage.bootstrap) as describe,
    ):
        cases = [Case(by, stage, next(named), place, what, each) for what, each in product(KINDS, when)]
        for case in cases:
            case.first(silent=silent)
        turn(stage, (own, offsets, place), where, asks)
        for case in cases:
            describe(case.id)  # its coordinator has loaded it
            case.go_on(describe, obeyed=obeyed)
        eventually(
            lambda: len({end_of(stage, topic, 0, isolation) for isolation in ISOLATIONS}) == 1,
            "the end of what is open",
            LIMIT_S,
        )
        read = values_of(stage, topic, "read_committed")
        for case in cases:
            case.check(read, asks, obeyed=obeyed)


@pytest.mark.spec("TXN-105", "TXN-106", "TXN-84", "TXN-72", "TXN-79", "TXN-83", "TXN-25")
@pytest.mark.parametrize("where", [HERE, AWAY, BACK])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_late_request_changes_nothing_of_later_transactions_or_its_producer_is_told(
    stage: Ours, tmp_path: Path, client: str, where: str
) -> None:
    program = None if client == RAW else program_of(client)
    play(stage, program, tmp_path / "client.log", f"{client}-{where}", WHEN, where)


@pytest.mark.spec("TXN-105", "TXN-106", "TXN-84")
@pytest.mark.parametrize("client", PATIENCE)
def test_so_it_is_for_clients_whose_time_was_out(stage: Ours, tmp_path: Path, client: str) -> None:
    program = with_settings(program_of(client), tmp_path, PATIENCE[client])
    play(stage, program, tmp_path / "client.log", f"{client}-silent", (DURING,), HERE, silent=True)
