"""The coordinator over a real log: commits, loading them again, losing the partition, joins through real timers."""

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkatool.broker.coordination.clock import CoordinatorClock
from kafkatool.broker.groups.coordinator import GroupCoordinator, OffsetToCommit
from kafkatool.broker.groups.member import JoinRequest, JoinResult, Parked, SyncResult
from kafkatool.broker.groups.owned import OwnedGroup
from kafkatool.broker.groups.records import OffsetValue
from kafkatool.broker.runtime.scheduler import Scheduler
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.storage.directories.log_manager import LogManager
from kafkatool.broker.storage.log.log import Log
from kafkatool.core.model.topic_names import OFFSETS_TOPIC
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.broker.runtime.timers import standing_still
from tests.waiting import eventually

OFFSETS_PARTITION = TopicPartition(OFFSETS_TOPIC, 0)
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class OneReplica:
    """Stands for the replica manager of a broker that leads the offsets partitions alone; ``log`` is the first's."""

    def __init__(self, *logs: Log) -> None:
        self.log = logs[0]
        self._logs = {log.partition: log for log in logs}
        self._partitions = {tp: SimpleNamespace(tp=tp, log=log, leader_epoch=0) for tp, log in self._logs.items()}
        self.refuse: ErrorCode | None = None
        self.partitions = self.appends = self

    def get(self, tp: TopicPartition) -> Any:
        return self._partitions.get(tp)

    def remove(self, tp: TopicPartition) -> None:
        """Have it no more: it is deleted, or its log dir has failed."""
        del self._partitions[tp]

    def append(
        self,
        entries: Mapping[TopicPartition, bytearray],
        *,
        acks: int,
        timeout_ms: int,
        internal: bool,
        on_done: Callable[[Mapping[TopicPartition, Any]], None],
    ) -> None:
        assert internal
        (tp,) = entries
        if self.refuse is not None:
            on_done({tp: SimpleNamespace(error=self.refuse, base_offset=-1)})
            return
        base = self._logs[tp].append_as_leader(entries[tp], 0, origin_client=False).first_offset
        on_done({tp: SimpleNamespace(error=ErrorCode.NONE, base_offset=base)})


class Stage:
    """A coordinator over ``log``; ``lead`` and ``follow`` play the LeaderAndIsr requests."""

    def __init__(self, directory: Path, partitions: int = 1, **properties: str) -> None:
        self.config = BrokerConfig.from_properties(
            {
                "zookeeper.connect": "x:1",
                "broker.id": "1",
                "log.dirs": str(directory),
                "offsets.topic.num.partitions": str(partitions),
                "group.initial.rebalance.delay.ms": "0",
                "group.min.session.timeout.ms": "10",
                **{name.replace("_", "."): value for name, value in properties.items()},
            }
        )
        directory.mkdir(exist_ok=True)
        self.scheduler = Scheduler(2, "test")
        self.logs = LogManager(self.config, lambda _: {"cleanup.policy": "compact"}, self.scheduler, "cluster")
        self.logs.load()
        self.numbers = range(partitions)
        self.replica = OneReplica(
            *(self.logs.get_or_create(TopicPartition(OFFSETS_TOPIC, n), is_new=True) for n in self.numbers)
        )
        known = {OFFSETS_TOPIC: dict.fromkeys(self.numbers)}
        self.metadata = SimpleNamespace(snapshot=SimpleNamespace(partitions=known))
        self.epoch = 0
        self.passed_ms = self.stepped_ms = 0.0  # what clocks show beyond the real ones: both of them, the wall's alone
        self.coordinator = self.make()

    def make(self) -> GroupCoordinator:
        clock = CoordinatorClock(
            lambda: time.monotonic() * 1000 + self.passed_ms,
            self.wall_ms,
        )
        replica: Any = self.replica
        metadata: Any = self.metadata
        return GroupCoordinator(self.config, replica, metadata, self.scheduler, clock=clock)

    def wall_ms(self) -> float:
        return time.time() * 1000 + self.passed_ms + self.stepped_ms

    def expire_after(self, days: float) -> None:
        """Let the time pass, in steps of a quarter of a day, with a round of expiry after each."""
        for _ in range(round(days * 4)):
            self.passed_ms += 6 * 3_600_000
            self.coordinator.expire()

    def state(self, epoch: int | None = None) -> Any:
        """Return the first partition, in a new leader epoch or in that one."""
        return self._in_epoch(0, self._next_epoch() if epoch is None else epoch)

    def states(self) -> list[Any]:
        """Return all partitions in a new leader epoch."""
        epoch = self._next_epoch()
        return [self._in_epoch(n, epoch) for n in self.numbers]

    def _next_epoch(self) -> int:
        self.epoch += 1
        return self.epoch

    def _in_epoch(self, number: int, epoch: int) -> Any:
        partition = self.replica.get(TopicPartition(OFFSETS_TOPIC, number))
        partition.leader_epoch = epoch
        return partition

    def lead(self) -> None:
        self.coordinator.on_leadership_change(self.states(), [])
        eventually(lambda: not self.coordinator.groups.partitions.loading(), "the load")

    def follow(self) -> None:
        self.coordinator.on_leadership_change([], self.states())

    def restart(self) -> None:
        """Start another coordinator with nothing but the log."""
        self.coordinator = self.make()
        self.lead()

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        group: str = "g",
        member: str = "",
        generation: int = -1,
        large: bool = False,
        metadata: str = "m",
        at_ms: float = 1,
    ) -> Mapping[TopicPartition, ErrorCode]:
        answers: list[Mapping[TopicPartition, ErrorCode]] = []
        wanted = {
            tp: OffsetToCommit(OffsetValue(o, None, metadata, int(at_ms), None), large) for tp, o in offsets.items()
        }
        self.coordinator.commit(group, member, None, generation, wanted, answers.append)
        return answers[0]

    def leave(self, member_id: str, group: str = "g") -> ErrorCode:
        outcome = self.coordinator.leave(group, [(member_id, None)])
        return outcome if isinstance(outcome, ErrorCode) else outcome[0]

    def fetch(self, group: str = "g") -> tuple[ErrorCode, dict[TopicPartition, int]]:
        fetched = self.coordinator.fetch_offsets(group, None)
        return fetched.error, {tp: value.offset for tp, value in fetched.offsets.items()}

    def close(self) -> None:
        self.coordinator.shutdown()
        self.scheduler.shutdown()
        self.logs.shutdown()


def owned_group(stage: Stage, group: str = "g") -> OwnedGroup:
    found = stage.coordinator.groups.get(group)
    assert found is not None
    return found


def join(stage: Stage, session_ms: int = 300_000, member_id: str = "", group: str = "g") -> JoinResult:
    answered = threading.Event()
    answers: list[JoinResult] = []

    def answer(result: JoinResult) -> None:
        answers.append(result)
        answered.set()

    request = JoinRequest(
        member_id, None, "client", "/h", session_ms, 60_000, "consumer", (("range", b"r"),), needs_known_id=False
    )
    stage.coordinator.join(group, request, Parked(answer, answered.set))
    assert answered.wait(60)
    return answers[0]


@pytest.mark.spec("BRK-32")
def test_only_partitions_of_the_offsets_topic_are_loaded_and_unloaded(stage: Stage) -> None:
    owned = stage.coordinator.groups.partitions
    stage.lead()
    others: list[Any] = [
        SimpleNamespace(tp=TopicPartition(t, 0), leader_epoch=99) for t in ("__transaction_state", "t")
    ]
    stage.coordinator.on_leadership_change(others, others)
    stage.coordinator.on_partitions_stopped([one.tp for one in others])
    assert not owned.loading()
    assert stage.fetch() == (ErrorCode.NONE, {})
    stage.follow()
    assert stage.fetch() == (ErrorCode.NOT_COORDINATOR, {})


@pytest.mark.spec("GRP-8", "GRP-3", "GRP-51")
def test_a_broker_that_does_not_lead_the_partition_says_so(stage: Stage) -> None:
    assert stage.fetch()[0] is ErrorCode.NOT_COORDINATOR
    assert stage.commit({A: 1}) == {A: ErrorCode.NOT_COORDINATOR}
    assert stage.coordinator.heartbeat("g", "m", None, 1) is ErrorCode.NOT_COORDINATOR
    assert stage.leave("m", "") is ErrorCode.INVALID_GROUP_ID


@pytest.mark.spec("GRP-9", "GRP-10", "GRP-13", "GRP-47", "GRP-50", "GRP-56")
def test_commits_from_outside_a_group_survive_in_the_log(stage: Stage) -> None:
    stage.lead()
    assert stage.fetch() == (ErrorCode.NONE, {}), "an unknown group has committed nothing"
    assert stage.commit({A: 1, B: 7}) == {A: ErrorCode.NONE, B: ErrorCode.NONE}
    assert stage.commit({A: 2}) == {A: ErrorCode.NONE}
    stage.restart()
    assert stage.fetch() == (ErrorCode.NONE, {A: 2, B: 7})


@pytest.mark.spec("GRP-48")
def test_too_much_metadata_refuses_that_partition_only(stage: Stage) -> None:
    stage.lead()
    assert stage.commit({A: 1}, large=True) == {A: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert stage.fetch() == (ErrorCode.NONE, {})


@pytest.mark.spec("GRP-51", "GRP-52")
def test_append_errors_become_codes_clients_know_and_change_nothing(stage: Stage) -> None:
    stage.lead()
    for appended, told in [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_FOR_PARTITION, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ]:
        stage.replica.refuse = appended
        assert stage.commit({A: 1}) == {A: told}
    assert stage.fetch() == (ErrorCode.NONE, {})


@pytest.mark.spec("GRP-15", "GRP-16", "GRP-61")
def test_a_member_goes_on_at_the_next_coordinator(stage: Stage) -> None:
    stage.lead()
    joined = join(stage)
    synced: list[SyncResult] = []
    stage.coordinator.sync(
        "g", joined.member_id, None, 1, {joined.member_id: b"mine"}, Parked(synced.append, lambda: None)
    )
    assert synced == [SyncResult(ErrorCode.NONE, b"mine")]
    assert stage.commit({A: 5}, member=joined.member_id, generation=1) == {A: ErrorCode.NONE}
    assert stage.commit({A: 6}, member=joined.member_id, generation=0) == {A: ErrorCode.ILLEGAL_GENERATION}
    assert stage.commit({A: 6}, member="x", generation=1) == {A: ErrorCode.UNKNOWN_MEMBER_ID}
    stage.follow()
    assert stage.coordinator.heartbeat("g", joined.member_id, None, 1) is ErrorCode.NOT_COORDINATOR
    assert stage.fetch()[0] is ErrorCode.NOT_COORDINATOR
    stage.restart()
    assert stage.coordinator.heartbeat("g", joined.member_id, None, 1) is ErrorCode.NONE
    assert stage.fetch() == (ErrorCode.NONE, {A: 5})
    assert stage.commit({A: 6}, member=joined.member_id, generation=1) == {A: ErrorCode.NONE}


@pytest.mark.spec("GRP-15")
def test_losing_the_partition_answers_what_is_parked(stage: Stage) -> None:
    stage.lead()
    joined = join(stage)
    answers: list[SyncResult] = []
    other = JoinRequest("", None, "c", "/h", 300_000, 60_000, "consumer", (("range", b""),), needs_known_id=False)
    told: list[JoinResult] = []
    stage.coordinator.join("g", other, Parked(told.append, lambda: None))
    assert not told, "parked until the first member comes back"
    stage.follow()
    assert [t.error for t in told] == [ErrorCode.NOT_COORDINATOR] and not answers and joined.error is ErrorCode.NONE


@pytest.mark.spec("GRP-43", "GRP-44")
def test_a_silent_member_is_removed_by_the_timer(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.lead()
    appending: list[str] = []
    append = stage.replica.append

    def noting(*args: Any, **options: Any) -> None:
        appending.append(threading.current_thread().name)
        append(*args, **options)

    monkeypatch.setattr(stage.replica, "append", noting)
    with standing_still():
        member = join(stage, session_ms=50).member_id
        stage.coordinator.sync("g", member, None, 1, {}, Parked(lambda _: None, lambda: None))
    eventually(lambda: len(appending) == 2, "the session to end, and the empty group to be stored")
    assert appending[1] in ("test-0", "test-1"), "by a worker of the scheduler: a timer thread must not wait for a disk"
    assert not owned_group(stage).group.members
    assert stage.coordinator.heartbeat("g", member, None, 2) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.spec("GRP-43", "GRP-44")
def test_an_expiry_that_waits_for_the_disk_holds_up_no_other_groups(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.lead()
    waiting, disk_is_free = threading.Event(), threading.Event()
    append = stage.replica.append

    def slow_at_first(*args: Any, **options: Any) -> None:
        if not waiting.is_set():
            waiting.set()
            disk_is_free.wait(60)
        append(*args, **options)

    with standing_still():
        for group in ("g", "h"):
            member = join(stage, session_ms=50, group=group).member_id
            stage.coordinator.sync(group, member, None, 1, {}, Parked(lambda _: None, lambda: None))
        monkeypatch.setattr(stage.replica, "append", slow_at_first)

    def left() -> list[str]:
        return [group for group in ("g", "h") if not owned_group(stage, group).group.members]

    assert waiting.wait(60)
    eventually(lambda: left() == ["g", "h"], "both sessions to end while one record waits for the disk")
    disk_is_free.set()
    eventually(lambda: stage.coordinator.describe("g").state == "Empty", "the record to be stored")


@pytest.mark.spec("GRP-53", "GRP-55", "BRK-113")
def test_tombstones_of_deleted_partitions_are_in_the_log(stage: Stage) -> None:
    stage.lead()
    stage.commit({A: 1, B: 2})
    stage.coordinator.on_partitions_deleted([A])
    assert stage.fetch() == (ErrorCode.NONE, {B: 2})
    stage.restart()
    assert stage.fetch() == (ErrorCode.NONE, {B: 2})


@pytest.mark.spec("GRP-14")
def test_a_value_that_cannot_be_decoded_stops_its_group_alone(stage: Stage) -> None:
    from kafkatool.broker.groups.records import OffsetKey, encode_key
    from kafkatool.core.protocol.records.batches import Record, encode_batch

    stage.lead()
    stage.commit({A: 1})
    stage.commit({A: 1}, group="broken")
    bad = Record(0, 0, encode_key(OffsetKey("broken", "t", 0)), b"\x00\x63rubbish", ())
    stage.replica.log.append_as_leader(encode_batch([bad]), 0, origin_client=False)
    stage.restart()
    assert stage.fetch() == (ErrorCode.NONE, {A: 1})
    assert stage.fetch("broken")[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.spec("BRK-164", "GRP-2")
def test_the_number_of_partitions_is_fixed_once_the_topic_was_seen(stage: Stage) -> None:
    partitions = stage.metadata.snapshot.partitions
    partitions[OFFSETS_TOPIC] = {}
    assert stage.coordinator.partition_count() == 1, "offsets.topic.num.partitions, until there is a topic"
    partitions[OFFSETS_TOPIC] = dict.fromkeys(range(5))
    assert stage.coordinator.partition_count() == 5
    partitions[OFFSETS_TOPIC] = dict.fromkeys(range(9))
    assert stage.coordinator.partition_count() == 5
    assert [stage.coordinator.partition_of(group) for group in ("", "kt", "group1")] == [0, 3, 0]


@pytest.mark.spec("GRP-20")
def test_an_acknowledgement_that_finds_the_group_busy_completes_right_after(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.lead()
    stage.commit({A: 1})
    acknowledge: list[Callable[[], None]] = []
    append = stage.replica.append

    def append_and_wait(entries: Any, *, on_done: Callable[[Any], None], **options: Any) -> None:
        append(entries, on_done=lambda done: acknowledge.append(lambda: on_done(done)), **options)

    monkeypatch.setattr(stage.replica, "append", append_and_wait)
    answers: list[Mapping[TopicPartition, ErrorCode]] = []
    wanted = {A: OffsetToCommit(OffsetValue(2, None, "m", 1, None), False)}
    stage.coordinator.commit("g", "", None, -1, wanted, answers.append)
    busy = owned_group(stage).lock
    with busy:
        thread = threading.Thread(target=acknowledge[0])
        thread.start()
        thread.join(0.05)
        assert thread.is_alive() and not answers, "one decision at a time"
    thread.join(60)
    assert answers == [{A: ErrorCode.NONE}]
    assert stage.fetch() == (ErrorCode.NONE, {A: 2})


@pytest.mark.spec("GRP-16")
def test_no_group_is_made_when_the_partition_is_lost_after_the_first_check(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.lead()
    check = stage.coordinator.groups.refusal

    def lost_right_after(group: str) -> ErrorCode:
        error = check(group)
        stage.follow()
        return error

    with monkeypatch.context() as patch:
        patch.setattr(stage.coordinator.groups, "refusal", lost_right_after)
        assert join(stage).error is ErrorCode.NOT_COORDINATOR
    stage.lead()
    with monkeypatch.context() as patch:
        patch.setattr(stage.coordinator.groups, "refusal", lost_right_after)
        assert stage.commit({A: 1}) == {A: ErrorCode.NOT_COORDINATOR}
    assert not stage.coordinator.groups.all()


@pytest.mark.spec("GRP-2")
def test_partitions_that_never_had_a_leader_count_too(stage: Stage) -> None:
    counts: list[int | None] = [None, 10]
    coordinator = GroupCoordinator(
        stage.config,
        stage.replica,  # type: ignore[arg-type]
        stage.metadata,  # type: ignore[arg-type]
        stage.scheduler,
        count_partitions=lambda: counts.pop(0),
    )
    partitions = stage.metadata.snapshot.partitions
    partitions[OFFSETS_TOPIC] = {}
    coordinator.startup()
    assert coordinator.partition_count() == 1, "there is no such topic yet"
    partitions[OFFSETS_TOPIC] = dict.fromkeys(range(7))
    assert coordinator.partition_count() == 10
    assert coordinator.partition_count() == 10, "asked once"


@pytest.mark.spec("GRP-2")
def test_before_the_metadata_cache_is_filled_zookeeper_tells_the_number(stage: Stage) -> None:
    coordinator = GroupCoordinator(
        stage.config,
        stage.replica,  # type: ignore[arg-type]
        stage.metadata,  # type: ignore[arg-type]
        stage.scheduler,
        count_partitions=lambda: 50,
    )
    stage.metadata.snapshot.partitions.clear()
    coordinator.startup()
    assert coordinator.partition_count() == 50
    assert coordinator.partition_of("group1") == 40


@pytest.mark.spec("GRP-2")
def test_records_stay_in_the_partition_where_the_group_is_looked_for_when_the_topic_grows(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "grows", partitions=2)
    try:
        stage.lead()
        group = "group1"
        where = stage.coordinator.partition_of(group)
        stage.metadata.snapshot.partitions[OFFSETS_TOPIC] = dict.fromkeys(range(5))
        assert stage.commit({A: 1}, group=group) == {A: ErrorCode.NONE}
        ends = [stage.replica.get(TopicPartition(OFFSETS_TOPIC, n)).log.log_end_offset for n in range(2)]
        assert ends == [int(n == where) for n in range(2)]
    finally:
        stage.close()


@pytest.mark.spec("GRP-20")
def test_nothing_is_answered_or_written_under_a_groups_lock(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.lead()
    happened: list[str] = []

    def free(what: str) -> None:
        taken: list[bool] = []

        def take() -> None:
            taken.extend(o.lock.acquire(blocking=False) for o in stage.coordinator.groups.all())
            for owned in stage.coordinator.groups.all():
                owned.lock.release()

        thread = threading.Thread(target=take)  # a lock of this very thread would not be in its own way
        thread.start()
        thread.join()
        assert taken and all(taken), what
        happened.append(what)

    append = stage.replica.append

    def appending(*args: Any, **options: Any) -> None:
        free("an append")
        append(*args, **options)

    monkeypatch.setattr(stage.replica, "append", appending)
    stage.commit({A: 1}, group="another")
    answers: list[Any] = []

    def parked(what: str) -> Parked[Any]:
        def answer(result: Any) -> None:
            free(what)
            answers.append(result)

        return Parked(answer, lambda: free("a drop"))

    def request(member_id: str = "", metadata: bytes = b"r") -> JoinRequest:
        protocols = (("range", metadata),)
        return JoinRequest(member_id, None, "c", "/h", 300_000, 60_000, "consumer", protocols, needs_known_id=False)

    stage.coordinator.join("g", request(), parked("a join"))
    first = answers[0].member_id
    stage.coordinator.join("g", request(), parked("a join"))
    stage.coordinator.join("g", request(first), parked("a join"))
    second = next(r.member_id for r in answers[1:] if r.member_id != first)
    for member in (second, second, first):
        stage.coordinator.sync("g", member, None, 2, {}, parked("a sync"))
    stage.coordinator.commit(
        "g", first, None, 2, {A: OffsetToCommit(OffsetValue(1, None, "", 1, None), False)}, lambda _: free("a commit")
    )
    stage.coordinator.delete("another", lambda _: free("a deletion"))
    stage.coordinator.join("g", request(second, b"new"), parked("a join"))
    stage.leave(second)
    wanted = {"a commit", "an append", "a join", "a sync", "a drop", "a deletion"}
    assert set(happened) == wanted, "and nothing that raised was swallowed"


@pytest.mark.spec("GRP-43")
def test_a_commit_taken_from_a_member_is_a_sign_of_life(stage: Stage) -> None:
    stage.lead()
    member = join(stage).member_id
    stage.coordinator.sync("g", member, None, 1, {}, Parked(lambda _: None, lambda: None))
    (known,) = owned_group(stage).group.members.values()
    known.session_deadline_ms = 1e15
    stage.commit({A: 1}, member=member, generation=0)
    assert known.session_deadline_ms == 1e15, "one that is refused is not"
    before = stage.coordinator.now_ms()
    assert stage.commit({A: 1}, member=member, generation=1) == {A: ErrorCode.NONE}
    deadline = known.session_deadline_ms
    assert deadline is not None and before + 300_000 <= deadline <= stage.coordinator.now_ms() + 300_000


@pytest.mark.spec("GRP-17")
def test_groups_and_members_cost_no_threads(stage: Stage) -> None:
    stage.lead()
    join(stage, group="first")
    before = set(threading.enumerate())
    for number in range(300):
        member = join(stage, group=f"g{number}").member_id
        stage.coordinator.sync(f"g{number}", member, None, 1, {}, Parked(lambda _: None, lambda: None))
    assert all(o.deadline is not None for o in stage.coordinator.groups.all()), "each has a session that runs"
    assert set(threading.enumerate()) <= before
