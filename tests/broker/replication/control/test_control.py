"""LeaderAndIsr, StopReplica, UpdateMetadata: what is obeyed, in which order, and what is written about it."""

import json
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kafkatool.broker.replication.following import fetcher_manager
from kafkatool.broker.replication.following.leader_endpoint import LeaderEndpoint
from kafkatool.broker.replication.partition.partition_reads import Reader
from kafkatool.core.errors import ConnectionLostError, StorageError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
)
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from kafkatool.core.zookeeper.znodes import LogDirEventZnode
from tests.broker.replication.world import (
    BROKER_EPOCH,
    CONSUMER,
    TP,
    Clock,
    World,
    follower,
    metadata_request,
    role,
    world,
)

TP1 = TopicPartition("t", 1)
TP2 = TopicPartition("t", 2)


def codes(response: LeaderAndIsrResponse | StopReplicaResponse) -> dict[int, int]:
    return {p.partition: p.error_code for p in response.partitions}


def stop(
    broker: World, *partitions: TopicPartition, delete: bool = False, epoch: int = 1, broker_epoch: int = -1
) -> StopReplicaResponse:
    return broker.manager.control.stop_replicas(
        StopReplicaRequest(
            controller_id=9,
            controller_epoch=epoch,
            broker_epoch=broker_epoch,
            delete_partitions=delete,
            partitions=list(partitions),
        )
    )


@pytest.mark.spec("BRK-24", "CTL-13")
def test_an_older_controller_is_refused_by_every_request(broker: World) -> None:
    broker.leader_and_isr(role(TP, 1, 0, [1], [1]), controller_epoch=5)
    refused = broker.leader_and_isr(role(TP, 1, 1, [1], [1]), controller_epoch=4)
    assert (refused.error_code, codes(refused)) == (11, {0: 11})
    stopped = stop(broker, TP, delete=True, epoch=4)
    assert (stopped.error_code, stopped.partitions) == (11, [])
    assert broker.manager.control.update_metadata(metadata_request([TP], {1: 1}, 1, controller_epoch=4)).error == 11
    assert broker.partition().leader_epoch == 0
    assert not broker.cache.contains(TP)
    assert ("WARN", "[Broker id=1] Received stop replica request from an old controller epoch 4. "
            "Latest known controller epoch is 5") in broker.lines.written  # fmt: skip
    assert stop(broker, TP, epoch=5).error_code == 0


@pytest.mark.spec("BRK-24")
def test_what_is_refused_for_its_epoch_stops_no_fetcher_and_starts_none(broker: World) -> None:
    live = [LeaderAndIsrLiveLeader(broker_id=2, host="127.0.0.1", port=1)]
    states = [role(TP, 2, 0, [2], [2, 1]), role(TP1, 1, 0, [1], [1])]
    assert codes(broker.leader_and_isr(*states, controller_epoch=5, live=live)) == {0: 0, 1: 0}
    assert stop(broker, TP, delete=True, epoch=4).error_code == 11
    assert list(broker.manager.fetchers.lags()) == [TP]
    for leader in (1, 2):
        states = [role(tp, leader, 1, [leader], [2, 1], controller_epoch=4) for tp in (TP, TP1)]
        assert codes(broker.leader_and_isr(*states, controller_epoch=4, live=live)) == {0: 11, 1: 11}
    assert list(broker.manager.fetchers.lags()) == [TP]
    assert (broker.partition(TP).is_leader, broker.partition(TP1).is_leader) == (False, True)


@pytest.mark.spec("BRK-24", "CTL-13")
@pytest.mark.parametrize("teacher", ["LeaderAndIsr", "UpdateMetadata", "StopReplica"])
def test_the_highest_epoch_of_any_request_counts_for_all_three(broker: World, teacher: str) -> None:
    def ask(name: str, epoch: int) -> int:
        match name:
            case "LeaderAndIsr":
                return broker.leader_and_isr(role(TP1, 1, epoch, [1], [1]), controller_epoch=epoch).error_code
            case "UpdateMetadata":
                request = metadata_request([TP1], {1: 1}, 1, controller_epoch=epoch)
                return broker.manager.control.update_metadata(request).error
            case _:
                return stop(broker, TP, delete=epoch < 7, epoch=epoch).error_code

    broker.know(TP)
    broker.lead()
    assert ask(teacher, 7) == 0
    led = broker.manager.partitions.get(TP1)
    before = None if led is None else led.leader_epoch
    cached = broker.cache.contains(TP1)
    names = ("LeaderAndIsr", "UpdateMetadata", "StopReplica")
    assert [ask(name, 6) for name in names] == [11, 11, 11]
    after = broker.manager.partitions.get(TP1)
    assert (None if after is None else after.leader_epoch, broker.cache.contains(TP1)) == (before, cached)
    assert broker.partition().is_leader, "the refused deletion deleted nothing"
    assert [ask(name, 7) for name in names] == [0, 0, 0], "an equal one is accepted"
    assert [ask(name, 8) for name in names] == [0, 0, 0], "and a higher one"
    assert ask(teacher, 7) == 11


@pytest.mark.spec("BRK-25")
def test_requests_for_another_life_of_this_broker_are_refused_before_all_else(broker: World) -> None:
    stale = broker.leader_and_isr(role(TP, 1, 0, [1], [1]), controller_epoch=5, broker_epoch=BROKER_EPOCH - 1)
    assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert broker.manager.partitions.get(TP) is None
    assert stop(broker, TP, broker_epoch=BROKER_EPOCH - 1).error_code == 77
    accepted = broker.leader_and_isr(role(TP, 1, 0, [1], [1]), controller_epoch=1, broker_epoch=BROKER_EPOCH)
    assert accepted.error_code == 0, "the refused request's controller epoch was not stored"


@pytest.mark.spec("BRK-25")
def test_the_controller_may_know_of_this_brokers_new_registration_before_the_broker_does(broker: World) -> None:
    response = broker.leader_and_isr(role(TP, 1, 0, [1], [1]), broker_epoch=BROKER_EPOCH + 1)
    assert response.error_code == 0
    assert broker.partition().is_leader


@pytest.mark.spec("BRK-26", "CTL-58")
def test_each_partition_is_judged_by_itself_and_all_are_answered(broker: World) -> None:
    broker.lead(epoch=3)
    behind = TopicPartition("t", 3)
    response = broker.leader_and_isr(
        role(TP, 1, 3, [1], [1]),
        role(TP1, 2, 0, [2], [2, 3]),
        role(TP2, 1, 0, [1], [1]),
        role(behind, 2, 0, [2], [2, 1]),
        live=[LeaderAndIsrLiveLeader(broker_id=2, host="127.0.0.1", port=1)],
    )
    assert codes(response) == {0: 11, 1: 3, 2: 0, 3: 0}
    assert broker.partition(behind).leader_epoch == 0, "assigned is enough, it need not be in sync"
    assert broker.manager.partitions.get(TP1) is None, "no object for a partition that is not ours"
    assert broker.partition(TP2).is_leader
    ignored = [m for level, m in broker.lines.written if level == "WARN"]
    assert ignored == [
        "[Broker id=1] Ignoring LeaderAndIsr request from controller 9 with correlation id 7 epoch 1 for partition "
        "t-0 since its associated leader epoch 3 is not higher than the current leader epoch 3",
        "[Broker id=1] Ignoring LeaderAndIsr request from controller 9 with correlation id 7 epoch 1 for partition "
        "t-1 as itself is not in assigned replica list 2,3",
    ]


@pytest.mark.spec("BRK-26", "CTL-58", "CTL-61")
def test_only_a_greater_leader_epoch_is_taken_and_the_first_is_0(broker: World) -> None:
    answers = [
        codes(broker.leader_and_isr(role(TP, 1, epoch, [1], [1])))[0] for epoch in (0, 0, 2, 1, 2, 3)
    ]  # fmt: skip
    assert answers == [0, 11, 0, 11, 11, 0]
    assert broker.partition().leader_epoch == 3
    assert codes(broker.leader_and_isr(role(TP, 2, 3, [2], [2, 3]))) == {0: 11}, "the epoch is looked at first"
    assert codes(broker.leader_and_isr(role(TP, 2, 4, [2], [2, 3]))) == {0: 3}
    assert broker.partition().is_leader and broker.partition().leader_epoch == 3


@pytest.mark.spec("CTL-59", "BRK-27")
def test_who_only_leads_or_only_follows_makes_the_other_transition_for_nothing(broker: World) -> None:
    broker.leader_and_isr(role(TP, 1, 0, [1], [1]), role(TP2, 1, 0, [1], [1]))
    assert broker.partition(TP).is_leader and broker.partition(TP2).is_leader
    assert not [m for _, m in broker.lines.written if "become-follower" in m]
    broker.lines.written.clear()
    live = LeaderAndIsrLiveLeader(broker_id=2, host="127.0.0.1", port=1)
    other = TopicPartition("t", 3)
    broker.leader_and_isr(role(TP1, 2, 0, [2], [2, 1]), role(other, 2, 0, [2], [2, 1]), live=[live])
    assert sorted(broker.manager.fetchers.lags()) == [TP1, other]
    assert not [m for _, m in broker.lines.written if "become-leader" in m]


@pytest.mark.spec("BRK-27", "BRK-28", "BRK-29", "BRK-32", "CTL-59")
def test_leaders_first_then_followers_and_the_coordinators_learn_of_both(broker: World) -> None:
    live = LeaderAndIsrLiveLeader(broker_id=2, host="127.0.0.1", port=1)
    broker.leader_and_isr(role(TP, 2, 0, [2], [2, 1]), role(TP1, 1, 0, [1], [1]), live=[live])
    assert (broker.leaders, broker.followers) == ([TP1], [TP])
    assert list(broker.manager.fetchers.lags()) == [TP]
    messages = [m.removeprefix("[Broker id=1] ") for _, m in broker.lines.written]
    request, origin = "correlationId 7 from controller 9 epoch 1", "controller 9 epoch 1 with correlation id 7"
    assert messages == [
        "Received LeaderAndIsr request PartitionState(controllerEpoch=1, leader=2, leaderEpoch=0, isr=2, zkVersion=0, "
        "replicas=2,1, isNew=true) correlation id 7 from controller 9 epoch 1 for partition t-0",
        "Received LeaderAndIsr request PartitionState(controllerEpoch=1, leader=1, leaderEpoch=0, isr=1, zkVersion=0, "
        "replicas=1, isNew=true) correlation id 7 from controller 9 epoch 1 for partition t-1",
        f"Handling LeaderAndIsr request {request} starting the become-leader transition for partition t-1",
        f"Stopped fetchers as part of become-leader request from {origin} for partition t-1 "
        "(last update controller epoch 1)",
        f"Completed LeaderAndIsr request {request} for the become-leader transition for partition t-1",
        f"Handling LeaderAndIsr request {request} starting the become-follower transition for partition t-0",
        f"Stopped fetchers as part of become-follower request from {origin} for partition t-0",
        "Truncated logs and checkpointed recovery boundaries for partition t-0 as part of become-follower request with "
        "correlation id 7 from controller 9 epoch 1",
        f"Started fetcher to new leader as part of become-follower request from {origin} for partition t-0",
        f"Completed LeaderAndIsr request {request} for the become-follower transition for partition t-0",
    ]


@pytest.mark.spec("BRK-28", "BRK-31", "CTL-59")
def test_a_follower_that_becomes_leader_is_fetched_for_no_longer(broker: World) -> None:
    live = LeaderAndIsrLiveLeader(broker_id=2, host="127.0.0.1", port=1)
    broker.leader_and_isr(role(TP, 2, 0, [2], [2, 1]), live=[live])
    broker.lead(epoch=1)
    assert broker.manager.fetchers.lags() == {}
    assert broker.manager.fetchers.traffic() == {}, "a fetcher without partitions ends (BRK-31)"
    broker.lead(epoch=2)
    assert broker.lines.written[-2][0] == "INFO"
    assert "since it is already the leader" in broker.lines.written[-2][1]


@pytest.mark.spec("BRK-29", "BRK-89", "BRK-90", "BRK-98", "BRK-100", "CTL-123")
def test_what_waits_on_a_leader_fails_when_it_becomes_follower(broker: World) -> None:
    broker.lead(isr=(1, 2, 3))
    produced = broker.produce(acks=-1)
    fetched = broker.fetch(1, follower(2), max_wait_ms=60_000)
    assert (produced, fetched) == ([], [])
    broker.follow(epoch=1)
    assert (produced[0].error, fetched[0].error) == (6, 6)
    assert broker.produce()[0].error == 6


@pytest.mark.spec("BRK-29")
def test_a_broker_that_is_stopping_starts_no_fetcher(broker: World) -> None:
    broker.follow()
    assert broker.manager.fetchers.lags() == {}
    assert "since it is shutting down" in broker.lines.written[-2][1]


@pytest.mark.spec("BRK-30")
def test_an_unknown_leader_is_followed_as_soon_as_it_is_known(broker: World) -> None:
    response = broker.leader_and_isr(role(TP, 2, 4, [2], [2, 1]))
    assert codes(response) == {0: 0}
    assert broker.partition().leader_epoch == -1, "the epoch is not stored, a repeat is accepted"
    assert broker.manager.fetchers.lags() == {}
    assert codes(broker.leader_and_isr(role(TP, 2, 4, [2], [2, 1]))) == {0: 0}
    broker.know(TP, brokers={1: 1})
    assert broker.manager.fetchers.lags() == {}
    broker.know(TP, brokers={1: 1, 2: 2}, leader=2)
    assert list(broker.manager.fetchers.lags()) == [TP]
    assert broker.partition().leader_epoch == 4


@pytest.mark.spec("BRK-30", "BRK-32", "BRK-44")
def test_a_deposed_leader_serves_nobody_while_the_new_one_is_unknown(broker: World) -> None:
    partition = broker.lead(isr=[1, 2], replicas=[1, 2])
    waiting = broker.produce(acks=-1)
    assert codes(broker.leader_and_isr(role(TP, 2, 4, [2], [2, 1]))) == {0: 0}
    assert not partition.is_leader
    assert partition.isr == ()
    assert partition.leader_epoch == 0, "the epoch is not stored"
    assert broker.followers == [TP], "the coordinators know at once"
    assert [r.error for r in waiting] == [ErrorCode.NOT_LEADER_FOR_PARTITION]
    assert [r.error for r in broker.produce()] == [ErrorCode.NOT_LEADER_FOR_PARTITION]
    told: list[tuple[int, list[TopicPartition]]] = []
    request = metadata_request([TP], {1: 1, 2: 2}, 2)
    broker.manager.control.update_metadata(
        request, lambda lead, follow: told.append((len(lead), [p.tp for p in follow])), correlation_id=1
    )
    assert told == [(0, [TP])]
    assert partition.leader_epoch == 4


@pytest.mark.spec("BRK-30", "BRK-65")
def test_the_leaders_of_the_request_serve_when_the_cache_does_not_know_them(
    broker: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports: list[int] = []

    class Noted(LeaderEndpoint):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            ports.append(self.port)

    monkeypatch.setattr(fetcher_manager, "LeaderEndpoint", Noted)
    live = LeaderAndIsrLiveLeader(broker_id=2, host="127.0.0.1", port=7)
    broker.leader_and_isr(role(TP, 2, 0, [2], [2, 1]), live=[live])
    assert list(broker.manager.fetchers.traffic()) == [(2, 0)]
    broker.know(brokers={2: 5})
    broker.leader_and_isr(role(TP, 2, 1, [2], [2, 1]), live=[live])
    assert list(broker.manager.fetchers.traffic()) == [(2, 0)]
    assert ports == [7, 5], "the cache comes first; the fetcher is replaced when the port changed (BRK-65)"


@pytest.mark.spec("BRK-23")
def test_control_requests_take_turns(broker: World) -> None:
    inside, order = threading.Event(), []
    release = threading.Event()

    def slow(*_: object) -> None:
        inside.set()
        assert release.wait(60)
        order.append("leader_and_isr")

    request = LeaderAndIsrRequest(controller_id=9, controller_epoch=1, partition_states=[], live_leaders=[])
    first = threading.Thread(target=lambda: broker.manager.control.become_leader_or_follower(request, slow))
    first.start()
    assert inside.wait(60)

    def then_update() -> None:
        broker.know(TP)
        order.append("update_metadata")

    def then_stop() -> None:
        stop(broker, TP)
        order.append("stop_replica")

    waiting = [threading.Thread(target=then_update), threading.Thread(target=then_stop)]
    for thread in waiting:
        thread.start()
    assert not broker.cache.contains(TP)
    release.set()
    for thread in (first, *waiting):
        thread.join(60)
    assert order[0] == "leader_and_isr"
    assert broker.cache.contains(TP)


@pytest.mark.spec("Z-47")
def test_a_broker_that_cannot_tell_of_a_failed_directory_serves_the_others_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with world(tmp_path, clock=Clock(), log_dirs=f"{tmp_path / 'a'},{tmp_path / 'b'}") as broker:
        broker.lead(TP)
        broker.lead(TP1)
        broker.know(TP, TP1)
        broker.zookeeper.delete(LogDirEventZnode.PATH)
        failed = broker.partition(TP).log.directory.parent
        broker.fail_disk(failed)
        assert broker.produce(TP)[0].error == ErrorCode.KAFKA_STORAGE_ERROR
        assert (broker.produce(TP1)[0].error, broker.fetch(0, CONSUMER, TP1)[0].error) == (0, 0)
        assert LogDirEventZnode.PATH not in broker.zookeeper.nodes, "it is not made, either"
    assert f"the controller could not be told that log dir {failed} failed" in caplog.text


@pytest.mark.spec("BRK-33", "BRK-80", "BRK-110", "BRK-146", "BRK-159", "Z-47")
def test_a_disk_error_on_one_partition_leaves_the_rest_alone(tmp_path: Path) -> None:
    dirs = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    with world(tmp_path, clock=Clock(), log_dirs=dirs) as broker:
        broker.lead(TP)
        broker.lead(TP1)
        broker.know(TP, TP1)
        lost, kept = TP, TP1
        offline: list[TopicPartition] = []
        broker.manager.on_offline(offline.extend)
        broker.fail_disk(broker.partition(lost).log.directory.parent)
        assert offline == [lost], "the group coordinator must not go on with its partition"
        assert broker.produce(lost)[0].error == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.fetch(0, Reader(-1), lost)[0].error == ErrorCode.KAFKA_STORAGE_ERROR
        assert (broker.produce(kept)[0].error, broker.fetch(0, CONSUMER, kept)[0].error) == (0, 0)
        response = broker.leader_and_isr(*(role(tp, 1, 5, [1], [1], is_new=False) for tp in (lost, kept)))
        assert codes(response) == {0: 56, 1: 0}
        assert codes(stop(broker, lost, kept)) == {0: 56, 1: 0}
        assert codes(stop(broker, lost, kept, delete=True)) == {0: 56, 1: 0}
        (event,) = [p for p in broker.zookeeper.nodes if p.startswith("/log_dir_event_notification/")]
        assert re.fullmatch(r"/log_dir_event_notification/log_dir_event_\d{10}", event)
        node = broker.zookeeper.nodes[event]
        assert (json.loads(node.data), node.ephemeral_owner) == ({"version": 1, "broker": 1, "event": 1}, 0)


@pytest.mark.spec("BRK-159")
def test_with_a_dir_offline_only_new_partitions_are_created(tmp_path: Path) -> None:
    dirs = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    with world(tmp_path, clock=Clock(), log_dirs=dirs) as broker:
        broker.fail_disk(tmp_path / "a")
        response = broker.leader_and_isr(role(TP, 1, 0, [1], [1], is_new=False), role(TP1, 1, 0, [1], [1], is_new=True))
        assert codes(response) == {0: 56, 1: 0}
        assert broker.partition(TP1).log.directory.parent == tmp_path / "b"


@pytest.mark.spec("BRK-109", "BRK-90", "BRK-100", "CTL-60")
def test_stopping_keeps_the_data_and_ends_every_wait(broker: World) -> None:
    broker.lead(isr=(1, 2, 3))
    produced = broker.produce(acks=-1)
    fetched = broker.fetch(1, follower(2), max_wait_ms=60_000)
    assert codes(stop(broker, TP)) == {0: 0}
    assert produced[0].error == 6
    assert fetched[0].error == 0
    assert broker.partition().is_leader, "a leader stays leader"
    assert broker.partition().log.log_end_offset == 1


@pytest.mark.spec("BRK-109", "CTL-60")
@pytest.mark.parametrize("delete", [False, True])
def test_all_named_are_fetched_for_no_longer_before_the_first_of_them_is_closed(
    broker: World, monkeypatch: pytest.MonkeyPatch, *, delete: bool
) -> None:
    live = LeaderAndIsrLiveLeader(broker_id=2, host="127.0.0.1", port=1)
    broker.leader_and_isr(role(TP, 2, 0, [2], [2, 1]), role(TP1, 2, 0, [2], [2, 1]), live=[live])
    control = broker.manager.control
    fetched: list[set[TopicPartition]] = []
    for name in ("_stop", "_delete"):
        close = getattr(control, name)

        def noted(partition: TopicPartition, close: Any = close) -> ErrorCode:
            fetched.append(set(broker.manager.fetchers.lags()))
            return close(partition)  # type: ignore[no-any-return]

        monkeypatch.setattr(control, name, noted)
    assert codes(stop(broker, TP, TP1, TP2, delete=delete)) == {0: 0, 1: 0, 2: 0}, "an unknown one is no error"
    assert fetched == [set(), set(), set()]
    assert [broker.logs.get(tp) is None for tp in (TP, TP1)] == [delete, delete]


@pytest.mark.spec("BRK-109", "BRK-111", "BRK-150", "BRK-90", "BRK-98", "BRK-100", "CTL-55", "CTL-60")
def test_deleting_drops_partition_log_and_every_wait(broker: World, tmp_path: Path) -> None:
    broker.know(TP)
    broker.lead(isr=(1, 2, 3))
    produced = broker.produce(acks=-1)
    fetched = broker.fetch(1, follower(2), max_wait_ms=60_000)
    assert codes(stop(broker, TP, delete=True)) == {0: 0}
    assert (produced[0].error, fetched[0].error) == (6, 6)
    assert broker.manager.partitions.get(TP) is None
    assert not (tmp_path / "logs/t-0").exists()
    for reader in (CONSUMER, follower(2)):
        assert (broker.produce()[0].error, broker.fetch(0, reader)[0].error) == (6, 6)
    broker.manager.control.update_metadata(metadata_request([TP], {1: 1}, -2))
    for reader in (CONSUMER, follower(2)):
        assert (broker.produce()[0].error, broker.fetch(0, reader)[0].error) == (3, 3)


@pytest.mark.spec("BRK-109")
def test_the_fetchers_of_all_listed_partitions_stop_before_the_first_one_is_touched(
    broker: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = LeaderAndIsrLiveLeader(broker_id=2, host="127.0.0.1", port=1)
    states = [role(tp, 2, 0, [2], [2, 1]) for tp in (TP, TP1, TP2)]
    broker.leader_and_isr(*states, live=[live], controller_epoch=5)
    assert stop(broker, TP, TP1, delete=True, epoch=4).error_code == 11
    assert sorted(broker.manager.fetchers.lags()) == [TP, TP1, TP2], "a refused request stops nothing"
    fetched_for: list[tuple[TopicPartition, list[TopicPartition]]] = []
    delete, abandon = broker.logs.delete, broker.manager.delayed.abandon

    def note(act: Callable[[TopicPartition], object]) -> Callable[[TopicPartition], object]:
        def noted(tp: TopicPartition) -> object:
            fetched_for.append((tp, list(broker.manager.fetchers.lags())))
            return act(tp)

        return noted

    monkeypatch.setattr(broker.logs, "delete", note(delete))
    monkeypatch.setattr(broker.manager.delayed, "abandon", note(abandon))
    stop(broker, TP, TP1, delete=True, epoch=5)
    broker.leader_and_isr(*(role(tp, 2, 1, [2], [2, 1]) for tp in (TP, TP1)), live=[live], controller_epoch=5)
    stop(broker, TP, TP1, epoch=5)
    assert fetched_for == [(tp, [TP2]) for tp in (TP, TP1, TP, TP1)]


@pytest.mark.spec("BRK-111")
def test_who_still_holds_a_dropped_partition_finds_nothing_to_lead(
    broker: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.know(TP)
    partition = broker.lead(isr=(1, 2))
    broker.produce()
    held = partition.log
    stop(broker, TP, delete=True)
    assert (partition.assigned, partition.isr, partition.is_leader) == ((), (), False)
    monkeypatch.setattr(broker.manager.partitions, "find", lambda *_, **__: partition)  # looked up just before
    assert broker.produce()[0].error == 6
    assert broker.fetch(0, CONSUMER)[0].error == 6
    assert broker.fetch(0, follower(2))[0].error == 6
    assert held.log_end_offset == 1


@pytest.mark.spec("BRK-110", "CTL-60")
def test_deleting_works_when_only_the_directory_or_nothing_exists(tmp_path: Path) -> None:
    with world(tmp_path, clock=Clock()) as broker:
        broker.lead()
        broker.produce()
    with world(tmp_path, clock=Clock()) as broker:
        assert broker.manager.partitions.get(TP) is None
        assert codes(stop(broker, TP, TP1)) == {0: 0, 1: 0}
        assert (tmp_path / "logs/t-0").exists(), "only delete=true deletes"
        assert codes(stop(broker, TP, TP1, delete=True)) == {0: 0, 1: 0}
        assert not (tmp_path / "logs/t-0").exists()
        assert ("TRACE", "[Broker id=1] Ignoring stop replica (delete=true) for partition t-1 as replica doesn't exist "
                "on broker") in broker.lines.written  # fmt: skip


@pytest.mark.spec("BRK-110")
@pytest.mark.parametrize("error", [StorageError("no"), OSError(5, "Input/output error")])
def test_what_the_disk_does_not_let_go_is_told_and_the_others_are_deleted(
    broker: World, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    for tp in (TP, TP1):
        broker.lead(tp)
    delete = broker.logs.delete

    def fail(tp: TopicPartition) -> None:
        if tp == TP:
            raise error
        delete(tp)

    monkeypatch.setattr(broker.logs, "delete", fail)
    assert codes(stop(broker, TP, TP1, delete=True)) == {0: 56, 1: 0}
    assert broker.logs.get(TP1) is None
    line = "[Broker id=1] Ignoring stop replica (delete=true) for partition t-0 due to storage exception"
    assert [written for written in broker.lines.written if written[0] == "ERROR"] == [("ERROR", line)]


@pytest.mark.spec("BRK-41")
def test_a_topic_made_anew_does_not_inherit_a_high_watermark(tmp_path: Path) -> None:
    with world(tmp_path, clock=Clock()) as broker:
        broker.lead()
        broker.produce(count=5)
    with world(tmp_path, clock=Clock()) as broker:
        stop(broker, TP, delete=True)
        partition = broker.follow()
        assert partition.high_watermark.offset == 0


@pytest.mark.spec("BRK-112", "BRK-113")
def test_metadata_goes_to_the_cache_and_what_was_removed_comes_back(broker: World) -> None:
    broker.know(TP, TP1)
    update = broker.manager.control.update_metadata(metadata_request([TP], {1: 1}, -2), correlation_id=3)
    assert update.removed == [TP]
    assert broker.cache.contains(TP1)
    assert broker.lines.written[-1][1] == (
        "[Broker id=1] Deleted partition t-0 from metadata cache in response to UpdateMetadata request sent by "
        "controller 9 epoch 1 with correlation id 3"
    )
    assert broker.lines.written[0][1].startswith(
        "[Broker id=1] Cached leader info PartitionState(controllerEpoch=1, leader=1, leaderEpoch=0, isr=[1], "
        "zkVersion=0, replicas=[1], offlineReplicas=[]) for partition t-0 in response to UpdateMetadata request"
    )


@pytest.mark.spec("BRK-26", "BRK-32", "BRK-33")
@pytest.mark.parametrize("leader", [1, 2])
@pytest.mark.parametrize("error", [ConnectionLostError("lost"), StorageError("disk"), OSError("disk")])
def test_a_log_that_cannot_be_opened_costs_no_other_partition_its_role(
    tmp_path: Path, leader: int, error: Exception
) -> None:
    def unreadable(topic: str) -> Mapping[str, str]:
        if topic == "u":
            raise error
        return {}

    live = [LeaderAndIsrLiveLeader(broker_id=2, host="127.0.0.1", port=1)]
    states = [role(tp, leader, 0, [leader], [leader, 1]) for tp in (TP, TopicPartition("u", 5), TP1)]
    with world(tmp_path, clock=Clock(), overrides_of=unreadable) as broker:
        assert codes(broker.leader_and_isr(*states, live=live)) == {0: 0, 5: ErrorCode.KAFKA_STORAGE_ERROR, 1: 0}
        assert (broker.leaders if leader == 1 else broker.followers) == [TP, TP1]
        assert set(broker.manager.fetchers.lags()) == (set() if leader == 1 else {TP, TP1})


@pytest.mark.spec("BRK-33")
@pytest.mark.parametrize("leader", [1, 2])
@pytest.mark.parametrize("name", [TopicPartition("../escaped", 5), TopicPartition("a/b", 5), TopicPartition("t", -5)])
def test_an_impossible_name_costs_no_other_partition_its_role(broker: World, leader: int, name: TopicPartition) -> None:
    live = [LeaderAndIsrLiveLeader(broker_id=2, host="127.0.0.1", port=1)]
    states = [role(tp, leader, 0, [leader], [leader, 1]) for tp in (TP, name, TP1)]
    assert codes(broker.leader_and_isr(*states, live=live)) == {0: 0, name.partition: 56, 1: 0}
    assert (broker.leaders if leader == 1 else broker.followers) == [TP, TP1]
    assert len(broker.logs.live_dirs) == 1


@pytest.mark.spec("BRK-41", "BRK-150")
@pytest.mark.parametrize(
    ("state", "broker_epoch", "adopted"),
    [
        (role(TP, 1, 0, [1], [1]), BROKER_EPOCH, False),  # a new topic
        (role(TP, 2, 0, [2, 1], [2, 1]), BROKER_EPOCH, False),
        (role(TP, 2, 7, [2], [2, 1]), BROKER_EPOCH, False),  # a replica that a move begins
        (role(TP, 1, 0, [1], [1], is_new=False), BROKER_EPOCH, True),
        (role(TP, 1, 7, [1], [1]), BROKER_EPOCH, True),  # it is counted on
        (role(TP, 1, 0, [1], [1]), -1, True),  # may be for a former life
    ],
)
def test_a_new_partition_never_adopts_what_an_earlier_topic_left(
    tmp_path: Path, state: LeaderAndIsrPartition, broker_epoch: int, adopted: bool
) -> None:
    with world(tmp_path, clock=Clock()) as broker:
        broker.lead()
        broker.produce(count=5)
    with world(tmp_path, clock=Clock()) as broker:
        live = [LeaderAndIsrLiveLeader(broker_id=2, host="127.0.0.1", port=1)]
        broker.manager.control.shutting_down = True  # no fetcher is started
        assert codes(broker.leader_and_isr(state, broker_epoch=broker_epoch, live=live)) == {0: 0}
        partition = broker.partition()
        assert partition.log.log_end_offset == (5 if adopted else 0)
        assert partition.high_watermark.offset == (5 if adopted else 0)
        assert bool(list((tmp_path / "logs").glob("t-0.*-stray"))) is not adopted


@pytest.mark.spec("BRK-41", "BRK-150")
def test_it_is_asked_once_for_each_request_which_topics_new_logs_are_made_for(
    broker: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[set[str]] = []

    def expect(topics: set[str]) -> None:
        asked.append(topics)
        assert not topics or broker.logs.get(TP) is None, "before the logs are made"

    monkeypatch.setattr(broker.logs, "expect", expect)
    other = TopicPartition("u", 5)
    broker.leader_and_isr(*(role(tp, 1, 0, [1], [1]) for tp in (TP, TP1, other)))
    broker.leader_and_isr(*(role(tp, 1, 1, [1], [1]) for tp in (TP, TP1, other)))
    assert asked == [{"t", "u"}, set()]


@pytest.mark.spec("BRK-41")
def test_news_told_twice_in_one_life_costs_no_record(broker: World) -> None:
    for epoch in (0, 0):
        broker.leader_and_isr(role(TP, 1, epoch, [1], [1]), broker_epoch=BROKER_EPOCH)
        broker.produce(count=5)
    assert broker.partition().log.log_end_offset == 10


@pytest.mark.spec("BRK-109", "BRK-24", "BRK-80")
def test_a_refused_stop_forgets_no_high_watermark(tmp_path: Path) -> None:
    with world(tmp_path, clock=Clock()) as broker:
        broker.lead()
        broker.produce(count=5)
    with world(tmp_path, clock=Clock()) as broker:
        broker.leader_and_isr(controller_epoch=5)
        assert stop(broker, TP, delete=True, epoch=4).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        assert stop(broker, TP, epoch=5, broker_epoch=BROKER_EPOCH - 1).error_code == ErrorCode.STALE_BROKER_EPOCH
        broker.manager.checkpoint_high_watermarks()
        assert broker.logs.read_high_watermarks() == {TP: 5}
        state = role(TP, 2, 1, [2], [2, 1], is_new=False, controller_epoch=5)
        live = [LeaderAndIsrLiveLeader(broker_id=2, host="127.0.0.1", port=1)]
        broker.manager.control.shutting_down = True
        broker.leader_and_isr(state, controller_epoch=5, live=live)
        assert broker.partition().high_watermark.offset == 5
