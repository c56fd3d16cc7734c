"""Each request of a producer once more, in its next transaction or after it, at this coordinator or the next (TXN-105).

The producer is one that never raises its epoch, so that nothing in a request tells which of its transactions it is of. What
a late EndTxn does is a fault of the protocol (docs/known-faults.md): here its producer is told, and nothing hangs.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Final

import pytest

from kafkatool.broker.coordination.ownership import partition_for
from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.core.model.topic_names import OFFSETS_TOPIC, TRANSACTION_TOPIC
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.integration.isolation import ISOLATIONS, end_of, values_of
from tests.integration.load import await_in_sync
from tests.raw_transactions import RawProducer
from tests.steady import LASTING, crash
from tests.waiting import awaited, eventually

pytestmark = [pytest.mark.slow, pytest.mark.slowest, pytest.mark.timeout(1800)]

NONE, ILLEGAL, FENCED = ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE, ErrorCode.PRODUCER_FENCED
PARTITIONS: Final = 3
LIMIT_S: Final = 120.0
OPTIONS: Final = {**LASTING, "auto.leader.rebalance.enable": "false"}  # coordinators move where the test says alone


class Case:
    """One producer, and a request of its first transaction that comes late."""

    def __init__(self, number: int, by: RawProducer, late: RawProducer, what: str, *, during: bool) -> None:
        self.id: str = by.transactional_id
        self.place: TopicPartition = TopicPartition("t", number % PARTITIONS)
        self.another: TopicPartition = TopicPartition("t", (number + 1) % PARTITIONS)
        self.by = by
        self.late: RawProducer = late
        self._what = what
        self._during = during
        self.told: list[object] = []

    def text(self, which: str) -> str:
        return f"{self.id}, {which}"

    def first(self) -> None:
        """Have the first transaction, with an offset; nothing of it is missing."""
        by = self.by
        assert (by.init(), by.add(self.place), by.send(self.place, self.text("first"))) == (NONE, NONE, NONE)
        assert (by.add_offsets(self.id), by.commit_offsets(self.id, "in", {0: ""}, 1)) == (NONE, {0: NONE})
        assert by.end(committed=True) == NONE
        self.late.producer_id, self.late.epoch = by.producer_id, by.epoch

    def begin(self) -> None:
        """Begin the second one."""
        assert (self.by.add(self.place), self.by.send(self.place, self.text("second"))) == (NONE, NONE)

    def go_on(self) -> None:
        """Have the request come; the producer goes on to an end that is not what a late one says."""
        by, come = self.by, LATE[self._what]
        committed = self._what != "commit"
        if self._during:
            self.told = [come(self), by.send(self.place, self.text("third")), _end(by, committed=committed)]
        else:
            assert _end(by, committed=True) == NONE
            self.told = [come(self), by.add(self.place)]
            if self.told[1] == NONE:
                self.told += [by.send(self.place, self.text("third")), _end(by, committed=True)]

    def check(self, read: Iterable[str]) -> None:
        """Hold what was told, and what is read, against what must be."""
        told, seen = _during(self._what) if self._during else _after(self._what)
        about = (self._what, "during" if self._during else "after")
        assert (self.told, sorted(read)) == (told, sorted(map(self.text, seen))), about
        fetched = awaited(self._offset, f"a stable offset of {about}", LIMIT_S)
        assert fetched == 1, about

    def _offset(self) -> int | None:
        code, offset = self.by.fetch_offset(self.id, TopicPartition("in", 0))
        return offset if code == NONE else None


LATE: Final[Mapping[str, Callable[[Case], object]]] = {
    "abort": lambda case: _end(case.late, committed=False),
    "commit": lambda case: _end(case.late, committed=True),
    "addition": lambda case: case.late.add(case.another),
    "addition of offsets": lambda case: case.late.add_offsets(case.id),
    "offsets": lambda case: case.late.commit_offsets(case.id, "in", {0: ""}, 7)[0],
    "batch": lambda case: case.late.send(case.place, case.text("first")),
    "identity": lambda case: case.late.init(),
}


def _end(by: RawProducer, *, committed: bool) -> int:
    """Have it end; a repeat is answered the same once all markers are written."""
    told = by.end(committed=committed)
    assert by.end(committed=committed) == told
    return told


def _during(what: str) -> tuple[list[object], list[str]]:
    """Return the codes of the late one, of another record and of the end, and the records that are committed."""
    match what:
        case "abort":
            return [NONE, ILLEGAL, ILLEGAL], ["first"]
        case "commit":
            return [NONE, ILLEGAL, ILLEGAL], ["first", "second"]
        case "identity":  # it names none: it is a newcomer's
            return [NONE, ErrorCode.INVALID_PRODUCER_EPOCH, FENCED], ["first"]
        case "offsets":
            return [ILLEGAL, NONE, NONE], ["first", "second", "third"]
    return [NONE, NONE, NONE], ["first", "second", "third"]


def _after(what: str) -> tuple[list[object], list[str]]:
    """Return the codes of the late one and of what comes next: addition, record, end; and the records that are committed."""
    match what:
        case "abort" | "offsets" | "batch":
            return [ILLEGAL, NONE, NONE, NONE], ["first", "second", "third"]
        case "identity":
            return [NONE, FENCED], ["first", "second"]
    return [NONE, NONE, NONE, NONE], ["first", "second", "third"]


@pytest.mark.spec("TXN-105", "TXN-106", "TXN-84", "TXN-72", "TXN-79")
def test_what_comes_late_is_refused_or_told_and_nothing_hangs_wherever_it_comes(tmp_path: Path) -> None:
    with (
        EmbeddedCluster(3, directory=tmp_path / "cluster", options=OPTIONS) as cluster,
        ZooKeeper(cluster.zookeeper, session_timeout_ms=60_000) as zk,
        ExitStack() as producers,
    ):
        cluster.create_topic("t", partitions=PARTITIONS)
        cluster.create_topic("in", partitions=1)
        cluster.create_offsets_topic()
        here, next_, back = (_cases(cluster, producers, where) for where in ("here", "next", "back"))
        (victim,) = {case.by.coordinator for case in (*here, *next_, *back)}
        for case in (*here, *next_, *back):
            case.first()
        for case in here:
            case.begin()
            case.go_on()
        crash(cluster, zk, victim)
        for case in (*next_, *back):
            case.begin()
        for case in next_:
            case.go_on()
        cluster.start_broker(victim)
        await_in_sync(zk, [TRANSACTION_TOPIC, OFFSETS_TOPIC, "t"], LIMIT_S)
        for number in {partition_for(case.id, 10) for case in back}:
            cluster.faults.move_leader(TRANSACTION_TOPIC, number, to=victim)
        eventually(lambda: {case.by.coordinator for case in back} == {victim}, "the first coordinator", LIMIT_S)
        for case in back:
            case.go_on()
        read = values_of(cluster, "t", "read_committed", PARTITIONS)
        for case in (*here, *next_, *back):
            case.check(value for value in read if value.startswith(f"{case.id},"))
        for partition in range(PARTITIONS):
            assert len({end_of(cluster, "t", partition, isolation) for isolation in ISOLATIONS}) == 1


def _cases(cluster: EmbeddedCluster, producers: ExitStack, where: str) -> list[Case]:
    """Return a case of each request, in its next transaction and after it; all have one coordinator."""
    wanted = 2 * len(LATE)
    ids = [f"{where}-{number}" for number in range(300) if partition_for(f"{where}-{number}", 10) == 0][:wanted]
    found = []
    for number, (id_, (what, during)) in enumerate(zip(ids, product(LATE, (True, False)), strict=True)):
        by, late = (producers.enter_context(RawProducer(cluster.bootstrap, id_, timeout_ms=600_000)) for _ in range(2))
        found.append(Case(number, by, late, what, during=during))
    return found
