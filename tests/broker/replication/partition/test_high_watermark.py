"""Positions of followers, and the high watermark that follows from them."""

import copy
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatool.broker.replication.partition.partition import Partition
from kafkatool.broker.replication.partition.replica import NEVER, LastSessionFetch, RemoteReplica
from kafkatool.broker.storage.log.log_offset import LogOffset
from kafkatool.core.errors import StorageError
from tests.broker.replication.world import CONSUMER, TP, Clock, World, follower, role, world
from tests.broker.storage.batch_builders import batch


@pytest.mark.spec("BRK-35", "BRK-36", "BRK-38")
def test_the_leader_has_positions_of_the_other_replicas_only(broker: World) -> None:
    partition = broker.lead(isr=(1, 2), replicas=(3, 1, 2))
    assert sorted(partition.remote) == [2, 3]
    assert {r.end.offset for r in partition.remote.values()} == {-1}
    with pytest.raises(AttributeError):
        partition.log.log_end_offset = 5  # type: ignore[misc]
    with pytest.raises(AttributeError):
        partition.remote[2].high_watermark = LogOffset(1)  # type: ignore[attr-defined]
    assert not hasattr(partition.remote[2], "high_watermark") and not hasattr(partition.remote[2], "log")
    broker.produce(count=3)
    assert partition.log.log_end_offset == 3 and partition.remote[2].end.offset == -1
    broker.fetch(2, follower(2), log_start=1)
    assert (partition.remote[2].end.offset, partition.remote[2].log_start_offset) == (2, 1)


@pytest.mark.spec("BRK-36", "BRK-38", "BRK-39")
def test_caught_up_is_when_it_had_the_leaders_end_of_this_or_of_the_previous_fetch() -> None:
    replica = RemoteReplica(2)
    replica.record_fetch(LogOffset(10), 10, 3, 1000)
    assert (replica.caught_up_ms, replica.log_start_offset) == (1000, 3)
    replica.record_fetch(LogOffset(10), 20, 3, 1100)
    assert replica.caught_up_ms == 1000, "has what the leader had at 1000, not at 1100"
    replica.record_fetch(LogOffset(20), 30, 3, 1200)
    assert replica.caught_up_ms == 1100
    replica.record_fetch(LogOffset(25), 40, 3, 1300)
    assert replica.caught_up_ms == 1100
    assert (replica.end, replica.leader_end_at_last_fetch, replica.last_fetch_ms) == (LogOffset(25), 40, 1300)
    replica.record_fetch(LogOffset(50), 50, 3, 900)
    assert (replica.caught_up_ms, replica.last_fetch_ms) == (1100, 900), "it never goes back"
    replica.record_fetch(LogOffset(50), 60, 3, 2000)
    assert replica.caught_up_ms == 1100, "the fetch before was at 900"
    replica.record_fetch(LogOffset(10), 60, 3, 3000)
    assert replica.end == LogOffset(10), "its end may go back"


@pytest.mark.spec("BRK-39")
def test_the_leaders_end_that_counts_is_that_of_before_the_read(broker: World, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = broker.lead(isr=(1, 2))
    broker.produce()
    broker.produce()
    read = partition.log.read

    def appended_to_meanwhile(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        broker.produce(count=3)
        return read(*args, **options)

    monkeypatch.setattr(partition.log, "read", appended_to_meanwhile)
    (answer,) = broker.fetch(0, follower(2), max_bytes=10)  # too little for what is kept in memory
    assert partition.log.log_end_offset == 5
    assert (partition.remote[2].leader_end_at_last_fetch, answer.leader_end) == (2, 2)


@pytest.mark.spec("BRK-40")
def test_a_failed_read_says_nothing_about_the_follower(broker: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> Any:
        raise StorageError("disk")

    partition = broker.lead(isr=(1, 2))
    broker.produce(count=3)
    broker.fetch(2, follower(2), log_start=1)
    broker.clock.pass_ms(500)
    before = copy.copy(partition.remote[2])
    assert broker.fetch(99, follower(2), log_start=5)[0].error == 1
    assert broker.fetch(3, follower(2), epoch=7, log_start=5)[0].error == 75
    with monkeypatch.context() as failing:
        failing.setattr(partition.log, "read", fails)
        assert broker.fetch(0, follower(2), log_start=5, max_bytes=10)[0].error == 56
    assert all(getattr(partition.remote[2], f.name) == getattr(before, f.name) for f in fields(RemoteReplica))
    broker.fetch(3, follower(2), log_start=2)
    changed = {f.name for f in fields(RemoteReplica) if getattr(partition.remote[2], f.name) != getattr(before, f.name)}
    assert changed == {"end", "log_start_offset", "caught_up_ms", "last_fetch_ms"}


@pytest.mark.spec("BRK-41", "BRK-80")
def test_the_checkpointed_high_watermark_is_taken_up_within_the_log(tmp_path: Path) -> None:
    with world(tmp_path, clock=Clock()) as broker:
        broker.lead()
        broker.produce(count=4)
        assert broker.partition().high_watermark.offset == 4
    with world(tmp_path, clock=Clock()) as broker:
        assert (tmp_path / "logs/replication-offset-checkpoint").read_text() == "0\n1\nt 0 4\n"
        assert broker.follow(epoch=1).high_watermark.offset == 4
    (tmp_path / "logs/replication-offset-checkpoint").write_text("0\n1\nt 0 99\n")
    with world(tmp_path, clock=Clock()) as broker:
        assert broker.follow(epoch=1).high_watermark.offset == 4, "not above the log's end"


@pytest.mark.spec("BRK-46", "BRK-45")
def test_after_a_change_of_leader_it_stands_until_every_in_sync_replica_has_fetched(broker: World) -> None:
    partition = broker.lead(isr=(1, 2, 3))
    broker.produce(count=2)
    assert partition.high_watermark.offset == 0
    broker.fetch(2, follower(2))
    assert partition.high_watermark.offset == 0
    broker.fetch(2, follower(3))
    assert partition.high_watermark == LogOffset(2, 0, partition.log.end.position)
    broker.produce(count=3)
    broker.fetch(5, follower(2))
    broker.fetch(3, follower(3))
    broker.follow(epoch=1)
    broker.lead(epoch=2, isr=(1, 2, 3))
    assert partition.high_watermark.offset == 3, "what they had in an earlier term does not count"
    broker.produce(count=1)
    for end in (5, 6):
        broker.fetch(end, follower(2))
        assert partition.high_watermark.offset == 3, "3 has not fetched in this term"
    broker.fetch(5, follower(3))
    assert partition.high_watermark.offset == 5


@pytest.mark.spec("BRK-56")
def test_a_replica_about_to_join_holds_it_back(broker: World) -> None:
    partition = broker.lead(isr=(1, 2), replicas=(1, 2, 3))
    broker.produce(count=2)
    broker.fetch(2, follower(3))  # at the end: caught up, and proposed for the ISR, which is not written yet
    broker.fetch(2, follower(2))
    assert partition.high_watermark.offset == 2
    broker.produce(count=1)
    broker.fetch(3, follower(2))
    assert partition.isr == (1, 2)
    assert partition.high_watermark.offset == 2, "3 is about to join and has not got the record"
    broker.fetch(3, follower(3))
    assert partition.high_watermark.offset == 3


@pytest.mark.spec("BRK-56", "BRK-57")
def test_a_replica_outside_the_isr_that_is_behind_does_not_hold_it_back(broker: World) -> None:
    partition = broker.lead(isr=(1, 2), replicas=(1, 2, 3))
    broker.produce(count=2)
    broker.fetch(2, follower(2))
    broker.produce(count=1)
    broker.fetch(0, follower(3))
    broker.fetch(3, follower(2))
    assert partition.high_watermark.offset == 3


@pytest.mark.spec("BRK-56")
@pytest.mark.parametrize("appended", ["before", "after"])
def test_a_replica_outside_the_isr_does_not_hold_it_back_once_its_broker_is_gone(broker: World, appended: str) -> None:
    """It stopped: taken out of the ISR, it fetched once more in its session, for other partitions."""
    broker.know(TP, brokers={1: 9001, 2: 9002, 3: 9003})
    partition = broker.lead(isr=(1, 2, 3))
    broker.produce(count=2)
    for replica in (2, 3):
        broker.fetch(2, follower(replica))
    broker.lead(epoch=1, isr=(1, 2), replicas=(1, 2, 3))
    broker.clock.pass_ms(1)
    partition.remote[3].session_fetch = LastSessionFetch(broker.clock())
    if appended == "before":
        produced = broker.produce(acks=-1)
        broker.fetch(3, follower(2))
        assert (partition.high_watermark.offset, produced) == (2, []), "3 may be about to join"
    broker.know(TP, brokers={1: 9001, 2: 9002})
    if appended == "after":
        produced = broker.produce(acks=-1)
        broker.fetch(3, follower(2))
    assert partition.high_watermark.offset == 3 and produced[0].error == 0


@pytest.mark.spec("BRK-56")
def test_a_replica_in_the_isr_holds_it_back_though_its_broker_is_gone(broker: World) -> None:
    broker.know(TP, brokers={1: 9001, 2: 9002})
    partition = broker.lead(isr=(1, 2))
    broker.produce(acks=-1)
    broker.know(TP, brokers={1: 9001})
    assert partition.high_watermark.offset == 0, "until the controller takes it out"


@pytest.mark.spec("BRK-57")
def test_it_never_goes_down_and_compares_as_64_bit(broker: World) -> None:
    partition = broker.lead(isr=(1, 2))
    broker.produce(count=5)
    broker.fetch(5, follower(2))
    assert partition.high_watermark.offset == 5
    broker.fetch(3, follower(2))
    assert partition.high_watermark.offset == 5
    far = 3_000_000_000
    partition.log.truncate_fully_and_start_at(far)  # offsets further apart than 32 bits tell
    assert partition.record_fetch(2, LogOffset(4, 0, 0), far, 0, read_in=0) == (False, None)
    assert partition.record_fetch(2, LogOffset(far, far, 0), far, 0, read_in=0) == (True, None)
    assert partition.high_watermark.offset == far


@pytest.mark.spec("BRK-57")
def test_at_the_same_offset_it_moves_to_a_newer_segment(broker: World) -> None:
    partition = broker.lead(isr=(1, 2))
    broker.produce(count=5)
    before = LogOffset(5, 0, partition.log.end.position)
    assert partition.record_fetch(2, before, 5, 0, read_in=0) == (True, None)
    assert partition.record_fetch(2, before, 5, 0, read_in=0) == (False, None)
    assert partition.high_watermark == before
    broker.logs.update_topic_config("t", {"retention.ms": "1"})
    partition.log.apply_retention()  # all is old: an empty segment is left
    assert partition.log.end == LogOffset(5, 5, 0)
    assert partition.record_fetch(2, partition.log.end, 5, 0, read_in=0) == (True, None)
    assert partition.high_watermark == LogOffset(5, 5, 0)
    assert partition.record_fetch(2, partition.log.end, 5, 0, read_in=0) == (False, None)


@pytest.mark.spec("BRK-57", "BRK-41")
@settings(deadline=None, max_examples=30)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("produce"), st.integers(1, 5)),
            st.tuples(st.just("fetch"), st.integers(0, 40)),
            st.tuples(st.just("pass_ms"), st.sampled_from((1, 4000, 11_000))),
            st.tuples(st.just("refresh"), st.integers(0, 3)),
        ),
        max_size=30,
    ),
    st.data(),
)
def test_under_one_leader_it_never_goes_down(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[str, int]], data: st.DataObject
) -> None:
    with world(tmp_path_factory.mktemp("history"), clock=Clock()) as broker:
        partition = broker.lead(isr=(1, 2, 3))
        last = epoch = 0
        for step, argument in history:
            if step == "produce":
                broker.produce(count=argument)
            elif step == "fetch":
                offset = min(argument, partition.log.log_end_offset)
                broker.fetch(offset, follower(data.draw(st.sampled_from((2, 3)))))
                broker.scheduler.run()
            elif step == "pass_ms":
                broker.clock.pass_ms(argument)
                broker.manager.shrink_isrs()
            else:
                epoch += 1
                broker.lead(epoch=epoch, isr=(1, 2, 3)[: max(1, argument)], replicas=(1, 2, 3))
            assert last <= partition.high_watermark.offset <= partition.log.log_end_offset
            last = partition.high_watermark.offset


@pytest.mark.spec("BRK-41")
@pytest.mark.parametrize(("checkpointed", "taken_up"), [(-3, 0), (0, 0), (2, 2), (4, 4), (5, 4)])
def test_the_first_one_is_neither_negative_nor_above_the_log(broker: World, checkpointed: int, taken_up: int) -> None:
    broker.lead()
    broker.produce(count=4)
    log = broker.partition().log
    made = Partition(TP, 1, log, lag_time_max_ms=1, clock_ms=broker.clock, high_watermark=checkpointed)
    assert made.high_watermark.offset == taken_up


@pytest.mark.spec("BRK-37")
def test_a_followers_has_no_place_in_the_log(broker: World) -> None:
    partition = broker.follow()
    end = partition.append_as_follower(
        memoryview(batch(3, epoch=0)), 0, fetched_at=0, high_watermark=2, log_start_offset=0
    )
    assert (end, partition.high_watermark) == (3, LogOffset(2, None, None))
    assert partition.log.end.segment_base == 0 and partition.log.end.position == len(batch(3))


@pytest.mark.spec("BRK-37", "BRK-45")
def test_a_followers_high_watermark_gets_its_place_when_it_becomes_leader(broker: World) -> None:
    partition = broker.lead()
    broker.produce(count=3)
    broker.produce(count=3)
    broker.follow(epoch=1)
    partition.high_watermark = LogOffset(3)
    broker.lead(epoch=2, isr=(1, 2))
    half = (partition.log.end.position or 0) // 2
    assert partition.high_watermark == LogOffset(3, 0, half)
    broker.fetch(3, follower(2))
    assert partition.remote[2].end == LogOffset(3, 0, half), "of what is fetched as well"


@pytest.mark.spec("BRK-46")
@pytest.mark.parametrize(("before", "after"), [(7, 40), (39, 40), (40, 40), (43, 43), (44, 40)])
def test_one_outside_the_log_becomes_the_log_start(broker: World, before: int, after: int) -> None:
    partition = broker.follow()
    partition.log.truncate_fully_and_start_at(40)
    partition.log.append_as_follower(memoryview(batch(3, base_offset=40)))
    partition.high_watermark = LogOffset(before)
    broker.lead(epoch=1, isr=(1, 2))
    assert (partition.high_watermark.offset, partition.high_watermark.segment_base) == (after, 40)


@pytest.mark.spec("BRK-45", "BRK-59")
def test_a_new_leader_notes_where_its_epoch_begins_even_if_it_writes_nothing(broker: World) -> None:
    partition = broker.lead(epoch=3)
    broker.produce(count=4)
    broker.lead(epoch=5)
    assert partition.log.leader_epochs.entries == [(3, 0), (5, 4)]
    assert partition.epoch_start == 4


@pytest.mark.spec("BRK-45", "BRK-42")
def test_a_new_leader_knows_the_decision_and_nothing_of_the_positions_of_others(broker: World) -> None:
    """Of the steps of becoming leader: what is stored, and what is forgotten."""
    partition = broker.lead(isr=(1, 2, 5), replicas=(1, 2, 3, 5))
    broker.produce(count=2)
    for replica in (2, 3, 5):
        broker.fetch(1, follower(replica), log_start=1)
    partition.make_follower(role(TP, 2, 1, [2], [1, 2, 3, 5]))
    broker.clock.pass_ms(70)
    state = role(TP, 1, 2, [2, 1, 9], [4, 2, 1, 5], 7, controller_epoch=6)
    assert partition.make_leader(state)[0], "a new leader"
    assert (partition.leader_id, partition.leader_epoch, partition.controller_epoch) == (1, 2, 6)
    assert (partition.assigned, partition.isr, partition.in_sync.version) == ((4, 2, 1, 5), (2, 1, 9), 7)
    assert partition.epoch_start == 2
    assert sorted(partition.remote) == [2, 4, 5], "what the assignment lacks is dropped, what it names is made"
    for broker_id, caught_up_ms in [(2, broker.clock.now_ms), (4, NEVER), (5, NEVER)]:
        known = [getattr(partition.remote[broker_id], f.name) for f in fields(RemoteReplica)]
        assert known == [broker_id, LogOffset(-1), -1, caught_up_ms, NEVER, -1, None]


@pytest.mark.spec("BRK-45")
def test_becoming_leader_has_its_order(broker: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """No append and no reader finds it leading before epoch, in-sync set and the mark's place are there."""
    broker.lead()
    broker.produce(count=4)
    partition = broker.follow(epoch=1)
    partition.high_watermark = LogOffset(2)
    seen: list[tuple[str, bool, int, int | None]] = []
    noted: list[tuple[int, int]] = []  # the newest epoch known when the first step is taken
    in_sync: list[tuple[tuple[int, ...], int]] = []  # and the ISR and version when epoch and leading begin

    class Watched(Partition):
        def __setattr__(self, name: str, value: object) -> None:
            object.__setattr__(self, name, value)
            located = self.high_watermark.segment_base
            if not seen:
                noted.append(self.log.leader_epochs.entries[-1])
            if name in ("epoch_start", "leader_log"):
                in_sync.append((self.isr, self.in_sync.version))
            seen.append((name, self.leader_log is not None, self.epoch_start, located))

    def begin_term(replica: RemoteReplica, *_: object, **__: object) -> None:
        seen.append(("others_told", partition.leader_log is not None, partition.epoch_start, None))

    def forget_positions(replica: RemoteReplica) -> None:
        seen.append(("others_forgotten", partition.leader_log is not None, partition.epoch_start, None))

    monkeypatch.setattr(RemoteReplica, "begin_term", begin_term)
    monkeypatch.setattr(RemoteReplica, "forget_positions", forget_positions)
    monkeypatch.setattr(partition, "__class__", Watched)
    partition.make_leader(role(TP, 1, 2, [1], [1, 2], 7))
    names = [name for name, *_ in seen]
    wanted = [
        *("controller_epoch", "remote", "leader_epoch", "epoch_start", "others_told", "high_watermark"),
        *("leader_log", "others_forgotten", "high_watermark"),
    ]
    assert [name for name in names if name in wanted] == wanted
    assert next(step for step in seen if step[1]) == ("leader_log", True, 4, 0)
    assert (noted, in_sync) == ([(2, 4)], [((1,), 7)] * 2), "noted before all of it, in sync before it leads"
    assert names.index("leader_log") < len(names) - 1 and partition.high_watermark.offset == 4, "then it is raised"


@pytest.mark.spec("BRK-45", "BRK-90", "BRK-100")
def test_what_waits_goes_on_when_a_decision_raises_it(broker: World) -> None:
    broker.lead(isr=(1, 2))
    produced = broker.produce(acks=-1)
    consumed = broker.fetch(0, CONSUMER, max_wait_ms=60_000)
    assert (produced, consumed) == ([], [])
    broker.lead(epoch=1, isr=(1,), replicas=(1, 2))
    assert produced[0].error == 0 and consumed[0].size_bytes > 0


@pytest.mark.spec("BRK-28", "BRK-45")
def test_refreshing_a_leader_keeps_what_its_followers_reached(broker: World) -> None:
    partition = broker.lead(isr=(1, 2, 3))
    broker.produce(count=2)
    broker.fetch(2, follower(2))
    broker.clock.pass_ms(70)
    broker.produce(count=3)
    broker.lead(epoch=1, isr=(1, 2), replicas=(1, 2, 4), version=3)
    assert sorted(partition.remote) == [2, 4]
    assert partition.remote[2].end.offset == 2
    assert partition.remote[2].caught_up_ms == broker.clock.now_ms
    assert partition.remote[4].caught_up_ms == NEVER
    assert (partition.remote[4].leader_end_at_last_fetch, partition.remote[4].last_fetch_ms) == (5, broker.clock.now_ms)
    assert (partition.remote[2].leader_end_at_last_fetch, partition.remote[2].last_fetch_ms) == (5, broker.clock.now_ms)
    assert partition.high_watermark.offset == 2, "3 holds it back no longer"
    assert (partition.in_sync.version, partition.leader_epoch) == (3, 1)
    assert not partition.make_leader(role(TP, 1, 2, [1, 2], [1, 2, 4]))[0], "it is no new leader"


@pytest.mark.spec("BRK-49", "BRK-99")
def test_the_leader_alone_in_sync_commits_with_its_own_append(broker: World) -> None:
    broker.lead(isr=(1,), replicas=(1, 2))
    waiting = broker.fetch(0, CONSUMER, max_wait_ms=60_000)
    assert waiting == []
    assert broker.produce(acks=-1)[0].error == 0
    assert waiting[0].size_bytes > 0


@pytest.mark.spec("BRK-49", "BRK-56")
def test_an_append_that_raises_it_answers_every_produce_that_waited_for_that(broker: World) -> None:
    partition = broker.lead(isr=(1,), replicas=(1, 2))
    broker.produce()
    broker.zookeeper.nodes.clear()  # so that 2, which is caught up, does not get into the ISR
    broker.fetch(1, follower(2))
    broker.scheduler.run()
    assert partition.isr == (1,)
    parked = broker.produce(acks=-1)
    broker.clock.pass_ms(10_000)
    broker.produce()
    assert (parked, partition.high_watermark.offset) == ([], 1), "caught up no longer ago than replica.lag.time.max.ms"
    broker.clock.pass_ms(1)
    broker.produce()
    assert partition.high_watermark.offset == 4
    assert [result.error for result in parked] == [0]


@pytest.mark.spec("BRK-45", "BRK-56")
def test_a_leader_that_missed_an_epoch_waits_for_new_fetches(broker: World) -> None:
    """Another may have led in it, and a follower cut its log: where it was before tells nothing."""
    partition = broker.lead(isr=(1, 2, 3))
    broker.produce(count=10)
    broker.fetch(10, follower(3))
    broker.fetch(5, follower(2))
    assert partition.high_watermark.offset == 5
    parked = broker.produce(acks=-1)
    broker.lead(epoch=1, isr=(1, 3), replicas=(1, 2, 3), version=1)
    assert partition.high_watermark.offset == 10, "one after the other: it has led all the time"
    broker.lead(epoch=3, isr=(1, 3), replicas=(1, 2, 3), version=2)
    assert partition.lacks_a_fetch and [result.error for result in parked] == [6]
    broker.produce()
    assert partition.high_watermark.offset == 10
    broker.fetch(7, follower(3), epoch=3)
    assert partition.high_watermark.offset == 10, "it has been cut"
    broker.fetch(12, follower(3), epoch=3)
    assert partition.high_watermark.offset == 12


@pytest.mark.spec("BRK-56")
def test_it_is_the_lowest_end_of_all_that_count(broker: World) -> None:
    partition = broker.lead(isr=(1, 2, 3), replicas=(1, 2, 3, 4))
    for _ in range(9):
        broker.produce()
    for replica, end, lowest in [(2, 8, 0), (3, 6, 6), (2, 9, 6), (3, 7, 7), (3, 9, 9)]:  # 4 was never in sync
        broker.fetch(end, follower(replica))
        assert partition.high_watermark.offset == lowest


@pytest.mark.spec("BRK-58")
def test_what_counts_as_acknowledged_and_with_which_code(tmp_path: Path) -> None:
    with world(tmp_path, clock=Clock(), min_insync_replicas="2") as broker:
        partition = broker.lead(isr=(1, 2), replicas=(1, 2))
        broker.produce(count=3)
        broker.fetch(2, follower(2))
        assert [partition.acknowledged(offset, 0) for offset in (1, 2, 3)] == [(True, 0), (True, 0), (False, 0)]
        broker.lead(epoch=1, isr=(1,), replicas=(1, 2))
        assert [partition.acknowledged(offset, 0) for offset in (2, 3, 4)] == [(True, 20), (True, 20), (False, 0)]
        broker.follow(epoch=2)
        assert [partition.acknowledged(offset, 0) for offset in (0, 2, 4)] == [(False, 6)] * 3
