"""The requests of one event: which, in which order, to whom, and what stands in them."""

from collections.abc import Callable

import pytest

from kafkatool.broker.controller.context import ControllerContext
from kafkatool.broker.controller.gauges import Durations
from kafkatool.broker.controller.telling.channels import Channels, ControlRequest, Message
from kafkatool.broker.controller.telling.request_batch import IllegalBatchError, RequestBatch
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.core.model.values import BrokerInfo, Endpoint, LeaderAndIsr, PartitionState, TopicPartition
from kafkatool.core.protocol.frames import decode_header, decode_request, encode_request
from kafkatool.core.protocol.messages import leader_and_isr, stop_replica, update_metadata
from kafkatool.core.protocol.messages.leader_and_isr import LeaderAndIsrLiveLeader, LeaderAndIsrRequest
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest
from kafkatool.core.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
)

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
EPOCHS = {1: 11, 2: 12, 3: 13}
APIS = {
    LeaderAndIsrRequest: leader_and_isr.API,
    UpdateMetadataRequest: update_metadata.API,
    StopReplicaRequest: stop_replica.API,
}


def info(broker: int) -> BrokerInfo:
    endpoints = (Endpoint("OUT", f"out{broker}", 9000 + broker), Endpoint("IN", f"in{broker}", 9100 + broker, "SSL"))
    return BrokerInfo(broker, endpoints, f"rack{broker}", EPOCHS[broker])


def state(leader: int | None, *isr: int, epoch: int = 4, version: int = 7) -> PartitionState:
    return PartitionState(LeaderAndIsr(leader, epoch, isr, 5), version)


class Sending:
    """A batch of controller 9, epoch 6, that may tell brokers 1, 2 and 3; what it sends, and what it writes of it."""

    def __init__(self, protocol: str = "2.3") -> None:
        self.sent: list[tuple[int, int, Message]] = []  # receiver, version
        self.lines: list[str] = []
        self.context = ControllerContext(9, 6, brokers={b: info(b) for b in (3, 1, 2)})
        self.context.assign("t", {0: (2, 1, 3), 1: (1, 2)})
        self.context.assign("u", {0: (3, 1)})
        channels = Channels(self._open)
        for broker in self.context.brokers.values():
            channels.open(broker)
        settings = {"zookeeper.connect": "x:1", "inter.broker.protocol.version": protocol}
        self.batch = RequestBatch(
            self.context,
            channels,
            "IN",
            BrokerConfig.from_properties(settings).protocol_versions,
            lambda level, messages: self.lines.extend(messages),
            lambda broker, message, answer: None,
            Durations(),
        )

    def _open(self, broker: BrokerInfo) -> "Queue":
        return Queue(lambda request: self.sent.append((broker.id, request.version, request.message)))

    def to(self, broker: int) -> list[Message]:
        return [message for receiver, _, message in self.sent if receiver == broker]

    def kinds(self) -> list[str]:
        return [type(message).__name__ for _, _, message in self.sent]


class Queue:
    def __init__(self, put: Callable[[ControlRequest], None]) -> None:
        self.send = put

    def close(self) -> None: ...


@pytest.mark.spec("CTL-51", "CTL-56", "CTL-12")
def test_roles_come_first_then_metadata_then_stops_then_deletions_one_by_one() -> None:
    sending = Sending()
    sending.context.leadership = {T0: state(1, 1, 2), T1: state(1, 1, 2)}
    with sending.batch.filling():
        sending.batch.add_stop_replica(3, T0, delete=True)
        sending.batch.add_stop_replica(3, U0, delete=True)
        for partition in (T0, U0):
            sending.batch.add_stop_replica(3, partition, delete=False)
        sending.batch.add_stop_replica(2, T1, delete=False)
        for partition in (T0, T1):
            sending.batch.add_leader_and_isr([1, 2], partition, state(1, 1, 2), sending.context.replicas(partition))
        assert sending.sent == [], "nothing before the end"
    assert sending.kinds() == ["LeaderAndIsrRequest"] * 2 + ["UpdateMetadataRequest"] * 3 + ["StopReplicaRequest"] * 4
    assert [b for b, _, _ in sending.sent[:2]] == [1, 2]
    for broker in (1, 2):
        roles = sending.to(broker)[0]
        assert isinstance(roles, LeaderAndIsrRequest)
        assert [(s.topic, s.partition) for s in roles.partition_states] == [T0, T1], "one with all its partitions"
    metadata = [m for _, _, m in sending.sent if isinstance(m, UpdateMetadataRequest)]
    assert all([(s.topic, s.partition) for s in m.partition_states] == [T0, T1] for m in metadata)
    stops = [
        (b, m.delete_partitions, m.partitions, m.controller_id, m.controller_epoch, m.broker_epoch)
        for b, _, m in sending.sent
        if isinstance(m, StopReplicaRequest)
    ]
    assert sorted(stops, key=lambda stop: stop[0]) == [
        (2, False, [T1], 9, 6, 12),
        (3, False, [T0, U0], 9, 6, 13),
        (3, True, [T0], 9, 6, 13),
        (3, True, [U0], 9, 6, 13),
    ]


@pytest.mark.spec("CTL-51", "CTL-54")
def test_nothing_empty_is_sent_but_metadata_that_names_the_brokers() -> None:
    sending = Sending()
    with sending.batch.filling():
        pass
    assert sending.sent == []
    with sending.batch.filling():
        sending.batch.add_metadata()
    assert [b for b, _, _ in sending.sent] == [1, 2, 3]
    for _, _, message in sending.sent:
        assert isinstance(message, UpdateMetadataRequest)
        assert message.partition_states == []
        assert [b.id for b in message.live_brokers] == [1, 2, 3]


@pytest.mark.spec("CTL-52", "CTL-51", "CTL-12")
def test_a_role_told_to_one_is_metadata_for_all_and_nobody_is_broker_minus_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sending = Sending()
    with sending.batch.filling():
        sending.context.leadership[T0] = state(1, 1, 2)
        sending.batch.add_leader_and_isr([2, -1, -2], T0, state(1, 1, 2), (2, 1, 3))
        sending.batch.add_stop_replica(-1, T1, delete=True)
        sending.batch.add_stop_replica(-2, T1, delete=False)
    assert [(b, type(m).__name__) for b, _, m in sending.sent] == [
        (2, "LeaderAndIsrRequest"),
        (1, "UpdateMetadataRequest"),
        (2, "UpdateMetadataRequest"),
        (3, "UpdateMetadataRequest"),
    ]
    assert not caplog.records, "nothing was tried to send to nobody"
    told = [m for _, _, m in sending.sent if isinstance(m, UpdateMetadataRequest)]
    assert [m.broker_epoch for m in told] == [11, 12, 13]
    assert all([(s.topic, s.partition) for s in m.partition_states] == [T0] for m in told)
    assert all((m.partition_states, m.live_brokers) == (told[0].partition_states, told[0].live_brokers) for m in told)


@pytest.mark.spec("CTL-52")
def test_metadata_is_told_even_where_nobody_gets_a_role() -> None:
    sending = Sending()
    with sending.batch.filling():
        sending.batch.add_leader_and_isr([], T0, state(None, 2), (2, 1, 3))
    assert sending.kinds() == ["UpdateMetadataRequest"] * 3


@pytest.mark.spec("CTL-53", "CTL-12", "Z-17")
def test_a_role_is_told_with_its_decision_its_order_and_its_leaders_address() -> None:
    sending = Sending()
    with sending.batch.filling():
        sending.batch.add_leader_and_isr([1], T0, state(2, 3, 2), (2, 1, 3), is_new=True)
        sending.batch.add_leader_and_isr([1], T1, state(None, 2, epoch=8, version=9), (1, 2))
        sending.batch.add_leader_and_isr([1], U0, state(3, 3), (3, 1))
        sending.batch.add_leader_and_isr([2], TopicPartition("u", 1), state(1, 1), (1, 2))
    message = sending.to(1)[0]
    assert isinstance(message, LeaderAndIsrRequest)
    assert (message.controller_id, message.controller_epoch, message.broker_epoch) == (9, 6, 11)
    first, second, third = message.partition_states
    assert (first.topic, first.partition, first.controller_epoch, first.leader, first.leader_epoch) == ("t", 0, 5, 2, 4)
    assert (first.isr, first.zk_version, first.replicas, first.is_new) == ([3, 2], 7, [2, 1, 3], True)
    assert (second.leader, second.leader_epoch, second.isr, second.zk_version) == (-1, 8, [2], 9)
    assert (second.replicas, second.is_new) == ([1, 2], False)
    assert (third.topic, third.leader, third.replicas) == ("u", 3, [3, 1])
    assert message.live_leaders == [
        LeaderAndIsrLiveLeader(broker_id=2, host="in2", port=9102),
        LeaderAndIsrLiveLeader(broker_id=3, host="in3", port=9103),
    ], "those that it names, and no other"


@pytest.mark.spec("CTL-53")
def test_what_is_new_stays_so_where_another_change_of_the_same_batch_is_told_with_it() -> None:
    sending = Sending()
    with sending.batch.filling():
        sending.batch.add_leader_and_isr([1], T0, state(2, 3, 2), (2, 1, 3), is_new=True)
        sending.batch.add_leader_and_isr([1, 3], T0, state(2, 2, epoch=5, version=8), (2, 1, 3))
    told = [(b, s) for b, _, m in sending.sent if isinstance(m, LeaderAndIsrRequest) for s in m.partition_states]
    assert [(b, s.leader_epoch, s.isr, s.is_new) for b, s in told] == [(1, 5, [2], True), (3, 5, [2], False)]


@pytest.mark.spec("CTL-54", "CTL-12")
def test_metadata_names_every_registered_broker_with_all_its_endpoints_and_its_rack() -> None:
    sending = Sending()
    sending.context.leadership = {T0: state(2, 2, 3), T1: state(None, 1)}
    sending.context.shutting_down.add(1)
    sending.context.failed_replicas[T0] = {3}
    with sending.batch.filling():
        sending.batch.add_metadata([T0, T1, U0])  # U0 was never led
    message = sending.to(3)[0]
    assert isinstance(message, UpdateMetadataRequest)
    assert (message.controller_id, message.controller_epoch, message.broker_epoch) == (9, 6, 13)
    assert message.live_brokers == [
        UpdateMetadataBroker(
            id=b,
            endpoints=[
                UpdateMetadataEndpoint(port=9000 + b, host=f"out{b}", listener_name="OUT", security_protocol=0),
                UpdateMetadataEndpoint(port=9100 + b, host=f"in{b}", listener_name="IN", security_protocol=1),
            ],
            rack=f"rack{b}",
        )
        for b in (1, 2, 3)
    ]
    assert [(s.topic, s.partition) for s in message.partition_states] == [T0, T1]
    assert [
        (s.controller_epoch, s.leader, s.leader_epoch, s.isr, s.zk_version, s.replicas, s.offline_replicas)
        for s in message.partition_states
    ] == [(5, 2, 4, [2, 3], 7, [2, 1, 3], [1, 3]), (5, -1, 4, [1], 7, [1, 2], [1])]


@pytest.mark.spec("CTL-55")
def test_partitions_being_deleted_are_in_every_metadata_request_with_leader_minus_two() -> None:
    sending = Sending()
    sending.context.leadership = {T0: state(2, 2, 3), T1: state(1, 1), U0: state(3, 3)}
    sending.context.deleting["t"] = None
    del sending.context.leadership[T1]  # its node is gone already
    with sending.batch.filling():
        sending.batch.add_metadata([U0])
    with sending.batch.filling():
        sending.batch.add_metadata()
    for _, _, message in sending.sent:
        assert isinstance(message, UpdateMetadataRequest)
        leaders = {(s.topic, s.partition): s.leader for s in message.partition_states}
        assert leaders.pop(U0, 3) == 3
        assert leaders == {T0: -2, T1: -2}


@pytest.mark.spec("CTL-12", "CTL-53", "CTL-54", "CTL-56", "BRK-3")
@pytest.mark.parametrize(
    ("protocol", "versions"),
    [
        ("0.10.0", (0, 2, 0)),
        ("0.10.1", (0, 2, 0)),
        ("0.10.2", (0, 3, 0)),
        ("0.11.0", (0, 3, 0)),
        ("1.0", (1, 4, 0)),
        ("1.1", (1, 4, 0)),
        ("2.0", (1, 4, 0)),
        ("2.1", (1, 4, 0)),
        ("2.2", (2, 5, 1)),
        ("2.3", (2, 5, 1)),
    ],
)
def test_what_is_on_the_wire_in_each_protocol(protocol: str, versions: tuple[int, int, int]) -> None:
    sending = Sending(protocol)
    sending.context.brokers.pop(3)
    sending.context.leadership[T0] = state(2, 3, 2)
    with sending.batch.filling():
        sending.batch.add_leader_and_isr([1], T0, state(2, 3, 2), (2, 1, 3), is_new=True)
        sending.batch.add_stop_replica(1, T1, delete=True)
    messages = [(version, message) for receiver, version, message in sending.sent if receiver == 1]
    assert tuple(version for version, _ in messages) == versions
    read = []
    for version, message in messages:
        api = APIS[type(message)]
        frame = encode_request(api, version, 1, "9", message)[4:]
        read.append(decode_request(api, version, frame, decode_header(api, frame)[1]))
    roles, metadata, stop = read
    assert (leader_and_isr.API.key, update_metadata.API.key, stop_replica.API.key) == (4, 6, 5)
    assert {(m.controller_id, m.controller_epoch) for m in read} == {(9, 6)}
    assert [m.broker_epoch for m in read] == ([11] * 3 if protocol >= "2.2" else [-1] * 3)
    assert roles.partition_states[0].is_new is (versions[0] >= 1)
    assert metadata.partition_states[0].offline_replicas == ([3] if versions[1] >= 4 else [])
    assert metadata.live_brokers[0].rack == "rack1" and len(metadata.live_brokers[0].endpoints) == 2
    assert (stop.delete_partitions, stop.partitions) == (True, [T1])


@pytest.mark.spec("CTL-50")
def test_a_batch_begun_while_another_is_open_is_dropped_and_an_error_in_filling_is_not() -> None:
    sending = Sending()
    with pytest.raises(IllegalBatchError), sending.batch.filling():
        sending.batch.add_metadata()
        with sending.batch.filling():
            pass
    assert sending.sent == []
    with pytest.raises(ValueError, match="on purpose"), sending.batch.filling():
        sending.batch.add_metadata()
        raise ValueError("on purpose")
    assert sending.kinds() == ["UpdateMetadataRequest"] * 3
    with sending.batch.filling():
        pass
    assert len(sending.sent) == 3, "it begins empty"


@pytest.mark.spec("CTL-23", "CTL-117")
def test_each_partition_of_each_request_is_a_line() -> None:
    sending = Sending()
    sending.context.leadership = {T0: state(2, 3, 2)}
    with sending.batch.filling():
        sending.batch.add_leader_and_isr([1, 2], T0, state(2, 3, 2), (2, 1, 3), is_new=True)
        sending.batch.add_stop_replica(3, T0, delete=False)
        sending.batch.add_stop_replica(3, T0, delete=True)
        sending.batch.add_stop_replica(8, T0, delete=False)  # has no channel: nothing is sent
    role = (
        "LeaderAndIsr request PartitionState(controllerEpoch=5, leader=2, leaderEpoch=4, isr=3,2, zkVersion=7, "
        "replicas=2,1,3, isNew=true) to broker"
    )
    stop = "Sending StopReplica request StopReplicaPartitionState(partitionIndex=0, leaderEpoch=4, deletePartition="
    assert sending.lines == [
        f"Sending become-follower {role} 1 for partition t-0",
        f"Sending become-leader {role} 2 for partition t-0",
        "Sending UpdateMetadata request PartitionState(controllerEpoch=5, leader=2, leaderEpoch=4, isr=[3, 2], "
        "zkVersion=7, replicas=[2, 1, 3], offlineReplicas=[]) to brokers Set(1, 2, 3) for partition t-0",
        f"{stop}false) to broker 3 for partition t-0",
        f"{stop}true) to broker 3 for partition t-0",
    ]
