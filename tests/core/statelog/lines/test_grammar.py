"""The grammar against the specification's test lines, against real Kafka's logs, and against the traps."""

import pytest

from kafkatool.core.model.values import TopicPartition
from kafkatool.core.statelog.lines.details import find_details, number, numbers, recovery_state
from kafkatool.core.statelog.lines.grammar import Actor, parse_head, partition_spans, record_time
from tests.core.statelog.logs import all_lines

HEAD = "[2016-01-01 10:00:00,123] TRACE "


def body_of(message: str) -> str:
    head = parse_head(f"{HEAD}{message} (state.change.logger)")
    assert head
    return head.body


def named(message: str) -> list[tuple[str, int]]:
    body = body_of(message)
    found = [span.read(body) for span in partition_spans(body)]
    return [(partition.topic, partition.partition) for partition in found]


PAYLOAD = "controllerEpoch=1, leader=1, leaderEpoch=0, isr=[1, 2], zkVersion=0, replicas=[1, 2]"
TEST_LINES = [
    (
        f"Broker 1 received LeaderAndIsr request PartitionState({PAYLOAD}) correlation id 1 from controller 0 epoch 1 "
        "for partition [a-1.b,0]",
        Actor("broker", 1, None),
        [("a-1.b", 0)],
        (1, 0, (1, 2)),
    ),
    (
        "Controller 1 epoch 3 sending UpdateMetadata request (Leader:-2,ISR:1,2,LeaderEpoch:0,ControllerEpoch:3) "
        "to brokers Set(1, 2) for partition a-1.b-0",
        Actor("controller", 1, 3),
        [("a-1.b", 0)],
        (-2, 0, (1, 2)),
    ),
    (
        "[Controller id=1] Mark replicas a-1-0,b-12 on broker 2 as offline",
        Actor("controller", 1, None),
        [("a-1", 0), ("b", 12)],
        None,
    ),
    (
        "[Controller id=1 epoch=3] Controller 1 epoch 3 failed to change state for partition x-0 "
        "from NewPartition to OnlinePartition",
        Actor("controller", 1, 3),
        [("x", 0)],
        None,
    ),
    (
        "[Broker id=1] Leader x-0 starts at leader epoch 5 from offset 9 with high watermark 9 ISR [1,2] "
        "addingReplicas [] removingReplicas []. Previous leader epoch was 4.",
        Actor("broker", 1, None),
        [("x", 0)],
        (None, 5, (1, 2)),
    ),
    (
        "[Broker id=1] Received LeaderAndIsr request LeaderAndIsrPartitionState(topicName='x', partitionIndex=0, "
        f"{PAYLOAD}, addingReplicas=[], removingReplicas=[], isNew=true) correlation id 1 from controller 1 epoch 1",
        Actor("broker", 1, None),
        [("x", 0)],
        (1, 0, (1, 2)),
    ),
    (
        "[Controller id=1 epoch=3] Sending UpdateMetadata request to brokers HashSet(1, 2) for 3 partitions",
        Actor("controller", 1, 3),
        [],
        None,
    ),
    (
        "[Controller id=1 epoch=3] Partition x-1 state changed to (Leader:4,ISR:4,2,1,LeaderEpoch:3,ZkVersion:4,"
        "ControllerEpoch:3) after removing replica 3 from the ISR as part of transition to OfflineReplica",
        Actor("controller", 1, 3),
        [("x", 1)],
        (4, 3, (4, 2, 1)),
    ),
    (
        "[Controller id=1] Received error in LeaderAndIsr response LeaderAndIsrResponse(responses="
        "{a-1-0=STALE_CONTROLLER_EPOCH, b-12=NONE}, error=STALE_CONTROLLER_EPOCH) from broker 2",
        Actor("controller", 1, None),
        [("a-1", 0), ("b", 12)],
        None,
    ),
    (
        "Controller 1 epoch 3 received response {error_code=0,partitions=[{topic=x,partition=0,error_code=0},"
        "{topic=y,partition=1,error_code=0}]} for a request sent to broker ip-10-0-0-1:9092 (id: 1 rack: eu-west-1)",
        Actor("controller", 1, 3),
        [("x", 0), ("y", 1)],
        None,
    ),
]


@pytest.mark.spec("SCL-5")
@pytest.mark.parametrize(("message", "actor", "partitions", "leads"), TEST_LINES)
def test_lines_of_the_specification(
    message: str,
    actor: Actor,
    partitions: list[tuple[str, int]],
    leads: tuple[int | None, int, tuple[int, ...]] | None,
) -> None:
    text = f"{HEAD}{message} (state.change.logger)"
    head = parse_head(text)
    assert head
    assert head.actor == actor
    assert head.form is not None
    assert named(message) == partitions
    details, line = find_details(text), text.encode()
    found = (number(line, details.leader), number(line, details.leader_epoch), numbers(line, details.isr))
    assert (None if details.leader_epoch is None else found) == leads


@pytest.mark.spec("SCL-5", "SCL-12X")
def test_every_dated_line_of_real_kafka_has_an_actor_and_a_known_form() -> None:
    dated = [line for line in all_lines() if record_time(line)]
    assert len(dated) > 11_000
    unknown = [line for line in dated if not ((head := parse_head(line)) and head.actor and head.form)]
    assert unknown == []


@pytest.mark.spec("SCL-5")
@pytest.mark.parametrize(
    ("message", "partitions"),
    [
        ("[Broker id=1] Handling stop replica (delete=true) for partition m-2016-01-01-3", [("m-2016-01-01", 3)]),
        ("Controller 1 epoch 2 started leader election for partition [a_b.c-1,12]", [("a_b.c-1", 12)]),
        ("[Controller id=1 epoch=1] Sending become-leader things to ip-10-0-0-1:9092 in eu-west-1", []),
        (
            "[Controller id=1 epoch=1] Received response LeaderAndIsrResponseData(errorCode=0, partitionErrors="
            "[LeaderAndIsrPartitionError(topicName='', partitionIndex=3, errorCode=0)], topics=[]) for request "
            "LEADER_AND_ISR with correlation id 1 sent to broker h:1 (id: 1 rack: null)",
            [],
        ),
        (
            "[Controller id=1 epoch=1] Received response {error_code=0,partitions=[{topic_name=t,partition_index=5,"
            "error_code=0}]} for request STOP_REPLICA with correlation id 1 sent to broker h:1 (id: 1 rack: null)",
            [("t", 5)],
        ),
        ("Controller 0 epoch 1 sent LeaderAndIsr request for partition being reassigned [t,1]", [("t", 1)]),
        ("[Broker id=1] Skipped the state change for partition t-1 (last update controller epoch 2) since", [("t", 1)]),
    ],
)  # fmt: skip
def test_partitions_are_found_by_anchors_and_split_at_the_last_dash(
    message: str, partitions: list[tuple[str, int]]
) -> None:
    assert named(message) == partitions


@pytest.mark.spec("SCL-4")
@pytest.mark.parametrize(
    ("line", "time"),
    [
        ("[2016-01-01 10:00:00,123] TRACE x", "2016-01-01 10:00:00,123"),
        ("2016-01-01 10:00:00,123 TRACE x", "2016-01-01 10:00:00,123"),
        ("[2016-01-01 10:00:00.123] TRACE x", None),
        ("[2016-01-01 10:00:00] TRACE x", None),
        (" [2016-01-01 10:00:00,123] TRACE x", None),
        ("\tat x 2016-01-01 10:00:00,123", None),
    ],
)
def test_a_record_starts_with_a_time_at_the_lines_beginning(line: str, time: str | None) -> None:
    assert record_time(line) == time


@pytest.mark.spec("SCL-12X")
def test_an_error_on_a_broker_has_that_broker_as_actor_and_a_cut_line_still_is_a_record() -> None:
    doing = "while processing LeaderAndIsr request with correlationId 3 received from controller 1 epoch 2"
    head = parse_head(f"{HEAD}Error on broker 7 {doing}")
    assert head
    assert head.actor == Actor("broker", 7, None)
    assert head.form and head.form.id == "A37"


def test_lines_of_another_layout_have_no_head() -> None:
    assert parse_head("[2016-01-01 10:00:00,123] [controller-event-thread] TRACE x (state.change.logger)") is None


def test_spans_are_positions_of_topic_and_number() -> None:
    body = "Changed partition orders-12 state"
    (span,) = partition_spans(body)
    assert span.read(body) == TopicPartition("orders", 12)


THREE = "adding replicas [] and removing replicas []"
PK = (
    "LeaderAndIsrPartitionState(topicName='a-1', partitionIndex=1, controllerEpoch=-1, leader=3, leaderEpoch=3, isr=[3, 2], "
    "partitionEpoch=5, replicas=[2, 3], addingReplicas=[], removingReplicas=[], isNew=false, leaderRecoveryState=0)"
)


@pytest.mark.spec("SCL-24X", "SCL-27X")
@pytest.mark.parametrize(
    ("message", "partition", "told", "mode"),
    [
        (
            "[Controller id=2 epoch=1] Changed partition x.y_z-0 from NewPartition to OnlinePartition with state "
            "LeaderAndIsr(leader=2, leaderEpoch=0, isrWithBrokerEpoch=List(BrokerState(brokerId=2, brokerEpoch=-1), "
            "BrokerState(brokerId=3, brokerEpoch=9)), leaderRecoveryState=RECOVERED, partitionEpoch=4)",
            ("x.y_z", 0),
            (2, (2, 3), 0, 4, None, "RECOVERED", None, None),
            "zookeeper",
        ),
        (
            "[Controller id=1 epoch=3] Partition x.y_z-0 state changed to (Leader:-1,ISR:2,LeaderRecoveryState:RECOVERED,"
            "LeaderEpoch:6,ZkVersion:8,ControllerEpoch:3) after removing replica 2 from the ISR as part of transition to "
            "OfflineReplica",
            ("x.y_z", 0),
            (-1, (2,), 6, 8, None, "RECOVERED", None, None),
            "zookeeper",
        ),
        (
            "[Broker id=1] Leader x-0 with topic id Some(Vx6ztUJrQmy-SNOG8k7j3g) starts at leader epoch 5 from "
            "offset 9 with partition epoch 7, high watermark 9, ISR [1,2], adding replicas [3] and removing replicas [2]. "
            "Previous leader epoch was 4.",
            ("x", 0),
            (None, (1, 2), 5, 7, b"Vx6ztUJrQmy-SNOG8k7j3g", None, (3,), (2,)),
            None,
        ),
        (
            "[Broker id=3] Follower metrics-2016-01-01-0 starts at leader epoch 3 from offset 0 with partition epoch 9 and "
            "high watermark 0. Current leader is 2. Previous leader Some(2) and previous leader epoch was 3.",
            ("metrics-2016-01-01", 0),
            (2, None, 3, 9, None, None, None, None),
            None,
        ),
        (
            "[Broker id=3] Follower solo-2 starts at leader epoch 1 from offset 0 with partition epoch 2 and high watermark "
            "0. Current leader is -1. Previous leader Some(-1) and previous leader epoch was 1.",
            ("solo", 2),
            (-1, None, 1, 2, None, None, None, None),
            None,
        ),
        (
            f"[Broker id=3] Skipped the become-leader state change for a-1-1 with topic id Some(6tDgA3IUSPeaya0xD2xe1Q) and "
            f"partition state {PK} since it is already the leader with leader epoch 3. Current high watermark 0, ISR [3,2], "
            f"{THREE}.",
            ("a-1", 1),
            (3, (3, 2), 3, 5, b"6tDgA3IUSPeaya0xD2xe1Q", "RECOVERED", (), ()),
            "kraft",
        ),
        (
            "[Broker id=1] Unable to start fetching a-1-0 with topic ID -tDgA3IUSPeaya0xD2xe1Q due to KafkaException",
            ("a-1", 0),
            (None, None, None, None, b"-tDgA3IUSPeaya0xD2xe1Q", None, None, None),
            "kraft",
        ),
    ],
)  # fmt: skip
def test_what_lines_of_kafka_three_and_four_tell(
    message: str, partition: tuple[str, int], told: tuple[object, ...], mode: str | None
) -> None:
    text = f"{HEAD}{message} (state.change.logger)"
    details, line = find_details(text), text.encode()
    assert details.shape.known
    assert named(message) == [partition]
    assert (
        number(line, details.leader),
        numbers(line, details.isr),
        number(line, details.leader_epoch),
        number(line, details.partition_epoch),
        line[details.topic_id] if details.topic_id else None,
        recovery_state(line, details),
        numbers(line, details.adding),
        numbers(line, details.removing),
    ) == told
    assert details.shape.mode == mode


@pytest.mark.spec("SCL-24X")
def test_the_one_line_without_an_actor_is_a_controllers() -> None:
    head = parse_head(f"{HEAD}Adding brokers Set(1), removing brokers Set(). (state.change.logger)")
    assert head
    assert head.actor == Actor("controller", None, None)
    assert head.form and head.form.event == "brokers_changed"
