"""The sender of one broker's requests."""

import threading
from collections.abc import Iterator

import pytest

from kafkatool.broker.controller.telling import channels
from kafkatool.broker.controller.telling.channels import BrokerSender, ControlRequest
from kafkatool.broker.state_change_log import StateChangeLog
from kafkatool.core.client.connection import Connection
from kafkatool.core.model.values import BrokerInfo, Endpoint
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataRequest
from tests.stub_broker import StubBroker
from tests.waiting import eventually

BROKER = 4711
REQUEST = ControlRequest(
    5, UpdateMetadataRequest(controller_id=1, controller_epoch=1, partition_states=[], live_brokers=[])
)


@pytest.fixture
def broker() -> Iterator[StubBroker]:
    found = StubBroker()
    yield found
    found.close()


def sender(port: int, *, negotiate: bool) -> BrokerSender:
    return BrokerSender(
        BrokerInfo(BROKER, (Endpoint("PLAINTEXT", "127.0.0.1", port),)),
        listener="PLAINTEXT",
        actor="",
        timeout_ms=30_000,
        client_id="1",
        state_change_log=StateChangeLog(None),
        negotiate=negotiate,
    )


def has_ended() -> bool:
    return not any(t.name == f"controller-to-broker-{BROKER}" for t in threading.enumerate())


@pytest.mark.spec("CTL-16", "CTL-49")
@pytest.mark.parametrize("negotiate", [False, True])
def test_closed_while_it_connects_it_sends_nothing(
    broker: StubBroker, monkeypatch: pytest.MonkeyPatch, *, negotiate: bool
) -> None:
    """Nothing ends a connection that comes about after ``close``."""
    connecting, may_go_on = threading.Event(), threading.Event()

    class Late(Connection):
        def __init__(self, host: str, port: int, *, client_id: str | None, timeout_ms: int) -> None:
            super().__init__(host, port, client_id=client_id, timeout_ms=timeout_ms)
            connecting.set()
            assert may_go_on.wait(60)

    monkeypatch.setattr(channels, "Connection", Late)
    found = sender(broker.port, negotiate=negotiate)
    found.send(REQUEST)
    assert connecting.wait(60)
    found.close()
    may_go_on.set()
    eventually(has_ended, "the end of the sender's thread", 60)
    assert broker.requests == []
