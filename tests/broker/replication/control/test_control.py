"""LeaderAndIsr, StopReplica, UpdateMetadata: what is obeyed, in which order, and what is written about it."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kafkatool.broker.replication.following import fetcher_manager
from kafkatool.broker.replication.following.leader_endpoint import LeaderEndpoint
from kafkatool.broker.replication.partition.partition_reads import Reader
from kafkatool.core.errors import ConnectionLostError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
)
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from tests.broker.replication.world import (
    BROKER_EPOCH,
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


@pytest.mark.spec("BRK-25")
def test_requests_for_another_life_of_this_broker_are_refused_before_all_else(broker: World) -> None:
    stale = broker.leader_and_isr(role(TP, 1, 0, [1], [1]), controller_epoch=5, broker_epoch=BROKER_EPOCH - 1)
    assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert broker.manager.partitions.get(TP) is None
    assert stop(broker, TP, broker_epoch=BROKER_EPOCH - 1).error_code == 77
    accepted = broker.leader_and_isr(role(TP, 1, 0, [1], [1]), controller_epoch=1, broker_epoch=BROKER_EPOCH)
    assert accepted.error_code == 0, "the refused request's controller epoch was not stored"


@pytest.mark.spec("BRK-25")
@pytest.mark.parametrize(("told", "code"), [(BROKER_EPOCH, 0), (BROKER_EPOCH - 1, 77)])
def test_a_broker_that_is_just_registering_waits_to_know_which_life_is_meant(
    tmp_path: Path, told: int, code: int
) -> None:
    answers = iter([None, None, BROKER_EPOCH])
    with world(tmp_path, clock=Clock(), broker_epoch=lambda: next(answers)) as broker:
        assert broker.leader_and_isr(role(TP, 1, 0, [1], [1]), broker_epoch=told).error_code == code


@pytest.mark.spec("BRK-25")
def test_the_controller_may_know_of_this_brokers_new_registration_before_the_broker_does(broker: World) -> None:
    response = broker.leader_and_isr(role(TP, 1, 0, [1], [1]), broker_epoch=BROKER_EPOCH + 1)
    assert response.error_code == 0
    assert broker.partition().is_leader


@pytest.mark.spec("BRK-26", "CTL-58")
def test_each_partition_is_judged_by_itself_and_all_are_answered(broker: World) -> None:
    broker.lead(epoch=3)
    response = broker.leader_and_isr(role(TP, 1, 3, [1], [1]), role(TP1, 2, 0, [2], [2, 3]), role(TP2, 1, 0, [1], [1]))
    assert codes(response) == {0: 11, 1: 3, 2: 0}
    assert broker.manager.partitions.get(TP1) is None, "no object for a partition that is not ours"
    assert broker.partition(TP2).is_leader
    ignored = [m for level, m in broker.lines.written if level == "WARN"]
    assert ignored == [
        "[Broker id=1] Ignoring LeaderAndIsr request from controller 9 with correlation id 7 epoch 1 for partition "
        "t-0 since its associated leader epoch 3 is not higher than the current leader epoch 3",
        "[Broker id=1] Ignoring LeaderAndIsr request from controller 9 with correlation id 7 epoch 1 for partition "
        "t-1 as itself is not in assigned replica list 2,3",
    ]


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


@pytest.mark.spec("BRK-28")
def test_a_follower_that_becomes_leader_is_fetched_for_no_longer(broker: World) -> None:
    live = LeaderAndIsrLiveLeader(broker_id=2, host="127.0.0.1", port=1)
    broker.leader_and_isr(role(TP, 2, 0, [2], [2, 1]), live=[live])
    broker.lead(epoch=1)
    assert broker.manager.fetchers.lags() == {}
    assert broker.manager.fetchers.traffic() == {}, "a fetcher without partitions ends (BRK-31)"
    broker.lead(epoch=2)
    assert broker.lines.written[-2][0] == "INFO"
    assert "since it is already the leader" in broker.lines.written[-2][1]


@pytest.mark.spec("BRK-29", "BRK-90", "BRK-100")
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


@pytest.mark.spec("BRK-30", "BRK-32")
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


@pytest.mark.spec("BRK-30")
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


@pytest.mark.spec("BRK-33", "BRK-146")
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
        assert broker.produce(kept)[0].error == 0
        response = broker.leader_and_isr(role(lost, 1, 5, [1], [1]), role(kept, 1, 5, [1], [1]))
        assert codes(response) == {0: 56, 1: 0}
        assert codes(stop(broker, lost, kept)) == {0: 56, 1: 0}
        assert [p for p in broker.zookeeper.nodes if "log_dir_event" in p]


@pytest.mark.spec("BRK-159")
def test_with_a_dir_offline_only_new_partitions_are_created(tmp_path: Path) -> None:
    dirs = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    with world(tmp_path, clock=Clock(), log_dirs=dirs) as broker:
        broker.fail_disk(tmp_path / "a")
        response = broker.leader_and_isr(role(TP, 1, 0, [1], [1], is_new=False), role(TP1, 1, 0, [1], [1], is_new=True))
        assert codes(response) == {0: 56, 1: 0}
        assert broker.partition(TP1).log.directory.parent == tmp_path / "b"


@pytest.mark.spec("BRK-109", "CTL-60")
def test_stopping_keeps_the_data_and_ends_every_wait(broker: World) -> None:
    broker.lead(isr=(1, 2, 3))
    produced = broker.produce(acks=-1)
    fetched = broker.fetch(1, follower(2), max_wait_ms=60_000)
    assert codes(stop(broker, TP)) == {0: 0}
    assert produced[0].error == 6
    assert fetched[0].error == 0
    assert broker.partition().is_leader, "a leader stays leader"
    assert broker.partition().log.log_end_offset == 1


@pytest.mark.spec("BRK-109", "BRK-111", "BRK-150", "CTL-60")
def test_deleting_drops_partition_log_and_every_wait(broker: World, tmp_path: Path) -> None:
    broker.know(TP)
    broker.lead(isr=(1, 2, 3))
    produced = broker.produce(acks=-1)
    fetched = broker.fetch(1, follower(2), max_wait_ms=60_000)
    assert codes(stop(broker, TP, delete=True)) == {0: 0}
    assert (produced[0].error, fetched[0].error) == (6, 6)
    assert broker.manager.partitions.get(TP) is None
    assert not (tmp_path / "logs/t-0").exists()
    assert broker.produce()[0].error == 6
    broker.manager.control.update_metadata(metadata_request([TP], {1: 1}, -2))
    assert broker.produce()[0].error == 3


@pytest.mark.spec("BRK-110", "CTL-60")
def test_deleting_works_when_only_the_directory_or_nothing_exists(tmp_path: Path) -> None:
    with world(tmp_path, clock=Clock()) as broker:
        broker.lead()
        broker.produce()
    with world(tmp_path, clock=Clock()) as broker:
        assert broker.manager.partitions.get(TP) is None
        assert codes(stop(broker, TP, TP1, delete=True)) == {0: 0, 1: 0}
        assert not (tmp_path / "logs/t-0").exists()
        assert ("TRACE", "[Broker id=1] Ignoring stop replica (delete=true) for partition t-1 as replica doesn't exist "
                "on broker") in broker.lines.written  # fmt: skip


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


@pytest.mark.spec("BRK-26", "BRK-32")
def test_a_topic_whose_configs_cannot_be_read_costs_no_other_partition_its_role(tmp_path: Path) -> None:
    def unreadable(topic: str) -> Mapping[str, str]:
        if topic == "u":
            raise ConnectionLostError("lost")
        return {}

    states = [role(TP, 1, 0, [1], [1]), role(TopicPartition("u", 5), 1, 0, [1], [1]), role(TP1, 1, 0, [1], [1])]
    with world(tmp_path, clock=Clock(), overrides_of=unreadable) as broker:
        assert codes(broker.leader_and_isr(*states)) == {0: 0, 5: ErrorCode.KAFKA_STORAGE_ERROR, 1: 0}
        assert broker.leaders == [TP, TP1]
