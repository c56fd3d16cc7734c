"""Every template of the table: those in real Kafka's logs are met there, of the others there is a line here."""

import re

import pytest

from kafkatool.core.statelog.lines.forms import EVENTS, all_forms, find_form
from kafkatool.core.statelog.lines.grammar import parse_head, partition_spans, record_time
from tests.core.statelog.logs import all_lines, lines_of, story

BY = "from controller 1 epoch 3"
ID = "U4anqfzWR6GYpMIJ0bvrdg"
PK = (
    "LeaderAndIsrPartitionState(topicName='t', partitionIndex=0, controllerEpoch=-1, leader=1, leaderEpoch=3, isr=[1, 2], "
    "partitionEpoch=5, replicas=[1, 2], addingReplicas=[], removingReplicas=[], isNew=false, leaderRecoveryState=0)"
)
LI = "(Leader:4,ISR:4,2,LeaderEpoch:3,ControllerEpoch:3)"

NOT_IN_CAPTURES = {
    "A6": "encountered error while changing partition [t,0]'s state from New to Online since LeaderAndIsr path already "
    'exists with value {"leader":1,"leader_epoch":0,"isr":[1,2]} and controller epoch 4',
    "A8": "aborted leader election for partition [t,0] since the LeaderAndIsr path was already written by another "
    "controller. This probably means that the current controller 1 went through a soft failure and another controller "
    "was elected with epoch 5.",
    "A17": "failed to send LeaderAndIsr request with new assigned replica list 1,2 to leader for partition being "
    "reassigned [t,0]",
    "A19": "ignoring stop replica (delete=false) for partition t-0 as replica doesn't exist on broker",
    "A21": "received stop replica request from an old controller epoch 2. Latest known controller epoch is %d 3",
    "A24": "ignoring LeaderAndIsr request from controller 1 with correlation id 9 since its controller epoch 2 is old. "
    "Latest known controller epoch is 3",
    "A30": f"while processing LeaderAndIsr request correlationId 5 received {BY} for partition t-0",
    "A37": f"while processing LeaderAndIsr request with correlationId 5 received {BY}",
    "B8": "Failed to send LeaderAndIsr request with new assigned replica list 1,2 to leader for partition being "
    "reassigned t-0",
    "B15": "Received stop replica request from an old controller epoch 2. Latest known controller epoch is 3",
    "B20": "Ignoring LeaderAndIsr request from controller 1 with correlation id 9 epoch 3 for partition t-0 as itself is "
    "not in assigned replica list 1,2",
    "C9": "Failed to send LeaderAndIsr request with new replica assignment ReplicaAssignment(replicas=1,2, "
    "addingReplicas=2, removingReplicas=) to leader for partition being reassigned t-0",
    "C10": "Received error UNKNOWN_SERVER_ERROR in UpdateMetadata response UpdateMetadataResponseData(errorCode=-1) from "
    "broker 2",
    "C20": "Ignoring StopReplica request from controller 1 with correlation id 9 since its controller epoch 2 is old. "
    "Latest known controller epoch is 3",
    "C35": "A ZooKeeper client exception has occurred. makeFollower will be skipping the state change for the partition "
    "t-0 with leader epoch: 3",
    "D8": "The topic partition t-0 was marked as RECOVERING. Marking the topic partition as RECOVERED.",
    "D9": f"Topic ID in memory: {ID} does not match the topic ID for partition t-0 received: {ID}.",
    "D10": f"Updating log for t-0 to assign topic ID {ID} from LeaderAndIsr request from controller 1 with correlation id 9 "
    "epoch 3",
    "D11": f"Updating PartitionFetchState for t-0 to remove log topic ID {ID} since LeaderAndIsr request from controller 1 "
    "with correlation id 9 epoch 3 did not contain a topic ID",
    "D12": f"Skipped the update topic ID step of the become-follower state change with correlation id 9 {BY} for partition "
    "t-0 since it is shutting down",
    "D13": f"Error while processing LeaderAndIsr request with correlationId 5 received {BY} when trying to update topic IDs "
    "in the fetchers",
    "D14": "Adding brokers Set(1 : (EndPoint(h,9092,ListenerName(PLAINTEXT),PLAINTEXT)) : null : Features{}), removing "
    "brokers Set().",
    "D15": "Found a-1-0,b-12 on broker 2 as offline",
    "D16": "Received error NOT_CONTROLLER in StopReplica request for partition t-0 from broker 2",
    "D17": "While handling full LeaderAndIsr request from KRaft controller 3000 with correlation id 9, found 2 stray "
    "partition(s).",
    "D18": f"Removing 2 partition(s) from topic t with ID {ID} from the metadata cache since the full UMR did not include "
    "them.",
    "D19": "Received UpdateMetadataRequest with Type=FULL (2), but no deleted topics were detected.",
    "E3": f"Creating new partition t-0 with topic id {ID}.A topic with the same name but different id exists but it resides "
    "in an offline log directory.",
    "E5": f"Unable to bring up new local leader t-0 with topic id {ID} because it resides in an offline log directory.",
    "E8": f"Skipped the become-follower state change for t-0 with topic id Some({ID}) and partition state {PK} since the "
    "follower is already at a newer partition epoch 6.",
    "E11": "Unable to delete replica t-0 because we got an unexpected java.io.IOException exception: disk: on fire",
    "E13": f"Skipped the become-leader state change for t-0 with topic id {ID} due to a storage error on fire",
    "E14": f"Unable to start fetching t-0 with topic ID {ID} due to KafkaException",
    "E15": f"Unable to start fetching t-0 with topic ID Some({ID}) from leader Some(-1) because it is not alive.",
    "E16": "Unable to delete stray replica t-0 because the local replica for the partition is in an offline log directory: x"
    ".",
    "E17": f"Skipped the become-leader state change for t-0 with topic id {ID} because this partition is already a local "
    "leader.",
}

SENT = "LeaderAndIsrPartitionState(topicName='t', partitionIndex=0, controllerEpoch=1, leader=1, leaderEpoch=3, isr=[1, 2], "
STARTED = "starts at leader epoch 5 from offset 9 with"
OF_THREE = (
    [
        (
            "B2",
            "Changed partition t-0 from NewPartition to OnlinePartition with state LeaderAndIsr(leader=1, leaderEpoch=0, "
            f"{payload})",
        )
        for payload in (
            "isr=List(1, 2), zkVersion=0",
            "isr=List(1, 2), leaderRecoveryState=RECOVERED, zkVersion=0",
            "isr=List(1, 2), leaderRecoveryState=RECOVERING, partitionEpoch=0",
            "isrWithBrokerEpoch=List(BrokerState(brokerId=1, brokerEpoch=-1), BrokerState(brokerId=2, brokerEpoch=7)), "
            "leaderRecoveryState=RECOVERED, partitionEpoch=0",
            "isrWithBrokerEpoch=List(), leaderRecoveryState=RECOVERED, partitionEpoch=0",
        )
    ]
    + [
        (
            "C6",
            f"Partition t-0 state changed to (Leader:-1,ISR:1,{payload}) after removing replica 1 from the ISR as part of "
            "transition to OfflineReplica",
        )
        for payload in (
            "LeaderEpoch:3,ControllerEpoch:1",
            "LeaderEpoch:3,ZkVersion:4,ControllerEpoch:1",
            "LeaderRecoveryState:RECOVERED,LeaderEpoch:3,ZkVersion:4,ControllerEpoch:1",
        )
    ]
    + [
        (
            "C8",
            f"Sent LeaderAndIsr request (Leader:1,ISR:1,{payload}) with new replica assignment "
            "ReplicaAssignment(replicas=1,2, addingReplicas=, removingReplicas=) to leader 1 for partition being reassigned "
            "t-0",
        )
        for payload in (
            "LeaderEpoch:3,ControllerEpoch:1",
            "LeaderEpoch:3,ZkVersion:4,ControllerEpoch:1",
            "LeaderRecoveryState:RECOVERED,LeaderEpoch:3,ZkVersion:4,ControllerEpoch:1",
        )
    ]
    + [
        (form_id, message.replace("{}", f"{payload})"))
        for form_id, message in (
            ("B12", f"Sending become-leader LeaderAndIsr request {SENT}{{}} to broker 2 for partition t-0"),
            ("C24", f"Received LeaderAndIsr request {SENT}{{}} correlation id 7 {BY}"),
        )
        for payload in (
            "zkVersion=4, replicas=[1, 2], addingReplicas=[], removingReplicas=[], isNew=true",
            "zkVersion=4, replicas=[1, 2], addingReplicas=[], removingReplicas=[], isNew=true, leaderRecoveryState=1",
            "partitionEpoch=4, replicas=[1, 2], addingReplicas=[], removingReplicas=[], isNew=true, leaderRecoveryState=0",
        )
    ]
    + [
        (
            "D6",
            f"Leader t-0 with topic id {topic_id} {STARTED} partition epoch 7, high watermark 9, ISR [1,2], adding replicas "
            f"[] and removing replicas []{rest} epoch was 4.",
        )
        for topic_id, rest in (
            (f"Some({ID})", ". Previous leader"),
            (f"Some({ID})", " . Previous leader"),
            ("None", " (under-min-isr). Previous leader"),
            ("None", " . Previous leader None and previous leader"),
            (f"Some({ID})", " . Previous leader Some(-1) and previous leader"),
        )
    ]
    + [
        ("D7", f"Follower t-0 {STARTED} partition epoch 7 and high watermark 9. Current leader is {rest} epoch was 4.")
        for rest in ("2. Previous leader", "-1. Previous leader Some(-1) and previous leader")
    ]
    + [
        (
            "D8",
            "The topic partition t-0 was marked as RECOVERING. Leader log recovery is not implemented. Marking the topic "
            "partition as RECOVERED.",
        ),
        (
            "B24",
            f"Skipped the become-leader state change with correlation id 9 {BY} for partition t-0 (last update controller "
            "epoch 3) since the replica for the partition is offline due to storage error x",
        ),
        ("C17", "Sending StopReplica request (delete = false) for 3 replicas to broker 2"),
        (
            "C35",
            "A ZooKeeper client exception has occurred and makeLeader will be skipping the state change for the partition "
            "t-0 with leader epoch: 3.",
        ),
        (
            "D16",
            "Received error NOT_CONTROLLER in StopReplica response StopReplicaResponseData(errorCode=41) from broker 2",
        ),
        ("D18", f"Removing topic t with ID {ID} from the metadata cache since the full UMR did not include it."),
        ("D18", "Error: java.lang.IllegalStateException"),
        (
            "E8",
            f"Skipped the become-leader state change for t-0 with topic id Some({ID}) and partition state {PK} since the "
            "leader is already at a newer partition epoch 6.",
        ),
        (
            "E11",
            "Unable to delete replica t-0 because the local replica for the partition is in an offline log directory",
        ),
        ("E14", f"Unable to start fetching t-0 with topic ID {ID} due to a storage error x"),
        (
            "E16",
            "Unable to delete stray replica t-0 because we got an unexpected java.io.IOException exception: disk: x",
        ),
        ("E15", f"Unable to start fetching t-0 with topic ID {ID} from leader 2 because it is not alive."),
        (
            "E17",
            f"Skipped the become-follower state change after marking its partition as follower for partition t-0 with id "
            f"{ID} and partition state {PK}.",
        ),
        ("E17", f"Skipped the become-leader state change for t-0 with topic id {ID} due to disk error x"),
        ("E17", f"Unable to start fetching t-0 with topic ID {ID} because the replica manager is shutting down."),
    ]
)
"""Of Kafka 3.0 to 4.1: what the captures of 3.9.1 and 4.1.0 do not show of forms that changed on the way."""

OLDER_AND_RARER = {
    "A14": f"sending become-leader LeaderAndIsr request {LI} with correlationId 8 to broker 2 for partition [t,0]",
    "A15": f"sending UpdateMetadata request {LI} with correlationId 8 to broker 2 for partition [t,0]",
    "A23": f"received LeaderAndIsr request (LeaderAndIsrInfo:{LI},ReplicationFactor:2),AllReplicas:1,2) correlation id 8 "
    f"{BY} for partition [t,0]",
    "A26": "ignoring LeaderAndIsr request from controller 1 with correlation id 9 epoch 3 for partition [t,0] since its "
    "associated leader epoch 1 is old. Current leader epoch is 2",
    "A29": f"stopped fetchers as part of become-leader request {BY} with correlation id 7 for partition [t,0]",
    "B12": "Sending become-leader LeaderAndIsr request PartitionState(controllerEpoch=1, leader=1, leaderEpoch=0, isr=1,2, "
    "zkVersion=0, replicas=1,2, isNew=true) to broker 2 for partition t-0",
    "B14": "Ignoring stop replica (delete=true) for partition t-0 as replica doesn't exist on broker",
    "C15": "Sending UpdateMetadata request to brokers Set(1, 2) for 3 partitions",
    "C21": "Ignoring StopReplica request (delete=true) from controller 1 with correlation id 9 epoch 3 for partition t-0 "
    "due to an unexpected java.io.IOException exception: disk: on fire",
    "C25": "Ignoring LeaderAndIsr request from controller 1 with correlation id 9 epoch 3 for partition t-0 since its "
    "associated leader epoch 1 is smaller than the current leader epoch 2",
}
OTHER_SPELLINGS = [
    ("A15", f"sending UpdateMetadata request {LI} to broker 2 for partition t-0"),
    ("A21", "received stop replica request from an old controller epoch 2. Latest known controller epoch is 3"),
    ("B25", f"Error while processing LeaderAndIsr request with correlationId 5 received {BY}"),
    (
        "C21",
        "Ignoring StopReplica request (delete=true) from controller 1 with correlation id 9 epoch 3 for partition t-0 "
        "since its associated leader epoch 1 is smaller than the current leader epoch 2",
    ),
    (
        "C35",
        f"Topic Id in memory: {ID} does not match the topic Id for partition t-0 provided in the request: {ID}.",
    ),
]
"""Of forms that the captures show in another spelling."""
KNOWN_FROM_SOURCE = [*NOT_IN_CAPTURES.items(), *OLDER_AND_RARER.items(), *OTHER_SPELLINGS, *OF_THREE]


@pytest.mark.spec("SCL-5", "SCL-12X", "SCL-24X")
@pytest.mark.parametrize(("form_id", "body"), KNOWN_FROM_SOURCE)
def test_forms_known_from_the_source_only(form_id: str, body: str) -> None:
    form = find_form(body)
    assert form is not None
    assert form.id == form_id


NAMED = re.compile(r"(?<![\w.-])t-0(?![\w-])|\[t, ?0\]|topicName='t', partitionIndex=0")
"""A look at the words alone: the lines here name no other partition, but for one of them."""


@pytest.mark.spec("SCL-5", "SCL-24X")
@pytest.mark.parametrize(("form_id", "body"), KNOWN_FROM_SOURCE)
def test_the_partitions_that_such_lines_name(form_id: str, body: str) -> None:
    expected = [("a-1", 0), ("b", 12)] if form_id == "D15" else [("t", 0)] * bool(NAMED.search(body))
    assert [span.read(body) for span in partition_spans(body)] == expected


@pytest.mark.spec("SCL-5", "SCL-24X")
def test_every_template_of_the_table_has_a_line_that_fits_it() -> None:
    seen = {find_form(body) for _, body in KNOWN_FROM_SOURCE}
    for line in all_lines():
        if (head := parse_head(line)) and head.form:
            seen.add(head.form)
    assert {form for forms in all_forms().values() for form in forms} == seen
    ids = {form.id for form in seen if form}
    assert {f"D{number}" for number in range(6, 20)} | {f"E{number}" for number in range(1, 18)} <= ids


@pytest.mark.spec("SCL-24X")
@pytest.mark.parametrize("version", ["3.9.1", "4.1.0"])
def test_every_dated_line_of_the_captures_is_of_a_known_form(version: str) -> None:
    heads = [parse_head(line) for path in story(version) for line in lines_of(path) if record_time(line)]
    assert len(heads) == {"3.9.1": 3273, "4.1.0": 677}[version]
    assert [head for head in heads if head is None or head.form is None or head.actor is None] == []


@pytest.mark.parametrize(
    "body",
    ["", "Metadata batch 3 processed", "changed partition", "Changed partition t state from A to NewPartition", "é"],
)
def test_anything_else_is_of_unknown_form(body: str) -> None:
    assert find_form(body) is None


def test_no_template_holds_a_digit_so_that_lines_of_one_shape_are_of_one_form() -> None:
    for forms in all_forms().values():
        for form in forms:
            literal = re.sub(r"\\[dw]|\{1,249\}|\{22\}|0-9", "", form.pattern.pattern)
            assert not re.search(r"\d", literal), form.id


def test_leader_elected_is_one_event_whatever_the_words() -> None:
    form = find_form("elected leader 2 for Offline partition [t,0]")
    assert form and form.event == "leader_elected"
    assert "leader_elected" in EVENTS
