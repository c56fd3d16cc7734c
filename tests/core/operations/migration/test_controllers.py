"""What is known of the controllers of a migration where they do not tell all of it."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from kafkatool.core.client.addresses import Address
from kafkatool.core.client.controllers import ControllerClient
from kafkatool.core.client.settings import ClientSettings
from kafkatool.core.errors import BrokerUnreachableError
from kafkatool.core.operations.migration import controllers as asking
from kafkatool.core.operations.migration.controllers import Controllers, ask_controllers, none_answers
from kafkatool.core.protocol.messages import describe_cluster, describe_quorum
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.core.client.fake_broker import NO_KAFKA, FakeBroker
from tests.core.client.fake_controller import FakeController
from tests.ports import free_port

pytestmark = pytest.mark.spec("ADM-100", "ADM-101")
SETTINGS = ClientSettings(client_id="kt-migrate", software_version="9.1", retry_backoff_ms=1, retries=1)


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeController]:
    monkeypatch.setattr(asking, "LIMIT_MS", 120_000)  # it may stand still for a while
    with FakeController(3000, {describe_quorum.API: (0, 1)}) as running:
        yield running


def asked(*addresses: Address, settings: ClientSettings = SETTINGS) -> Controllers:
    with ControllerClient(addresses, settings) as client:
        return ask_controllers(client)


def unheard(*addresses: Address, settings: ClientSettings = SETTINGS) -> Controllers:
    with pytest.raises(BrokerUnreachableError) as failure:
        asked(*addresses, settings=settings)
    return none_answers(failure.value)


def test_only_where_each_address_refuses_the_connection_nobody_is_taken_to_run_there(
    controller: FakeController,
) -> None:
    nobody, neither = Address("127.0.0.1", free_port()), Address("127.0.0.1", free_port())
    found = unheard(nobody, neither)
    assert found.refused and found.unreachable.count(": refused") == 2
    hurried = replace(SETTINGS, whole_timeout_ms=1)  # the second is not tried any more
    assert not unheard(nobody, controller.address, settings=hurried).refused
    controller.answers[describe_cluster.API.key] = lambda _: None  # as where a login is asked for
    found = unheard(nobody, controller.address)
    assert not found.refused and "does its listener ask for a login" in found.unreachable
    with FakeBroker(1, newest_api_versions=NO_KAFKA) as strange:
        found = unheard(strange.address, nobody)
    assert not found.refused and "speaks TLS or is no Kafka broker" in found.unreachable


def test_a_quorum_has_no_leader_only_where_an_answer_says_so(controller: FakeController) -> None:
    def answers(code: int = 0, partition_code: int = 0, *, leader: int = -1) -> Controllers:
        partition = describe_quorum.DescribedQuorumPartition(
            partition_index=0,
            error_code=partition_code,
            leader_id=leader,
            leader_epoch=1,
            high_watermark=9,
            current_voters=[],
            observers=[],
        )
        topic = describe_quorum.DescribedQuorumTopic(topic_name=describe_quorum.METADATA_TOPIC, partitions=[partition])
        answer = describe_quorum.DescribeQuorumResponse(error_code=code, topics=[] if code else [topic])
        controller.answers[describe_quorum.API.key] = lambda _: answer
        return asked(controller.address)

    said = answers()
    assert (said.quorum.leader, said.untold, said.are_complete) == (None, "", False)
    led = answers(leader=3000)
    assert (led.quorum.leader, led.untold, led.are_complete) == (3000, "", True)
    forbidden = answers(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert forbidden.quorum.leader is None and "not permitted: Describe on cluster" in forbidden.untold
    assert sorted(forbidden.told) == [3000] and not forbidden.are_complete
    assert answers(partition_code=ErrorCode.NOT_LEADER_FOR_PARTITION).untold
    controller.answers[describe_quorum.API.key] = lambda _: describe_quorum.DescribeQuorumResponse(topics=[])
    assert asked(controller.address).untold == "its leader tells nothing of it"
    controller.answers[describe_quorum.API.key] = lambda _: None
    assert asked(controller.address).untold


def test_an_active_controller_that_has_not_registered_is_no_missing_leader(controller: FakeController) -> None:
    controller.knows = []  # as before metadata.version 3.7-IV0
    found = asked(controller.address)
    assert found.untold == "controller 3000 leads it, and has not registered its address" and not found.told
    controller.controller_id = -1
    found = asked(controller.address)
    assert (found.quorum.leader, found.untold) == (None, "")
