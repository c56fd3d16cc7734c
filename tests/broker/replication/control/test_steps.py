"""What a control request does in which order, and that nothing comes between its steps."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.replication.following.fetch_state import FollowedPartition
from kafkatool.broker.replication.following.fetcher_manager import FetcherManager
from kafkatool.broker.replication.leading.delayed_requests import DelayedRequests
from kafkatool.broker.replication.partition.local_partitions import LocalPartitions
from kafkatool.broker.replication.partition.partition import Partition
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.leader_and_isr import LeaderAndIsrLiveLeader, LeaderAndIsrRequest
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataRequest
from tests.broker.replication.control.test_control import TP1, TP2, codes, stop
from tests.broker.replication.world import BROKER_EPOCH, TP, Clock, World, follower, metadata_request, role, world
from tests.waiting import eventually

LIVE = [LeaderAndIsrLiveLeader(broker_id=2, host="127.0.0.1", port=1)]
Steps = list[tuple[str, list[TopicPartition]]]


def _names(about: Any) -> list[TopicPartition]:
    if isinstance(about, TopicPartition):
        return [about]
    return [one if isinstance(one, TopicPartition) else one[0].tp for one in about]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    """Note the calls of which a change of role is made, with the partitions each is about."""
    noted: Steps = []

    def watch(cls: type, method: str, *, of_self: bool) -> None:
        original = getattr(cls, method)

        def call(self: Any, *args: Any, **options: Any) -> Any:
            if of_self:
                noted.append((method, [self.tp]))
                return original(self, *args, **options)
            (about,) = args
            about = about if isinstance(about, TopicPartition) else list(about)
            noted.append((method, _names(about)))
            return original(self, about)

        monkeypatch.setattr(cls, method, call)

    for method in ("make_leader", "make_follower"):
        watch(Partition, method, of_self=True)
    for method in ("remove", "add"):
        watch(FetcherManager, method, of_self=False)
    watch(DelayedRequests, "check", of_self=False)
    return noted


@pytest.mark.spec("BRK-27", "BRK-28", "BRK-29")
def test_all_leaders_before_all_followers_and_each_batch_step_by_step(broker: World, steps: Steps) -> None:
    parts = [TopicPartition("t", n) for n in range(5)]
    broker.leader_and_isr(*(role(tp, 2, 0, [2], [2, 1]) for tp in parts[:2]), live=LIVE)
    broker.lead(parts[2])
    broker.lead(parts[3])
    steps.clear()
    unknown = role(parts[4], 9, 0, [9], [9, 1])
    to_follow = [role(tp, 2, 1, [2], [2, 1]) for tp in parts[2:4]]
    to_lead = [role(tp, 1, 1, [1], [2, 1]) for tp in parts[:2]]
    assert set(
        codes(broker.leader_and_isr(unknown, to_follow[0], to_lead[0], to_follow[1], to_lead[1], live=LIVE)).values()
    ) == {0}
    assert (
        steps
        == [
            ("remove", parts[:2]),
            ("make_leader", [parts[0]]),
            ("make_leader", [parts[1]]),
            ("check", [parts[0]]),
            ("check", [parts[1]]),
            ("make_follower", [parts[2]]),  # and not the one whose leader is unknown
            ("make_follower", [parts[3]]),
            ("remove", parts[2:4]),
            ("check", [parts[2]]),
            ("check", [parts[3]]),
            ("add", parts[2:4]),
        ]
    )


@pytest.mark.spec("BRK-29")
def test_following_begins_at_the_high_watermark_in_state_truncating(
    broker: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed: list[FollowedPartition] = []
    monkeypatch.setattr(
        "kafkatool.broker.replication.following.fetcher.ReplicaFetcher.add", lambda _, given: followed.extend(given)
    )
    broker.lead(isr=(1, 2))
    broker.produce(count=3)
    broker.fetch(3, follower(2))
    broker.produce(count=4)
    assert (broker.partition().high_watermark.offset, broker.partition().log.log_end_offset) == (3, 7)
    broker.leader_and_isr(role(TP, 2, 1, [2], [2, 1]), live=LIVE)
    assert [(f.partition.tp, f.leader_epoch, f.fetch_offset, f.truncating) for f in followed] == [(TP, 1, 3, True)]


@pytest.mark.spec("BRK-67")
@pytest.mark.parametrize(("checkpointed", "begins_at"), [(-3, 0), (-1, 0), (0, 0), (2, 2)])
def test_following_never_begins_below_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpointed: int, begins_at: int
) -> None:
    """What a start below 0 would ask of the leader first is never needed."""
    followed: list[FollowedPartition] = []
    monkeypatch.setattr(
        "kafkatool.broker.replication.following.fetcher.ReplicaFetcher.add", lambda _, given: followed.extend(given)
    )
    with world(tmp_path, clock=Clock()) as broker:
        broker.lead()
        broker.produce(count=4)
    (tmp_path / "logs/replication-offset-checkpoint").write_text(f"0\n1\nt 0 {checkpointed}\n")
    with world(tmp_path, clock=Clock()) as broker:
        broker.leader_and_isr(role(TP, 2, 1, [2], [2, 1], is_new=False), live=LIVE)
        assert [f.fetch_offset for f in followed] == [begins_at]


class NotedLock:
    """A lock that knows who asked for it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self.asked.append(threading.current_thread().name)
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def locked(self) -> bool:
        return self._lock.locked()


@pytest.mark.spec("BRK-23", "BRK-32")
@pytest.mark.parametrize("holder", ["leader_and_isr", "stop_replica", "update_metadata"])
def test_while_one_control_request_is_obeyed_the_others_wait_for_the_one_lock(broker: World, holder: str) -> None:
    lock = NotedLock()
    setattr(broker.manager.control, "_lock", lock)  # noqa: B010
    held, release, done = threading.Event(), threading.Event(), list[str]()

    def hold(*_: object) -> None:
        """Stand still the first time: what is called last, so that the request must hold the lock to its end."""
        if not held.is_set():
            assert lock.locked()
            held.set()
            assert release.wait(60)

    control = broker.manager.control
    broker.leader_and_isr(role(TP2, 8, 0, [8], [8, 1]))  # waits for its leader to be known
    requests: dict[str, Callable[[], object]] = {
        "leader_and_isr": lambda: control.become_leader_or_follower(_request(role(TP, 1, 0, [1], [1])), hold),
        "stop_replica": lambda: control.stop_replicas(_stop(TP1), hold),
        "update_metadata": lambda: control.update_metadata(metadata_request([TP], {1: 1, 8: 8}, 1), hold),
    }

    def run(name: str) -> None:
        requests[name]()
        done.append(name)

    lock.asked.clear()
    order = [holder, *(name for name in requests if name != holder)]
    threads = [threading.Thread(target=run, args=(name,), name=name) for name in order]
    threads[0].start()
    assert held.wait(60)
    for thread in threads[1:]:
        thread.start()
    eventually(lambda: sorted(lock.asked) == sorted(requests), "all to ask for the lock")
    assert done == []
    release.set()
    for thread in threads:
        thread.join(60)
    assert sorted(done) == sorted(requests)


def _request(*states: Any, controller_epoch: int = 1, broker_epoch: int = -1) -> Any:
    return LeaderAndIsrRequest(
        controller_id=9,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        partition_states=list(states),
        live_leaders=[],
    )


def _stop(*partitions: TopicPartition, controller_epoch: int = 1, broker_epoch: int = -1) -> Any:
    return StopReplicaRequest(
        controller_id=9,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        delete_partitions=True,
        partitions=list(partitions),
    )


def _send(broker: World, kind: str, controller_epoch: int, broker_epoch: int = -1) -> int:
    """Send a request of that kind; return the code for the whole of it."""
    control = broker.manager.control
    if kind == "leader_and_isr":
        request = _request(controller_epoch=controller_epoch, broker_epoch=broker_epoch)
        return control.become_leader_or_follower(request, lambda *_: None).error_code
    if kind == "stop_replica":
        return control.stop_replicas(_stop(controller_epoch=controller_epoch, broker_epoch=broker_epoch)).error_code
    update = metadata_request([TP2], {1: 1}, 1, controller_epoch=controller_epoch)
    return control.update_metadata(
        UpdateMetadataRequest(
            controller_id=update.controller_id,
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
            partition_states=update.partition_states,
            live_brokers=update.live_brokers,
        )
    ).error


KINDS = ["leader_and_isr", "stop_replica", "update_metadata"]


@pytest.mark.spec("BRK-24")
@pytest.mark.parametrize("kind", KINDS)
def test_the_epoch_of_each_request_counts_for_all_of_them(broker: World, kind: str) -> None:
    assert [_send(broker, k, -1) for k in KINDS] == [11] * 3, "it begins at 0"
    assert _send(broker, kind, 0) == 0
    assert _send(broker, kind, 5) == 0
    assert [_send(broker, k, 4) for k in KINDS] == [11] * 3
    assert _send(broker, kind, 4, BROKER_EPOCH) == 11
    assert [_send(broker, k, 5) for k in KINDS] == [0] * 3


@pytest.mark.spec("BRK-24")
def test_the_epoch_is_noted_before_any_partition_is_looked_at(broker: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("on purpose")

    for epoch, (cls, method, send) in enumerate(
        [
            (LocalPartitions, "get", lambda: broker.leader_and_isr(role(TP, 1, 0, [1], [1]), controller_epoch=5)),
            (LocalPartitions, "remove", lambda: stop(broker, TP, delete=True, epoch=6)),
            (MetadataCache, "update", lambda: _send(broker, "update_metadata", 7)),
        ],
        5,
    ):
        with monkeypatch.context() as failing, pytest.raises(RuntimeError):
            failing.setattr(cls, method, fails)
            send()  # type: ignore[no-untyped-call]
        assert _send(broker, "stop_replica", epoch - 1) == 11


@pytest.mark.spec("BRK-25")
@pytest.mark.parametrize("kind", KINDS)
def test_the_broker_epoch_is_looked_at_by_each_request_and_first(broker: World, kind: str) -> None:
    assert _send(broker, "stop_replica", 5) == 0
    assert _send(broker, kind, 4, BROKER_EPOCH - 1) == 77, "before the controller epoch"
    assert [_send(broker, kind, 9, epoch) for epoch in (BROKER_EPOCH - 1, 1, 0)] == [77] * 3
    assert not broker.cache.contains(TP2)
    assert _send(broker, kind, 5, BROKER_EPOCH) == 0, "the refused one's epoch was not noted"
    assert _send(broker, kind, 5, -1) == 0, "-1: not looked at"
    assert _send(broker, kind, 5, BROKER_EPOCH + 1) == 0


@pytest.mark.spec("BRK-25")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("told", "code"), [(BROKER_EPOCH, 0), (BROKER_EPOCH - 1, 77)])
def test_a_broker_that_is_just_registering_waits_to_know_which_life_is_meant(
    tmp_path: Path, kind: str, told: int, code: int
) -> None:
    answers = iter([None, None, BROKER_EPOCH])
    with world(tmp_path, clock=Clock(), broker_epoch=lambda: next(answers)) as broker:
        assert _send(broker, kind, 1, told) == code
        assert next(answers, "asked until it was there") == "asked until it was there"


@pytest.mark.spec("BRK-26")
def test_the_leader_epoch_is_looked_at_before_the_replicas(broker: World) -> None:
    broker.lead(epoch=3)
    for epoch, code in [(2, 11), (3, 11), (4, 3)]:
        assert codes(broker.leader_and_isr(role(TP, 2, epoch, [2], [2, 3]))) == {0: code}
    assert codes(broker.leader_and_isr(role(TP1, 1, -1, [1], [1]))) == {1: 11}, "-1 is what an unknown one has"
    assert broker.manager.partitions.get(TP1) is None
    assert codes(broker.leader_and_isr(role(TP1, 1, 0, [1], [1]))) == {1: 0}


@pytest.mark.spec("BRK-30")
def test_the_replica_of_an_unknown_leader_keeps_its_high_watermark(tmp_path: Path) -> None:
    with world(tmp_path, clock=Clock()) as broker:
        broker.lead()
        broker.produce(count=4)
    with world(tmp_path, clock=Clock()) as broker:
        assert codes(broker.leader_and_isr(role(TP, 9, 1, [9], [9, 1], is_new=False))) == {0: 0}
        assert broker.partition().high_watermark.offset == 4
        assert set(broker.partition().remote) == set(), "the local replica only"
        broker.manager.checkpoint_high_watermarks()
        assert broker.logs.read_high_watermarks() == {TP: 4}


@pytest.mark.spec("BRK-31")
def test_a_refused_leader_and_isr_starts_no_checkpoints(broker: World) -> None:
    assert _send(broker, "leader_and_isr", -1) == 11
    assert _send(broker, "leader_and_isr", 1, BROKER_EPOCH - 1) == ErrorCode.STALE_BROKER_EPOCH
    assert "highwatermark-checkpoint" not in broker.scheduler.periodic
    assert _send(broker, "leader_and_isr", 1) == 0
    assert "highwatermark-checkpoint" in broker.scheduler.periodic


@pytest.mark.spec("BRK-31")
def test_following_another_leader_closes_the_fetcher_that_follows_nothing_any_more(broker: World) -> None:
    live = [*LIVE, LeaderAndIsrLiveLeader(broker_id=3, host="127.0.0.1", port=1)]
    for epoch, leaders, fetchers in [(0, (2, 2), [2]), (1, (2, 3), [2, 3]), (2, (3, 3), [3])]:
        roles = [role(tp, n, epoch, [n], [n, 1]) for tp, n in zip((TP, TP1), leaders, strict=True)]
        broker.leader_and_isr(*roles, live=live)
        assert sorted(broker.manager.fetchers.traffic()) == [(leader, 0) for leader in fetchers]


@pytest.mark.spec("BRK-31")
@pytest.mark.parametrize("delete", [False, True])
def test_a_stop_closes_the_fetchers_that_follow_nothing_any_more(broker: World, delete: bool) -> None:
    broker.leader_and_isr(role(TP, 2, 0, [2], [2, 1]), role(TP1, 2, 0, [2], [2, 1]), live=LIVE)
    stop(broker, TP, delete=delete)
    assert list(broker.manager.fetchers.traffic()) == [(2, 0)]
    stop(broker, TP1, delete=delete)
    assert broker.manager.fetchers.traffic() == {}
