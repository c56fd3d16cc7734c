"""The grammar against the specification's test lines, against real Kafka's logs, and against the traps."""

import pytest

from kafkatool.core.model.values import TopicPartition
from kafkatool.core.statelog.lines.details import find_details, number, numbers
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
    assert len(dated) > 7000
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
