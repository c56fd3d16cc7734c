"""LeaderAndIsr, StopReplica and UpdateMetadata over a socket, in every version."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kafkatool.broker.handlers.call import HandlerContext, load_handlers
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.messages import leader_and_isr, stop_replica, update_metadata
from kafkatool.core.protocol.messages.leader_and_isr import LeaderAndIsrLiveLeader, LeaderAndIsrRequest
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest
from tests.broker.handlers.served import Client, broker_of, handler_context
from tests.broker.replication.world import TP, Clock, World, metadata_request, role, world


@dataclass
class Groups:
    """A group coordinator that only notes what it is told; without ``may_go_on`` it takes its time for that."""

    led: list[TopicPartition] = field(default_factory=list)
    followed: list[TopicPartition] = field(default_factory=list)
    stopped: list[TopicPartition] = field(default_factory=list)
    deleted: list[TopicPartition] = field(default_factory=list)
    is_told: threading.Event = field(default_factory=threading.Event)
    may_go_on: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.may_go_on.set()

    def _listen(self) -> None:
        self.is_told.set()
        assert self.may_go_on.wait(60)

    def on_leadership_change(self, leaders: list[Any], followers: list[Any]) -> None:
        self._listen()
        self.led += [p.tp for p in leaders]
        self.followed += [p.tp for p in followers]

    def on_partitions_stopped(self, partitions: list[TopicPartition]) -> None:
        self._listen()
        self.stopped += partitions

    def on_partitions_deleted(self, partitions: list[TopicPartition]) -> None:
        self.deleted += partitions


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, clock=Clock()) as made:
        yield made


@pytest.fixture
def groups() -> Groups:
    return Groups()


@pytest.fixture
def transactions() -> Groups:
    """Give what is told to the other coordinator."""
    return Groups()


def context_of(broker: World, groups: Groups, transactions: Groups) -> HandlerContext:
    return handler_context(
        replica_manager=broker.manager, metadata_cache=broker.cache, groups=groups, transactions=transactions
    )


@pytest.fixture
def client(broker: World, groups: Groups, transactions: Groups) -> Iterator[Client]:
    handlers = {key: s for key, s in load_handlers().items() if key in (4, 5, 6)}
    with broker_of(handlers, context_of(broker, groups, transactions)) as made:
        yield made


@pytest.mark.spec("BRK-26", "BRK-32", "BRK-162", "GRP-6")
@pytest.mark.parametrize("version", range(3))
def test_leader_and_isr(broker: World, groups: Groups, transactions: Groups, client: Client, version: int) -> None:
    message = LeaderAndIsrRequest(
        controller_id=9, controller_epoch=1, partition_states=[role(TP, 1, 0, [1], [1, 2])], live_leaders=[]
    )
    response = client.call(leader_and_isr.API, version, message)
    assert (response.error_code, [(p.topic, p.error_code) for p in response.partitions]) == (0, [("t", 0)])
    assert (groups.led, transactions.led) == ([TP], [TP])
    assert broker.partition().is_leader


@pytest.mark.spec("BRK-32", "GRP-6", "GRP-15", "TXN-7", "TXN-13")
@pytest.mark.parametrize("slow", ["groups", "transactions"])
@pytest.mark.parametrize("how", ["led", "followed", "stopped"])
def test_what_is_led_or_lost_is_told_before_the_answer(
    broker: World, groups: Groups, transactions: Groups, client: Client, how: str, slow: str
) -> None:
    broker.lead()
    api: Api = stop_replica.API if how == "stopped" else leader_and_isr.API
    message: Any = StopReplicaRequest(controller_id=9, controller_epoch=1, delete_partitions=True, partitions=[TP])
    if how != "stopped":
        states = [role(TP, 1 if how == "led" else 2, 5, [1, 2], [1, 2])]
        live = [LeaderAndIsrLiveLeader(broker_id=2, host="h2", port=9)]
        message = LeaderAndIsrRequest(controller_id=9, controller_epoch=1, partition_states=states, live_leaders=live)
    coordinator = {"groups": groups, "transactions": transactions}[slow]
    coordinator.may_go_on.clear()
    client.send_request(api, 2, message)
    assert coordinator.is_told.wait(60)
    assert client.answers_nothing_for(0.1), "the coordinator has not taken it in"
    coordinator.may_go_on.set()
    assert client.receive_response(api, 2).error_code == 0
    assert getattr(groups, how) == getattr(transactions, how) == [TP]


@pytest.mark.spec("BRK-32", "BRK-109", "BRK-162", "GRP-15", "TXN-13")
@pytest.mark.parametrize("version", range(3))
def test_stop_replica(broker: World, groups: Groups, transactions: Groups, client: Client, version: int) -> None:
    broker.lead()
    for delete in (False, True):
        message = StopReplicaRequest(controller_id=9, controller_epoch=1, delete_partitions=delete, partitions=[TP])
        response = client.call(stop_replica.API, version, message)
        assert (response.error_code, [p.error_code for p in response.partitions]) == (0, [0])
        told = [TP] if delete else []
        assert (groups.stopped, transactions.stopped) == (told, told), "of those that are deleted alone"
    assert broker.manager.partitions.get(TP) is None


@pytest.mark.spec("BRK-112", "BRK-113", "BRK-24", "GRP-53")
def test_update_metadata(broker: World, groups: Groups, client: Client) -> None:
    for leader in (1, -2):
        response = client.call(update_metadata.API, 5, metadata_request([TP], {1: 9}, leader))
        assert response.error_code == 0
    assert groups.deleted == [TP]
    assert not broker.cache.contains(TP)
    assert client.call(update_metadata.API, 5, metadata_request([TP], {1: 9}, 1, controller_epoch=0)).error_code == 11


@pytest.mark.spec("BRK-159")
@pytest.mark.parametrize(("version", "code"), [(0, 56), (1, 0), (2, 0)])
def test_version_0_does_not_say_that_a_replica_is_new(tmp_path: Path, groups: Groups, version: int, code: int) -> None:
    dirs = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    with world(tmp_path, clock=Clock(), log_dirs=dirs) as broker:
        broker.fail_disk(tmp_path / "a")
        context = handler_context(
            replica_manager=broker.manager, metadata_cache=broker.cache, groups=groups, transactions=Groups()
        )
        message = LeaderAndIsrRequest(
            controller_id=9,
            controller_epoch=1,
            partition_states=[role(TP, 1, 0, [1], [1], is_new=True)],
            live_leaders=[],
        )
        with broker_of({4: load_handlers()[4]}, context) as asking:
            response = asking.call(leader_and_isr.API, version, message)
        assert [p.error_code for p in response.partitions] == [code]
