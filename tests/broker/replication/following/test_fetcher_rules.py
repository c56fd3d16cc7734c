"""What a fetcher does with each answer of a leader, whose answers the test makes; and what it asks on the wire."""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from kafkatool.broker.handlers.call import Call, load_handlers
from kafkatool.broker.replication.following import fetcher_manager, leader_endpoint
from kafkatool.broker.replication.following.fetch_state import FollowedPartition
from kafkatool.broker.replication.following.fetcher import ReplicaFetcher
from kafkatool.broker.replication.following.fetcher_manager import fetcher_number
from kafkatool.broker.replication.following.follower_session import FetchQuestion
from kafkatool.broker.replication.following.leader_endpoint import LeaderEndpoint, LookupRefusedError
from kafkatool.broker.replication.partition.partition import Partition, StaleRoleError
from kafkatool.broker.storage.log.log_offset import LogOffset
from kafkatool.core.errors import BrokerUnreachableError, OffsetOrderError, StorageError
from kafkatool.core.model.values import LeaderAndIsr, TopicPartition
from kafkatool.core.protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
)
from kafkatool.core.protocol.messages.leader_and_isr import LeaderAndIsrLiveLeader
from kafkatool.core.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafkatool.core.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponsePartition,
)
from tests.broker.handlers.served import broker_of, handler_context
from tests.broker.replication.world import TP, Clock, World, role, world
from tests.broker.storage.batch_builders import batch
from tests.waiting import eventually

PARTITIONS = tuple(TopicPartition("t", p) for p in range(3))
BACKOFF_MS = 700  # not the default
LATEST, EARLIEST = -1, -2


@dataclass
class Scripted:
    """A leader without sessions. Partitions are answered with their code and records."""

    codes: dict[int, int] = field(default_factory=dict)
    records: dict[int, bytes] = field(default_factory=dict)
    high_watermark: int = 100
    edges: dict[int, int | None] = field(default_factory=dict)  # None: refused
    end_of: Callable[[int], tuple[int, int, int]] = lambda epoch: (0, epoch, 100)  # code, epoch, end
    meanwhile: Callable[[], object] = lambda: None  # runs while the leader is asked
    asked: list[list[tuple[int, int]]] = field(default_factory=list)  # (partition, offset) of each fetch
    questions: list[tuple[int, int, int]] = field(default_factory=list)  # (partition, its epoch, epoch in question)
    looked_up: list[int] = field(default_factory=list)
    disconnected: int = 0
    down: bool = False
    knows_sessions: bool = False
    knows_epochs: bool = True

    def epoch_ends(
        self, asked: Iterable[tuple[TopicPartition, OffsetForLeaderEpochRequestPartition]]
    ) -> dict[TopicPartition, OffsetForLeaderEpochResponsePartition]:
        if self.down:
            raise BrokerUnreachableError("nobody there")
        self.meanwhile()
        answers = {}
        for tp, wanted in asked:
            self.questions.append((tp.partition, wanted.current_leader_epoch, wanted.leader_epoch))
            code, epoch, end = self.end_of(wanted.leader_epoch)
            answers[tp] = OffsetForLeaderEpochResponsePartition(
                error_code=code, partition=tp.partition, leader_epoch=epoch, end_offset=end
            )
        return answers

    def fetch(self, question: FetchQuestion) -> FetchResponse:
        if self.down:
            raise BrokerUnreachableError("nobody there")
        asked = question.wanted["t"]
        self.asked.append([(p.partition, p.fetch_offset) for p in asked])
        self.meanwhile()
        answers = [
            FetchResponsePartition(
                partition=p.partition,
                error_code=self.codes.get(p.partition, 0),
                high_watermark=self.high_watermark,
                log_start_offset=0,
                records=memoryview(self.records.get(p.partition, b"")),
            )
            for p in asked
        ]
        return FetchResponse(topics=[FetchResponseTopic(topic="t", partitions=answers)])

    def log_edge(self, partition: TopicPartition, leader_epoch: int, timestamp: int) -> int:
        self.looked_up.append(timestamp)
        edge = self.edges[timestamp]
        if edge is None:
            raise LookupRefusedError("refused")
        return edge

    def disconnect(self) -> None:
        self.disconnected += 1


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, clock=Clock(), replica_fetch_backoff_ms=str(BACKOFF_MS)) as made:
        yield made


@pytest.fixture
def failed() -> list[TopicPartition]:
    return []


@pytest.fixture
def fetcher_of(broker: World, failed: list[TopicPartition]) -> Callable[..., ReplicaFetcher]:
    """Make a fetcher that is to follow these; none is truncating unless it is said so."""

    def make(leader: Any, *followed: FollowedPartition, truncating: bool = False) -> ReplicaFetcher:
        made = ReplicaFetcher(
            "test",
            broker.config,
            leader,
            broker.manager.follower_quota,
            check_delayed=lambda _: None,
            on_failed=failed.append,
            keep_log_starts=lambda: None,
            clock_ms=broker.clock,
        )
        for one in followed:
            one.truncating = truncating
        made.add(followed)
        return made

    return make


Make = Callable[..., ReplicaFetcher]


def followers(broker: World) -> list[FollowedPartition]:
    return [FollowedPartition(broker.follow(tp), 0) for tp in PARTITIONS]


def with_records(broker: World, count: int = 4, committed: int = 2, tp: TopicPartition = TP) -> Partition:
    """Make a follower in epoch 1 with that many records of epoch 0."""
    broker.lead(tp)
    for _ in range(count):
        broker.produce(tp)
    partition = broker.follow(tp, epoch=1)
    partition.high_watermark = LogOffset(committed)
    return partition


def rounds_until_asked(fetcher: ReplicaFetcher, broker: World, asked: Callable[[], bool]) -> None:
    """See that nothing is asked until the very end of one backoff."""
    broker.clock.pass_ms(BACKOFF_MS - 1)
    fetcher.run_once()
    assert not asked()
    broker.clock.pass_ms(1)
    fetcher.run_once()
    assert asked()


# --- truncating ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("BRK-66", "BRK-67", "BRK-71")
@pytest.mark.parametrize("code", [-1, 3, 6, 56, 75])
def test_a_question_about_epochs_that_fails_is_asked_again_after_the_backoff_and_nothing_fetched_before(
    broker: World, fetcher_of: Make, code: int
) -> None:
    partition = with_records(broker)
    newer = memoryview(batch(base_offset=4, epoch=1))
    partition.append_as_follower(newer, 1, fetched_at=4, high_watermark=2, log_start_offset=0)
    assert partition.log.leader_epochs.entries == [(0, 0), (1, 4)]
    leader = Scripted(end_of=lambda epoch: (code, -1, -1))
    fetcher = fetcher_of(leader, FollowedPartition(partition, 1), truncating=True)
    fetcher.run_once()
    assert leader.questions == [(0, 1, 1)], "of the newest epoch known here"
    rounds_until_asked(fetcher, broker, lambda: len(leader.questions) == 2)
    assert (leader.asked, partition.log.log_end_offset) == ([], 5)
    leader.end_of = lambda epoch: (0, epoch, 3)
    broker.clock.pass_ms(BACKOFF_MS)
    fetcher.run_once()
    assert (leader.asked, partition.log.log_end_offset) == ([[(0, 3)]], 3)


@pytest.mark.spec("BRK-66", "BRK-71")
@pytest.mark.parametrize("truncating", [True, False])
def test_a_fenced_partition_is_dropped_until_the_controller_speaks(
    broker: World, fetcher_of: Make, failed: list[TopicPartition], truncating: bool
) -> None:
    partition = with_records(broker)
    leader = Scripted(end_of=lambda epoch: (74, -1, -1), codes={0: 74})
    fetcher = fetcher_of(leader, FollowedPartition(partition, 1), truncating=truncating)
    fetcher.run_once()
    assert (fetcher.lags(), failed, partition.log.log_end_offset) == ({}, [], 4)
    broker.clock.pass_ms(10 * BACKOFF_MS)
    assert not fetcher.run_once()
    assert len(leader.questions) + len(leader.asked) == 1


@pytest.mark.spec("BRK-66")
def test_without_an_epoch_it_is_cut_at_the_high_watermark_unasked(broker: World, fetcher_of: Make) -> None:
    partition = with_records(broker, count=4, committed=2)
    partition.log.leader_epochs.clear()
    leader = Scripted()
    fetcher_of(leader, FollowedPartition(partition, 1), truncating=True).run_once()
    assert (leader.questions, partition.log.log_end_offset) == ([], 2)
    assert leader.asked == [[(0, 2)]]


@pytest.mark.spec("BRK-67")
@pytest.mark.parametrize("now", ["removed", "in another epoch", "added again"])
@pytest.mark.parametrize("truncating", [True, False])
def test_an_answer_counts_only_for_the_partition_and_the_epoch_it_was_asked_for(
    broker: World, fetcher_of: Make, now: str, truncating: bool
) -> None:
    partition = with_records(broker)
    followed = FollowedPartition(partition, 1)
    followed.fetch_offset = 4
    sent = {} if truncating else {0: bytes(batch(base_offset=4, epoch=1))}
    leader = Scripted(end_of=lambda epoch: (0, epoch, 3), records=sent)
    fetcher = fetcher_of(leader, followed, truncating=truncating)

    def meanwhile() -> None:
        leader.meanwhile = lambda: None
        if now == "added again":
            fetcher.add([FollowedPartition(partition, 1)])
            return
        fetcher.remove([TP])
        if now == "in another epoch":
            partition.make_follower(role(TP, 2, 2, [2], [2, 1]))
            other = FollowedPartition(partition, 2)
            other.delayed_until_ms = broker.clock.now_ms + 1
            fetcher.add([other])

    leader.meanwhile = meanwhile
    fetcher.run_once()
    used = (3 if truncating else 5) if now == "added again" else 4
    assert partition.log.log_end_offset == used


@pytest.mark.spec("BRK-67")
def test_adding_it_again_keeps_its_state_unless_the_epoch_is_another(broker: World, fetcher_of: Make) -> None:
    partition = with_records(broker)
    followed = FollowedPartition(partition, 1)
    followed.fetch_offset = 4
    leader = Scripted(codes={0: 6})
    fetcher = fetcher_of(leader, followed)
    fetcher.run_once()
    fetcher.add([FollowedPartition(partition, 1)])
    assert not fetcher.run_once() and leader.questions == [], "still delayed, and not truncating"
    partition.make_follower(role(TP, 2, 2, [2], [2, 1]))
    fetcher.add([FollowedPartition(partition, 2)])
    fetcher.run_once()
    assert leader.questions == [(0, 2, 0)], "begins anew, truncating"


# --- answers to fetches --------------------------------------------------------------------------------------------


@pytest.mark.spec("BRK-64", "BRK-68", "BRK-71")
@pytest.mark.parametrize("code", [-1, 2, 3, 5, 6, 9, 56, 75, 76])
def test_an_error_delays_its_partition_alone_by_one_backoff(
    broker: World, fetcher_of: Make, failed: list[TopicPartition], code: int
) -> None:
    leader = Scripted(codes={0: code})
    fetcher = fetcher_of(leader, *followers(broker))
    fetcher.run_once()
    fetcher.run_once()
    assert [sorted(p for p, _ in asked) for asked in leader.asked] == [[0, 1, 2], [1, 2]]
    rounds_until_asked(fetcher, broker, lambda: 0 in [p for p, _ in leader.asked[-1]])
    assert failed == []


@pytest.mark.spec("BRK-71")
def test_damaged_records_delay_their_partition_alone_by_one_backoff(
    broker: World, fetcher_of: Make, failed: list[TopicPartition]
) -> None:
    damaged = batch(base_offset=1, epoch=0)
    damaged[-1] ^= 1
    sound = batch(epoch=0)
    leader = Scripted(records={0: bytes(sound + damaged), 1: bytes(sound), 2: bytes(sound)})
    fetcher = fetcher_of(leader, *followers(broker))
    fetcher.run_once()
    leader.records = {}
    fetcher.run_once()
    assert sorted(leader.asked[1]) == [(1, 1), (2, 1)]
    rounds_until_asked(fetcher, broker, lambda: (0, 1) in leader.asked[-1])
    assert failed == []


@pytest.mark.spec("BRK-71")
@pytest.mark.parametrize("about", ["data", "epochs"])
def test_a_failed_request_drops_the_connection_and_delays_all(broker: World, fetcher_of: Make, about: str) -> None:
    leader = Scripted(down=True)
    if about == "data":
        fetcher = fetcher_of(leader, *followers(broker))
    else:
        followed = [FollowedPartition(with_records(broker, tp=tp), 1) for tp in PARTITIONS]
        fetcher = fetcher_of(leader, *followed, truncating=True)
    assert fetcher.run_once()
    assert leader.disconnected == 1
    leader.down = False

    def asked_for() -> list[int]:
        asked = leader.questions if about == "epochs" else [one for round_ in leader.asked for one in round_]
        return sorted(partition for partition, *_ in asked)

    rounds_until_asked(fetcher, broker, lambda: asked_for() == [0, 1, 2])


@pytest.mark.spec("BRK-72")
@pytest.mark.parametrize(
    "error",
    [StorageError("disk"), RuntimeError("a bug"), OSError("disk"), OffsetOrderError("does not continue the log")],
)
def test_a_local_failure_removes_its_partition_alone(
    broker: World, fetcher_of: Make, failed: list[TopicPartition], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_: object, **__: object) -> int:
        raise error

    followed = followers(broker)
    leader = Scripted(records={p: bytes(batch(epoch=0)) for p in range(3)})
    monkeypatch.setattr(followed[1].partition, "append_as_follower", fails)
    fetcher = fetcher_of(leader, *followed)
    fetcher.run_once()
    assert (failed, fetcher.lags().keys()) == ([PARTITIONS[1]], {PARTITIONS[0], PARTITIONS[2]})
    assert [one.partition.log.log_end_offset for one in followed] == [1, 0, 1]
    fetcher.run_once()
    assert sorted(leader.asked[-1]) == [(0, 1), (2, 1)]


@pytest.mark.spec("BRK-70")
@pytest.mark.parametrize(("leaders", "own"), [(-1, 0), (0, 0), (2, 2), (3, 3), (9, 3)])
def test_the_high_watermark_is_the_leaders_within_the_own_log(broker: World, leaders: int, own: int) -> None:
    partition = broker.follow()
    sent = memoryview(batch(3, epoch=0))
    assert partition.append_as_follower(sent, 0, fetched_at=0, high_watermark=leaders, log_start_offset=0) == 3
    assert partition.high_watermark.offset == own


@pytest.mark.spec("BRK-70", "BRK-67")
def test_data_is_taken_only_at_the_end_of_the_log_and_in_the_epoch_it_was_fetched_for(broker: World) -> None:
    partition = broker.follow()
    sent = memoryview(batch(3, base_offset=1, epoch=0))
    with pytest.raises(StaleRoleError):
        partition.append_as_follower(sent, 0, fetched_at=1, high_watermark=0, log_start_offset=0)
    with pytest.raises(StaleRoleError):
        partition.append_as_follower(memoryview(batch(3)), 1, fetched_at=0, high_watermark=0, log_start_offset=0)
    taken = memoryview(batch(3, epoch=0))
    assert partition.append_as_follower(taken, 0, fetched_at=0, high_watermark=0, log_start_offset=0) == 3
    for fetched_at in (0, 2, 4):
        nothing = memoryview(b"")
        with pytest.raises(StaleRoleError):
            partition.append_as_follower(nothing, 0, fetched_at=fetched_at, high_watermark=2, log_start_offset=1)
    assert partition.high_watermark.offset == 0
    broker.lead(epoch=1)
    with pytest.raises(StaleRoleError):
        partition.append_as_follower(memoryview(batch(3)), 1, fetched_at=3, high_watermark=0, log_start_offset=0)
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (0, 3)


# --- out of range --------------------------------------------------------------------------------------------------


@pytest.mark.spec("BRK-75")
def test_a_log_cut_back_to_its_start_is_empty_whatever_it_has_below(broker: World) -> None:
    partition = broker.follow(epoch=0)
    sent = b"".join(bytes(batch(base_offset=offset, epoch=0)) for offset in range(4))
    partition.append_as_follower(memoryview(sent), 0, fetched_at=0, high_watermark=0, log_start_offset=0)
    partition.log.advance_log_start(1)
    assert partition.truncate(0, 1) == 1
    with pytest.raises(OffsetOrderError):
        partition.append_as_follower(memoryview(batch(epoch=0)), 0, fetched_at=1, high_watermark=2, log_start_offset=1)
    assert partition.log.size_bytes, "a batch that ends below has nothing dropped"
    across = memoryview(batch(2, epoch=0))  # offsets 0 and 1
    assert partition.append_as_follower(across, 0, fetched_at=1, high_watermark=2, log_start_offset=1) == 2
    assert (partition.log.log_start_offset, partition.high_watermark.offset) == (1, 2)
    assert [path.read_bytes() for path in partition.log.directory.glob("*.log")] == [bytes(across)]
    with pytest.raises(OffsetOrderError):
        partition.append_as_follower(
            memoryview(batch(3, epoch=0)), 0, fetched_at=2, high_watermark=2, log_start_offset=1
        )
    assert partition.log.log_end_offset == 2, "it is not empty any more"


@pytest.mark.spec("BRK-73")
@pytest.mark.parametrize("unclean", ["true", "false"])
@pytest.mark.parametrize(("latest", "lost"), [(3, False), (2, False), (1, True), (0, True)])
def test_a_leader_that_ends_below_cuts_the_follower_whatever_unclean_election_says(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, unclean: str, latest: int, lost: bool
) -> None:
    with world(tmp_path, clock=Clock(), unclean_leader_election_enable=unclean) as broker:
        partition = with_records(broker, count=4, committed=2)
        leader = Scripted(codes={0: 1}, edges={LATEST: latest})
        fetcher = ReplicaFetcher(
            "test",
            broker.config,
            leader,  # type: ignore[arg-type]
            broker.manager.follower_quota,
            check_delayed=lambda _: None,
            on_failed=lambda _: pytest.fail("it stopped"),
            keep_log_starts=lambda: None,
            clock_ms=broker.clock,
        )
        followed = FollowedPartition(partition, 1)
        followed.truncating = False
        fetcher.add([followed])
        with caplog.at_level(logging.WARNING):
            fetcher.run_once()
        assert partition.high_watermark.offset == min(latest, 2)
        leader.codes = {}
        fetcher.run_once()
        assert (partition.log.log_end_offset, leader.asked[-1]) == (latest, [(0, latest)])
        assert ("below the high watermark" in caplog.text) is lost
        assert leader.looked_up == [LATEST]


@pytest.mark.spec("BRK-73", "BRK-69")
def test_one_that_was_cut_goes_to_the_end_of_the_order(broker: World, fetcher_of: Make) -> None:
    others = [FollowedPartition(broker.follow(tp), 0) for tp in PARTITIONS[1:]]
    leader = Scripted(codes={0: 1}, edges={LATEST: 3}, high_watermark=0)
    fetcher = fetcher_of(leader, FollowedPartition(with_records(broker), 1), *others)
    fetcher.run_once()
    leader.codes = {}
    fetcher.run_once()
    assert [[p for p, _ in asked] for asked in leader.asked] == [[0, 1, 2], [1, 2, 0]]


@pytest.mark.spec("BRK-74", "BRK-69")
@pytest.mark.parametrize(
    ("latest", "earliest", "goes_on_at", "start"),
    [(20, 9, 9, 9), (20, 5, 5, 5), (20, 4, 4, 0), (20, 2, 4, 0), (20, 0, 4, 0), (4, 4, 4, 0), (4, 0, 4, 0)],
)
def test_a_leader_that_begins_later_has_it_begin_anew_there_else_it_goes_on_at_its_end(
    broker: World, fetcher_of: Make, latest: int, earliest: int, goes_on_at: int, start: int
) -> None:
    partition = with_records(broker)
    others = [FollowedPartition(broker.follow(tp), 0) for tp in PARTITIONS[1:]]
    leader = Scripted(codes={0: 1}, edges={LATEST: latest, EARLIEST: earliest}, high_watermark=0)
    fetcher = fetcher_of(leader, FollowedPartition(partition, 1), *others)
    fetcher.run_once()
    assert leader.looked_up == [LATEST, EARLIEST]
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (start, goes_on_at)
    leader.codes = {}
    fetcher.run_once()
    assert leader.asked[-1] == [(1, 0), (2, 0), (0, goes_on_at)], "with its new offset it goes to the end"


@pytest.mark.spec("BRK-74", "BRK-73")
@pytest.mark.parametrize("edges", [{LATEST: None}, {LATEST: 20, EARLIEST: None}])
def test_a_look_up_that_fails_delays_the_partition(
    broker: World, fetcher_of: Make, failed: list[TopicPartition], edges: dict[int, int | None]
) -> None:
    partition = with_records(broker)
    leader = Scripted(codes={0: 1}, edges=edges)
    fetcher = fetcher_of(leader, FollowedPartition(partition, 1))
    fetcher.run_once()
    rounds_until_asked(fetcher, broker, lambda: len(leader.asked) == 2)
    assert (partition.log.log_start_offset, partition.log.log_end_offset, failed) == (0, 4, [])


# --- turns and waits -----------------------------------------------------------------------------------------------


@pytest.mark.spec("BRK-76")
def test_a_throttled_replica_whose_lag_is_not_known_waits(broker: World, fetcher_of: Make) -> None:
    leader = Scripted(high_watermark=0)
    followed = followers(broker)
    broker.logs.update_topic_config("t", {"follower.replication.throttled.replicas": "0:1"})
    broker.manager.on_broker_config({"follower.replication.throttled.rate": "1"})
    broker.manager.follower_quota.count(followed[0].partition, 1 << 20)
    fetcher = fetcher_of(leader, *followed)
    fetcher.run_once()
    assert leader.asked == [[(1, 0), (2, 0)]]
    broker.clock.pass_ms(60_000)
    fetcher.run_once()
    assert fetcher.lags()[PARTITIONS[0]] == 0
    broker.manager.follower_quota.count(followed[0].partition, 1 << 20)
    fetcher.run_once()
    assert sorted(leader.asked[-1]) == [(0, 0), (1, 0), (2, 0)], "without lag it is not held back"


@pytest.mark.spec("BRK-68")
def test_with_nothing_to_ask_it_waits_for_the_backoff_or_until_a_partition_is_added(
    broker: World, fetcher_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float | None] = []
    waiting = threading.Event()

    class Noted(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout)
            waiting.set()
            return super().wait(600)  # it does not end by itself here

    fetched = threading.Event()
    leader = Scripted()
    fetcher = fetcher_of(leader)
    monkeypatch.setattr(fetcher, "_changed", Noted())
    leader.close = lambda: None  # type: ignore[attr-defined]
    leader.meanwhile = fetched.set
    fetcher.start()
    assert waiting.wait(60)
    assert waits[0] == BACKOFF_MS / 1000
    one = FollowedPartition(broker.follow(), 0)
    one.truncating = False
    fetcher.add([one])
    assert fetched.wait(60)
    fetcher.stop()
    fetcher.join(60_000)


# --- on the wire ---------------------------------------------------------------------------------------------------

SENT = {  # Fetch, OffsetForLeaderEpoch, ListOffsets
    "0.11.0": (5, 0, 2),
    "1.0": (5, 0, 2),
    "1.1": (7, 0, 2),
    "2.0": (8, 1, 3),
    "2.1": (10, 2, 4),
    "2.2": (10, 2, 5),
    "2.3": (11, 3, 5),
}


@pytest.mark.spec("BRK-3", "BRK-64", "BRK-65", "BRK-68", "BRK-160")
@pytest.mark.parametrize("protocol", SENT)
def test_the_three_requests_of_a_fetcher_as_they_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    came: list[tuple[int, int, str | None, Any]] = []
    connections: list[object] = []

    def noting(key: int, answer: object) -> Callable[[Any, Call], object]:
        def handle(request: Any, call: Call) -> object:
            came.append((key, call.header.api_version, call.header.client_id, request))
            return answer

        return handle

    class Counted(leader_endpoint.Connection):  # type: ignore[name-defined,misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            connections.append(self)
            super().__init__(*args, **options)

    monkeypatch.setattr(leader_endpoint, "Connection", Counted)
    answers = {
        1: FetchResponse(topics=[]),
        2: ListOffsetsResponse(topics=[]),
        23: OffsetForLeaderEpochResponse(topics=[]),
    }
    served = {key: replace(load_handlers()[key], handle=noting(key, answer)) for key, answer in answers.items()}
    given: dict[str, Any] = {
        "inter_broker_protocol_version": protocol,
        "replica_fetch_wait_max_ms": "77",
        "replica_fetch_min_bytes": "3",
        "replica_fetch_response_max_bytes": "5000",
        "replica_fetch_max_bytes": "900",
    }
    with broker_of(served, handler_context()) as client, world(tmp_path, clock=Clock(), broker_id=4, **given) as broker:
        broker.zookeeper.put_state(TP, LeaderAndIsr(4, 0, (4,), 1), 0)
        broker.leader_and_isr(role(TP, 4, 0, [4], [4, 2]))
        broker.produce(count=3)
        live = LeaderAndIsrLiveLeader(broker_id=2, host="127.0.0.1", port=1)
        broker.manager.control.shutting_down = True
        broker.leader_and_isr(role(TP, 2, 6, [2], [4, 2]), live=[live])
        partition = broker.partition()
        partition.log.advance_log_start(2)
        port = client.socket.getpeername()[1]
        endpoint = LeaderEndpoint(broker.config, 4, "broker-4-fetcher-0", "127.0.0.1", port)
        fetcher = ReplicaFetcher(
            "test",
            broker.config,
            endpoint,
            broker.manager.follower_quota,
            check_delayed=lambda _: None,
            on_failed=lambda _: None,
            keep_log_starts=lambda: None,
            clock_ms=broker.clock,
        )
        followed = FollowedPartition(partition, 6)
        followed.truncating = False
        fetcher.add([followed])
        assert fetcher.run_once()
        about_epoch = OffsetForLeaderEpochRequestPartition(partition=0, leader_epoch=0, current_leader_epoch=6)
        endpoint.epoch_ends([(TP, about_epoch)])
        with pytest.raises(LookupRefusedError):
            endpoint.log_edge(TP, 6, LATEST)
        endpoint.close()
    fetch_version, epoch_version, offsets_version = SENT[protocol]
    assert [(key, version, client_id) for key, version, client_id, _ in came] == [
        (1, fetch_version, "broker-4-fetcher-0"),
        (23, epoch_version, "broker-4-fetcher-0"),
        (2, offsets_version, "broker-4-fetcher-0"),
    ]
    assert len(connections) == 1
    fetch, epochs, offsets = (request for *_, request in came)
    assert isinstance(fetch, FetchRequest)
    assert (fetch.replica_id, fetch.max_wait_ms, fetch.min_bytes, fetch.max_bytes) == (4, 77, 3, 5000)
    assert (fetch.isolation_level, fetch.rack_id, fetch.forgotten_topics) == (0, "", [])
    assert (fetch.session_id, fetch.session_epoch) == (0, 0 if fetch_version >= 7 else -1), "one is opened from 7 on"
    ((asked,),) = ([*topic.partitions] for topic in fetch.topics)
    assert ([topic.topic for topic in fetch.topics], asked.partition) == (["t"], 0)
    assert (asked.fetch_offset, asked.log_start_offset, asked.partition_max_bytes) == (3, 2, 900)
    assert asked.current_leader_epoch == (6 if fetch_version >= 9 else -1)
    assert isinstance(epochs, OffsetForLeaderEpochRequest) and isinstance(offsets, ListOffsetsRequest)
    assert epochs.topics[0].partitions[0].current_leader_epoch == (6 if epoch_version >= 2 else -1)
    assert offsets.replica_id == 4
    assert offsets.topics[0].partitions[0].current_leader_epoch == (6 if offsets_version >= 4 else -1)


@pytest.mark.spec("BRK-64", "BRK-65")
def test_each_leader_and_number_has_one_thread_and_one_connection_for_all_its_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[str, str, int]] = []
    added: dict[str, set[TopicPartition]] = {}

    class Noted(LeaderEndpoint):
        def __init__(self, config: Any, broker_id: int, client_id: str, host: str, port: int) -> None:
            made.append((client_id, host, port))
            super().__init__(config, broker_id, client_id, host, port)

    class NotedFetcher(ReplicaFetcher):
        def __init__(self, name: str, *args: Any, **options: Any) -> None:
            self.of_partitions = added.setdefault(name, set())
            super().__init__(name, *args, **options)

        def add(self, partitions: Iterable[FollowedPartition]) -> None:
            given = list(partitions)
            self.of_partitions.update(f.partition.tp for f in given)
            super().add(given)

    monkeypatch.setattr(fetcher_manager, "LeaderEndpoint", Noted)
    monkeypatch.setattr(fetcher_manager, "ReplicaFetcher", NotedFetcher)
    parts = [TopicPartition(topic, p) for topic in ("t", "topic") for p in range(10)]
    live = [LeaderAndIsrLiveLeader(broker_id=leader, host="127.0.0.1", port=leader) for leader in (2, 3)]
    with world(tmp_path, clock=Clock(), num_replica_fetchers="3") as broker:

        def leader_of(tp: TopicPartition) -> int:
            return 2 + (tp.partition >= 5)

        before = set(threading.enumerate())
        for epoch in (0, 1):
            roles = [role(tp, leader_of(tp), epoch, [leader_of(tp)], [leader_of(tp), 1]) for tp in parts]
            broker.leader_and_isr(*roles, live=live)
        expected: dict[str, set[TopicPartition]] = {}
        for tp in parts:
            expected.setdefault(f"ReplicaFetcherThread-{fetcher_number(tp, 3)}-{leader_of(tp)}", set()).add(tp)
        assert added == expected and len(expected) == 6
        names = [thread.name for thread in threading.enumerate() if thread not in before]
        assert sorted(n for n in names if "Fetcher" in n) == sorted(expected)
        assert sorted(made) == sorted(
            (f"broker-1-fetcher-{number}", "127.0.0.1", leader) for number in range(3) for leader in (2, 3)
        )
        moved = [LeaderAndIsrLiveLeader(broker_id=2, host="127.0.0.2", port=2)]
        broker.leader_and_isr(role(parts[0], 2, 2, [2], [2, 1]), live=moved)
        number = fetcher_number(parts[0], 3)
        assert made[6:] == [(f"broker-1-fetcher-{number}", "127.0.0.2", 2)], "replaced when the host changed"

        def running() -> list[str]:
            return sorted(t.name for t in threading.enumerate() if t not in before and "Fetcher" in t.name)

        eventually(lambda: running() == sorted(expected), "the one that was replaced to end")
