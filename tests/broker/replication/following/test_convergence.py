"""Two real logs through random histories of leaders: whoever follows in the end has the leader's bytes (KIP-101, 279)."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafkatool.broker.replication.following.fetch_state import FollowedPartition
from kafkatool.broker.replication.following.fetcher import ReplicaFetcher
from kafkatool.broker.replication.following.follower_session import FetchQuestion
from kafkatool.broker.replication.partition.partition import Partition
from kafkatool.broker.replication.partition.partition_reads import Reader, find_epoch_end, find_offset, read_partition
from kafkatool.broker.replication.partition.replication_quota import RateWindow, ReplicationQuota
from kafkatool.broker.storage.log.leader_epochs import LeaderEpochCache
from kafkatool.broker.storage.log.log import Log
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.codec.file_region import FileRegion
from kafkatool.core.protocol.messages.fetch import FetchResponse, FetchResponsePartition, FetchResponseTopic
from kafkatool.core.protocol.messages.list_offsets import ListOffsetsRequestPartition
from kafkatool.core.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochResponsePartition,
)
from kafkatool.core.protocol.records.batches import iter_batches
from tests.broker.replication.world import TP, Clock, role
from tests.broker.storage.batch_builders import batch
from tests.broker.storage.logs import broker_config, content, make_log

_SMALL: dict[str, Any] = {"segment_bytes": "300", "index_interval_bytes": "100", "retention_ms": "-1"}
_BOTH = (1, 2)


class Leader:
    """The leader's answers, given in the same thread; counts the questions for epochs."""

    knows_sessions = False
    knows_epochs = True

    def __init__(self, partition: Partition, follower_id: int) -> None:
        self.partition = partition
        self.questions = 0
        self._reader = Reader(follower_id)

    def epoch_ends(
        self, asked: Iterable[tuple[TopicPartition, OffsetForLeaderEpochRequestPartition]]
    ) -> dict[TopicPartition, OffsetForLeaderEpochResponsePartition]:
        answers = {}
        for tp, wanted in asked:
            self.questions += 1
            found = find_epoch_end(self.partition, wanted)
            answers[tp] = OffsetForLeaderEpochResponsePartition(
                error_code=found.error, partition=0, leader_epoch=found.leader_epoch, end_offset=found.offset
            )
        return answers

    def fetch(self, question: FetchQuestion) -> FetchResponse:
        (asked,) = question.wanted[TP.topic]
        read = read_partition(self.partition, asked, self._reader, 400, min_one_batch=True)
        if read.start is not None:
            self.partition.record_fetch(
                *(self._reader.replica_id, read.start, read.leader_end, asked.log_start_offset),
                read_in=read.leader_epoch,
            )
        records = read.records.read() if isinstance(read.records, FileRegion) else read.records
        answer = FetchResponsePartition(
            partition=0,
            error_code=read.error,
            high_watermark=read.high_watermark,
            log_start_offset=read.log_start_offset,
            records=memoryview(records),
        )
        return FetchResponse(topics=[FetchResponseTopic(topic=TP.topic, partitions=[answer])])

    def log_edge(self, partition: TopicPartition, leader_epoch: int, timestamp: int) -> int:
        wanted = ListOffsetsRequestPartition(partition=0, current_leader_epoch=leader_epoch, timestamp=timestamp)
        found = find_offset(self.partition, wanted, self._reader, 5)
        assert not found.error
        return found.offset

    def disconnect(self) -> None:
        """Nothing is held."""


class Pair:
    """Brokers 1 and 2 with a replica each; the controller is the test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = Clock()
        self.epoch = -1
        self.leader = 1
        self.replicas = {broker: self._opened(broker) for broker in _BOTH}
        self.failed: list[TopicPartition] = []

    def _opened(
        self, broker: int, *, recovery_point: int = 0, log_start: int = 0, high_watermark: int = 0
    ) -> Partition:
        log = make_log(
            self.directory / str(broker), recovery_point=recovery_point, log_start_offset=log_start, **_SMALL
        )
        return Partition(TP, broker, log, lag_time_max_ms=1e9, clock_ms=self.clock, high_watermark=high_watermark)

    def lead(self, broker: int) -> None:
        """Elect it, in sync alone: as after an unclean election, too."""
        self.leader, self.epoch = broker, self.epoch + 1
        self.replicas[broker].make_leader(role(TP, broker, self.epoch, [broker], _BOTH))

    def append(self, count: int) -> None:
        """Append a batch to the leader's log; no two batches of a history are the same."""
        end = self.replicas[self.leader].log.log_end_offset
        sent = batch(count, value=f"{self.epoch}/{end}".encode())
        self.replicas[self.leader].append_as_leader(sent)

    def follow(self, rounds: int, rest_ms: float = 1001) -> Leader:
        """Have the other follow for so many rounds; then it is cut off."""
        follower = self.replicas[3 - self.leader]
        follower.make_follower(role(TP, self.leader, self.epoch, [self.leader], _BOTH))
        leader = Leader(self.replicas[self.leader], follower.broker_id)
        fetcher = ReplicaFetcher(
            "test",
            broker_config(replica_fetch_backoff_ms="1000"),
            leader,  # type: ignore[arg-type]
            ReplicationQuota(follower.broker_id, lambda c: c.follower_replication_throttled_replicas, _window()),
            check_delayed=lambda _: None,
            on_failed=self.failed.append,
            keep_log_starts=lambda: None,
            clock_ms=self.clock,
        )
        fetcher.add([FollowedPartition(follower, self.epoch)])
        for _ in range(rounds):
            fetcher.run_once()
            self.clock.pass_ms(rest_ms)
        return leader

    def kill(self, broker: int) -> None:
        """Kill the process; it comes back with what its checkpoints and the page cache hold. A leader is deposed."""
        log = self.replicas[broker].log
        log.abandon()
        self.replicas[broker] = self._opened(
            broker,
            recovery_point=log.state.recovery_point,
            log_start=log.log_start_offset,
            high_watermark=log.high_watermark,
        )
        if broker == self.leader:
            self.lead(3 - broker if self.epoch % 2 else broker)

    def delete_records(self, part: float) -> None:
        """Raise the leader's log start, to where a batch begins: inside one, Kafka's epochs cannot tell logs apart."""
        log = self.replicas[self.leader].log
        bases = [header.base_offset for segment in log.segments for _, header in segment.headers()]
        log.advance_log_start([*bases, log.log_end_offset][int(len(bases) * part)])
        log.apply_retention()


def _window() -> RateWindow:
    return RateWindow(11, 1000, Clock())


_STEPS = st.one_of(
    st.tuples(st.just("lead"), st.sampled_from(_BOTH)),
    st.tuples(st.just("lead"), st.sampled_from(_BOTH)),
    st.tuples(st.just("append"), st.integers(1, 4)),
    st.tuples(st.just("append"), st.integers(1, 4)),
    st.tuples(st.just("follow"), st.integers(1, 4)),
    st.tuples(st.just("follow"), st.integers(1, 4)),
    st.tuples(st.just("kill"), st.sampled_from(_BOTH)),
    st.tuples(st.just("delete_records"), st.sampled_from((0.3, 0.8))),
    st.tuples(st.just("flush"), st.sampled_from(_BOTH)),
)


@pytest.mark.spec("BRK-66", "BRK-59", "BRK-60", "BRK-142")
@settings(deadline=None, max_examples=150)
@given(st.lists(_STEPS, max_size=25), st.sampled_from(_BOTH))
@example([("append", 2), ("follow", 3), ("lead", 1), ("append", 1), ("lead", 2)], 1)  # 2 led without a write
@example(
    [("append", 2), ("lead", 2), *[("append", 1)] * 4, ("delete_records", 0.3)], 1
)  # cut to its start, inside a batch
def test_logs_converge_whatever_leaders_there_were(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[str, int]], last_leader: int
) -> None:
    pair = Pair(tmp_path_factory.mktemp("pair"))
    pair.lead(1)
    for step, argument in history:
        if step == "flush":
            pair.replicas[argument].log.flush()
        else:
            getattr(pair, step)(argument)
    pair.lead(last_leader)
    pair.append(1)
    leader, follower = pair.replicas[last_leader].log, pair.replicas[3 - last_leader].log
    known = len(follower.leader_epochs.entries)
    batches = leader.log_end_offset - leader.log_start_offset
    asked = pair.follow(rounds=known + batches + 5).questions  # in each a step nearer, or a batch
    assert asked <= max(1, known), "each question is about an older epoch"
    assert not pair.failed
    start = max(follower.log_start_offset, leader.log_start_offset)
    assert follower.log_end_offset == leader.log_end_offset
    assert _bytes_from(follower, start) == _bytes_from(leader, start)
    assert _epochs_from(follower, start) == _epochs_from(leader, start)


@pytest.mark.spec("BRK-66", "BRK-71")
def test_a_question_that_would_be_repeated_waits_for_the_backoff(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(tmp_path)
    pair.lead(1)
    pair.append(2)
    pair.follow(3)
    pair.lead(1)
    pair.append(1)
    pair.lead(2)
    pair.lead(1)
    monkeypatch.setattr(LeaderEpochCache, "truncate_from_end", lambda *_: None)  # whatever makes it stand still
    assert pair.follow(rounds=10, rest_ms=0).questions == 1
    assert pair.follow(rounds=3).questions == 3


def _epochs_from(log: Log, offset: int) -> list[tuple[int | None, int]]:
    later = [(epoch, start) for epoch, start in log.leader_epochs.entries if start > offset]
    return [(log.leader_epochs.epoch_at(offset), offset), *later] if offset < log.log_end_offset else []


def _bytes_from(log: Log, offset: int) -> bytes:
    data, end = b"", log.log_end_offset
    while offset < end:
        data += content(log.read(offset, 1 << 20, end, min_one_batch=True))
        *_, (_, last) = iter_batches(data)
        offset = last.next_offset
    return data
