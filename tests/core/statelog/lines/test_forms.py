"""Every template of the table: those in real Kafka's logs are met there, of the others there is a line here."""

import re

import pytest

from kafkatool.core.statelog.lines.forms import EVENTS, all_forms, find_form
from kafkatool.core.statelog.lines.grammar import parse_head
from tests.core.statelog.logs import all_lines

BY = "from controller 1 epoch 3"
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
}

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


@pytest.mark.spec("SCL-5", "SCL-12X")
@pytest.mark.parametrize(("form_id", "body"), [*NOT_IN_CAPTURES.items(), *OLDER_AND_RARER.items()])
def test_forms_known_from_the_source_only(form_id: str, body: str) -> None:
    form = find_form(body)
    assert form is not None
    assert form.id == form_id


@pytest.mark.spec("SCL-5")
def test_every_form_of_the_table_has_a_line_that_fits_it() -> None:
    seen = set(NOT_IN_CAPTURES)
    for line in all_lines():
        if (head := parse_head(line)) and head.form:
            seen.add(head.form.id)
    assert {form.id for forms in all_forms().values() for form in forms} == seen


@pytest.mark.parametrize(
    "body",
    ["", "Metadata batch 3 processed", "changed partition", "Changed partition t state from A to NewPartition", "é"],
)
def test_anything_else_is_of_unknown_form(body: str) -> None:
    assert find_form(body) is None


def test_no_template_holds_a_digit_so_that_lines_of_one_shape_are_of_one_form() -> None:
    for forms in all_forms().values():
        for form in forms:
            literal = re.sub(r"\\[dw]|\{1,249\}|0-9", "", form.pattern.pattern)
            assert not re.search(r"\d", literal), form.id


def test_leader_elected_is_one_event_whatever_the_words() -> None:
    form = find_form("elected leader 2 for Offline partition [t,0]")
    assert form and form.event == "leader_elected"
    assert "leader_elected" in EVENTS
