"""Markers on their way: what follows each answer, how long is waited, what is dropped."""

from collections.abc import Callable, Collection, Iterator, Sequence, Set
from pathlib import Path
from typing import Any, Generic, TypeVar

import pytest

from kafkatool.broker.transactions import endings
from kafkatool.broker.transactions.endings import Ending, Endings
from kafkatool.broker.transactions.marker_writes import Codes, MarkerWrite
from kafkatool.broker.transactions.transaction import Identity
from kafkatool.core.errors import ZooKeeperError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.broker.replication.world import World, world

HERE, ALSO, THERE = TopicPartition("here", 0), TopicPartition("here", 1), TopicPartition("there", 0)
NONE = ErrorCode.NONE


Item = TypeVar("Item")


class Unread(Generic[Item]):
    """``Channels`` of which nothing is read; ``failed`` has a destination's connection break."""

    made: "Unread[Any]"

    def __init__(self, *args: Any) -> None:
        Unread.made = self
        self._failed = args[-1]
        self.queue: list[tuple[int, Any]] = []

    def put(self, broker_id: int, item: Any) -> None:
        self.queue.append((broker_id, item))

    def drop(self, unwanted: Callable[[Any], bool]) -> list[Any]:
        dropped = [item for _, item in self.queue if unwanted(item)]
        self.queue = [(b, item) for b, item in self.queue if not unwanted(item)]
        return dropped

    def close(self) -> None: ...

    def lose(self) -> None:
        """Lose the connection with all that was sent over it."""
        lost, self.queue = self.queue, []
        for broker_id in {b for b, _ in lost}:
            self._failed(broker_id, [item for b, item in lost if b == broker_id])


class Sending:
    """A sender of markers; ``codes`` is what a partition led here answers with, each in its turn, then NONE."""

    def __init__(self, broker: World, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(endings, "Channels", Unread)
        self.waits: list[tuple[float, Callable[[], object]]] = []
        patch.setattr(broker.scheduler, "once", lambda name, fn, *, delay_ms: self.waits.append((delay_ms, fn)))
        self.broker = broker
        self.codes: list[int | None] = []
        self.written: list[TopicPartition] = []
        self.marked: set[TopicPartition] = set()
        self.wanted = True
        broker.know(HERE, ALSO, brokers={1: 9001, 2: 9002})
        broker.know(THERE, leader=2, brokers={1: 9001, 2: 9002})
        self.endings = Endings(
            broker.config,
            1,
            broker.cache,
            broker.scheduler,
            self,  # type: ignore[arg-type]
            find_deleted=lambda _: frozenset(),
        )
        self.channels = Unread.made

    def write(self, writes: Sequence[MarkerWrite], done: Callable[[Sequence[Codes]], None]) -> None:
        outcomes: list[Codes] = []
        for write in writes:
            self.written += write.partitions
            code = self.codes.pop(0) if self.codes else NONE
            outcomes.append({} if code is None else dict.fromkeys(write.partitions, code))
        done(outcomes)

    def send(self, *partitions: TopicPartition, number: int = 0, is_wanted: Callable[[], bool] | None = None) -> None:
        self.endings.send(
            Ending(
                transactional_id="id",
                partition=number,
                coordinator_epoch=3,
                identity=Identity(7, 0),
                committed=True,
                partitions=frozenset(partitions),
                is_wanted=is_wanted or (lambda: self.wanted),
                on_marked=self.marked.update,
            )
        )

    def end_wait(self) -> float:
        """Let the one wait be over; return how long it was, in ms."""
        ((delay_ms, go_on),) = self.waits
        self.waits.clear()
        go_on()
        return delay_ms


@pytest.fixture
def sending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sending]:
    with world(tmp_path) as running:
        yield Sending(running, monkeypatch)


@pytest.mark.spec("TXN-53")
@pytest.mark.parametrize("code", [3, 6, 7, 19, 20, 56, -1, None, 52, 99], ids=lambda c: "missing" if c is None else c)
def test_these_are_tried_again_and_strange_ones_with_an_error_line(
    sending: Sending, caplog: pytest.LogCaptureFixture, code: int | None
) -> None:
    sending.codes = [code]
    sending.send(HERE)
    assert (sending.marked, sending.written) == (set(), [HERE])
    sending.end_wait()
    assert (sending.marked, sending.written) == ({HERE}, [HERE, HERE])
    assert [r.levelname for r in caplog.records if "marker for" in r.message] == (["ERROR"] if code in (52, 99) else [])


@pytest.mark.spec("TXN-50")
def test_the_own_broker_gets_its_markers_by_a_call_and_another_one_over_its_connection(sending: Sending) -> None:
    sending.send(HERE, ALSO, THERE)
    assert (sending.written, sending.marked) == ([HERE, ALSO], {HERE, ALSO})
    assert [(b, markers.partitions) for b, markers in sending.channels.queue] == [(2, (THERE,))]


@pytest.mark.spec("TXN-53", "TXN-100")
@pytest.mark.parametrize("code", [43, 35, 47])
def test_these_count_as_done_with_a_warning(sending: Sending, caplog: pytest.LogCaptureFixture, code: int) -> None:
    sending.codes = [code]
    sending.send(HERE)
    assert (sending.marked, sending.waits) == ({HERE}, [])
    (warning,) = [r for r in caplog.records if "no marker for" in r.message]
    assert warning.levelname == "WARNING" and ErrorCode(code).name in warning.message


@pytest.mark.spec("TXN-53")
def test_a_fenced_coordinator_that_has_lost_the_partition_drops_it(sending: Sending) -> None:
    sending.codes = [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    sending.send(HERE)
    sending.wanted = False
    sending.end_wait()
    assert (sending.written, sending.marked, sending.waits) == ([HERE], set(), [])


@pytest.mark.spec("TXN-53", "TXN-54", "TXN-97")
@pytest.mark.parametrize("code", [3, 6, 7, 19, 20, 56, -1, None, 52, 99], ids=lambda c: "missing" if c is None else c)
def test_the_leader_is_looked_up_anew_and_a_change_of_the_metadata_ends_the_wait(
    sending: Sending, code: int | None
) -> None:
    sending.codes = [code]
    sending.send(HERE)
    assert [delay_ms for delay_ms, _ in sending.waits] == [100]
    sending.broker.know(HERE, leader=2, brokers={1: 9001, 2: 9002})
    sending.broker.scheduler.run()
    assert [(b, markers.partitions) for b, markers in sending.channels.queue] == [(2, (HERE,))]
    sending.end_wait()  # finds nothing any more
    assert len(sending.channels.queue) == 1


@pytest.mark.spec("TXN-54")
def test_waits_double_up_to_five_seconds_and_never_end_for_good(sending: Sending) -> None:
    sending.codes = [ErrorCode.REQUEST_TIMED_OUT] * 10
    sending.send(HERE)
    assert [sending.end_wait() for _ in range(9)] == [100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]
    sending.end_wait()
    assert sending.marked == {HERE}
    sending.codes = [ErrorCode.REQUEST_TIMED_OUT]
    sending.send(ALSO)
    assert sending.end_wait() == 100, "after a success"


@pytest.mark.spec("TXN-54")
def test_all_markers_of_a_lost_connection_are_sent_again(sending: Sending) -> None:
    sending.send(THERE)
    sending.send(THERE)
    sending.channels.lose()
    assert sending.channels.queue == []
    sending.end_wait()
    assert [b for b, _ in sending.channels.queue] == [2, 2] and sending.marked == set()


@pytest.mark.spec("TXN-54")
def test_each_destination_has_waits_of_its_own(sending: Sending) -> None:
    sending.codes = [ErrorCode.REQUEST_TIMED_OUT] * 3
    sending.send(HERE)
    assert [sending.end_wait() for _ in range(2)] == [100, 200]
    sending.send(THERE)
    sending.channels.lose()
    assert [delay_ms for delay_ms, _ in sending.waits] == [400, 100]


@pytest.mark.spec("TXN-54")
@pytest.mark.parametrize("leader", [-1, 3], ids=["no leader", "a leader that is not alive"])
def test_where_there_is_no_leader_is_waited_for(sending: Sending, leader: int) -> None:
    sending.broker.know(HERE, leader=leader, brokers={1: 9001, 2: 9002})
    sending.send(HERE)
    assert [sending.end_wait() for _ in range(3)] == [100, 200, 400]
    sending.broker.know(HERE, leader=1, brokers={1: 9001, 2: 9002})
    sending.broker.scheduler.run()
    assert sending.marked == {HERE}


@pytest.mark.spec("TXN-55")
def test_before_the_first_metadata_and_while_zookeeper_is_away_nothing_counts_as_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, answers = TopicPartition("gone", 0), [True, False, False]
    monkeypatch.setattr(endings, "Channels", Unread)
    with world(tmp_path) as broker:
        waits: list[Callable[[], object]] = []
        monkeypatch.setattr(broker.scheduler, "once", lambda name, fn, *, delay_ms: waits.append(fn))
        marked: list[Set[TopicPartition]] = []

        def find_deleted(asked: Collection[TopicPartition]) -> Set[TopicPartition]:
            if answers.pop(0):
                raise ZooKeeperError("away")
            return frozenset(asked) & {gone}

        def on_a_wait() -> None:
            waits.pop(0)()
            broker.scheduler.run()

        unused: Any = None
        sender = Endings(broker.config, 1, broker.cache, broker.scheduler, unused, find_deleted=find_deleted)
        ending = Ending(
            transactional_id="id",
            partition=0,
            coordinator_epoch=3,
            identity=Identity(7, 0),
            committed=True,
            partitions=frozenset({gone, THERE}),
            is_wanted=lambda: True,
            on_marked=marked.append,
        )
        sender.send(ending)
        broker.scheduler.run()
        assert (len(answers), marked) == (3, []), "not even asked: the cache is young"
        broker.know(HERE, brokers={1: 9001, 2: 9002})
        broker.scheduler.run()
        assert (len(answers), marked) == (2, []), "asked in vain"
        on_a_wait()
        on_a_wait()
        assert marked == [{gone}]
        broker.know(THERE, leader=2, brokers={1: 9001, 2: 9002})  # made anew
        broker.scheduler.run()
        assert [(b, m.partitions) for b, m in Unread.made.queue] == [(2, (THERE,))]


@pytest.mark.spec("TXN-57")
def test_what_is_dropped_is_that_of_the_partition_lost_and_nothing_else(sending: Sending) -> None:
    sending.codes = [ErrorCode.REQUEST_TIMED_OUT] * 2
    sending.send(HERE, THERE, number=1, is_wanted=lambda: False)
    sending.send(HERE, THERE, number=1)  # of a later epoch: it came back
    sending.send(ALSO, THERE, number=2)
    before = len(sending.channels.queue)
    sending.endings.drop(1)
    assert [m.ending.partition for _, m in sending.channels.queue] == [1, 2] and before == 2
    sending.codes = []
    while sending.waits:
        sending.waits.pop()[1]()
    assert sending.marked == {HERE, ALSO}
