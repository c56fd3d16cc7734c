"""WriteTxnMarkers that a proxy keeps, so that its coordinator repeats it and goes on (TXN-105, TXN-85).

What is kept is delivered before, during and after the next transaction of that producer, which ends the other way: to the
same leader, to one that leads no more, and to one that leads again.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count, permutations, product
from typing import Final

import pytest

from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.zookeeper.cluster_view import read_cluster
from tests.histories.frames.rules import Late, Rule
from tests.histories.frames.stage import BROKERS, Ours
from tests.integration.isolation import ISOLATIONS, end_of, values_of
from tests.raw_transactions import COMES_LATER, RawProducer
from tests.waiting import awaited, eventually

pytestmark = [pytest.mark.slow, pytest.mark.slowest, pytest.mark.timeout(1800)]

NONE: Final = ErrorCode.NONE
LIMIT_S: Final = 120.0
TIMEOUT_MS: Final = 600_000
WHEN: Final = ("before", "during", "after")
INPUT: Final = TopicPartition("in", 0)
_NOT_YET: Final = COMES_LATER | {ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.NETWORK_EXCEPTION}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ours]:
    with Ours(tmp_path_factory.mktemp("late") / "cluster") as made:
        made.make_topics(INPUT.topic, partitions=1)
        made.cluster.create_offsets_topic()
        yield made


class Case:
    """A producer whose coordinator has to send a marker to another broker, and the marker that comes late."""

    def __init__(self, by: RawProducer, stage: Ours, place: TopicPartition, *, committed: bool, when: str) -> None:
        self.by, self.place = by, place
        self.id = by.transactional_id
        self._stage, self.committed, self._when = stage, committed, when
        self.seen: list[str] = []

    def __str__(self) -> str:
        return f"{'commit' if self.committed else 'abort'} {self._when} the next one, {self.id}"

    def begin(self, *, silent: bool = False) -> None:
        """Have the first transaction end; its marker is kept. ``silent``: and not sent again for half a minute."""
        by = self.by
        assert by.init() == NONE
        self._write("first", committed=self.committed)
        body = {"producers": [by.producer_id]}
        self._kept = self._stage.doors.rules.add(Rule("WriteTxnMarkers", Late(silent=silent), body=body))
        assert by.end(committed=self.committed) == NONE
        eventually(self._kept.met.is_set, f"{self}: the marker", LIMIT_S)

    def go_on(self) -> None:
        """Have the next transaction, which ends the other way, and one more."""
        by = self.by
        assert by.end(committed=self.committed) == NONE, "the marker that was sent again is written"
        if self._when == "before":
            self._deliver()
        self._write("second", committed=not self.committed)
        if self._when == "during":
            self._deliver()
        self._write("third", committed=not self.committed)
        assert by.end(committed=not self.committed) == by.end(committed=not self.committed) == NONE
        if self._when == "after":
            self._deliver()
        self._write("fourth", committed=True)
        assert by.end(committed=True) == NONE

    def _write(self, which: str, *, committed: bool) -> None:
        value = f"{self.id}, {which}"
        assert (self.by.add(self.place), self.by.send(self.place, value)) == (NONE, NONE), (str(self), which)
        self.seen += [value] * committed

    def _deliver(self) -> None:
        self._kept.released.set()
        assert self._kept.done.wait(LIMIT_S), f"{self}: it is neither answered nor dropped"


class Cast:
    """The producers of a test: each has a coordinator and writes to a partition of a broker as the test says."""

    def __init__(self, stage: Ours, topic: str, producers: ExitStack) -> None:
        self._stage, self._topic, self._producers = stage, topic, producers
        stage.make_topics(topic, partitions=BROKERS)
        self._numbers = count()
        states = read_cluster(stage.zk, [topic]).states
        led = ((state.leader_and_isr.leader, place) for place, state in states.items())
        self.leaders = {leader: place for leader, place in led if leader is not None}

    def producer(self, coordinator: int) -> RawProducer:
        """Return one that this broker coordinates."""
        while True:
            id_ = f"{self._topic}-{next(self._numbers)}"
            by = self._producers.enter_context(RawProducer(self._stage.bootstrap, id_, timeout_ms=TIMEOUT_MS))
            if by.coordinator == coordinator:
                return by


def read_all(stage: Ours, topic: str, cases: list[Case]) -> None:
    """Hold what readers see against how each transaction was ended by its producer; nothing is open."""
    for partition in range(BROKERS):
        eventually(
            lambda p=partition: len({end_of(stage, topic, p, isolation) for isolation in ISOLATIONS}) == 1,  # type: ignore[misc]
            "what is open",
            LIMIT_S,
        )
    read = values_of(stage, topic, "read_committed", BROKERS)
    for case in cases:
        assert [value for value in read if value.startswith(f"{case.id},")] == case.seen, str(case)


@pytest.mark.spec("TXN-105", "TXN-85", "TXN-106")
@pytest.mark.parametrize("where", ["here", "away"])
def test_a_marker_that_comes_late_to_its_leader_ends_nothing(stage: Ours, where: str) -> None:
    topic = f"markers-{where}"
    with ExitStack() as producers:
        cast, cases = Cast(stage, topic, producers), list[Case]()
        for (committed, when), (coordinator, leader) in zip(
            product((True, False), WHEN), permutations(cast.leaders, 2), strict=True
        ):
            by, place = cast.producer(coordinator), cast.leaders[leader]
            cases.append(Case(by, stage, place, committed=committed, when=when))
        for case in cases:
            case.begin()
            assert case.by.end(committed=case.committed) == NONE, "it is sent again at once"
        for place in cast.leaders.values() if where == "away" else ():
            stage.cluster.faults.move_leader(*place)
        for case in cases:
            case.go_on()
        read_all(stage, topic, cases)


@pytest.mark.spec("TXN-105", "TXN-85", "TXN-106")
def test_a_marker_that_comes_late_to_who_leads_again_ends_nothing_though_it_is_the_first_there(stage: Ours) -> None:
    with ExitStack() as producers:
        cast, cases = Cast(stage, "markers-back", producers), list[Case]()
        for (committed, when), (coordinator, leader) in zip(
            product((True, False), WHEN), permutations(cast.leaders, 2), strict=True
        ):
            by, place = cast.producer(coordinator), cast.leaders[leader]
            cases.append(Case(by, stage, place, committed=committed, when=when))
        for case in cases:
            case.begin(silent=True)
        for place in cast.leaders.values():
            stage.cluster.faults.move_leader(*place)
        for case in cases:  # sent to the next leader, once the coordinators' patience is over
            assert case.by.end(committed=case.committed) == NONE
        for leader, place in cast.leaders.items():
            stage.cluster.faults.move_leader(*place, to=leader)
        for case in cases:
            case.go_on()
        read_all(stage, "markers-back", cases)


@pytest.mark.spec("TXN-105", "TXN-85", "TXN-86")
@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_that_comes_late_puts_no_offset_in_force_and_drops_none(stage: Ours, committed: bool) -> None:
    with ExitStack() as producers:
        group = f"group-{committed}"
        asks = producers.enter_context(RawProducer(stage.bootstrap, group))
        coordinator = next(b for b in range(1, BROKERS + 1) if b != asks.coordinator_of_group(group))
        by = Cast(stage, f"offsets-{committed}", producers).producer(coordinator)

        def commit(offset: int) -> None:
            assert by.add_offsets(group) == NONE
            assert by.commit_offsets(group, INPUT.topic, {INPUT.partition: ""}, offset) == {INPUT.partition: NONE}

        def fetched(*, stable: bool) -> int | None:
            code, offset = asks.fetch_offset(group, INPUT, stable=stable)
            return None if code in _NOT_YET else offset

        assert by.init() == NONE
        commit(1)
        kept = stage.doors.rules.add(Rule("WriteTxnMarkers", Late(), body={"producers": [by.producer_id]}))
        assert by.end(committed=committed) == by.end(committed=committed) == NONE
        commit(5)
        kept.released.set()
        assert kept.done.wait(LIMIT_S)
        before = 1 if committed else -1
        assert awaited(lambda: fetched(stable=False), "an offset", LIMIT_S) == before, "it is pending still"
        assert by.end(committed=not committed) == by.end(committed=not committed) == NONE
        assert awaited(lambda: fetched(stable=True), "an offset", LIMIT_S) == (before if committed else 5)
