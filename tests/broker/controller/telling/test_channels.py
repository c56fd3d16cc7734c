"""The sender of one broker's requests."""

import threading
from collections.abc import Iterator

import pytest

from kafkatool.broker.controller.telling import channels
from kafkatool.broker.controller.telling.channels import BrokerSender, Channels, ControlRequest
from kafkatool.broker.state_change_log import StateChangeLog
from kafkatool.core.client.connection import Connection
from kafkatool.core.errors import BrokerUnreachableError
from kafkatool.core.model.values import BrokerInfo, Endpoint
from kafkatool.core.protocol.messages.leader_and_isr import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrResponsePartition,
)
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from kafkatool.core.security.client_security import ClientSecurity
from tests.broker.controller.fake_cluster import KeptLines
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
        security=None,
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
        def __init__(
            self, host: str, port: int, *, client_id: str | None, timeout_ms: int, security: ClientSecurity | None
        ) -> None:
            super().__init__(host, port, client_id=client_id, timeout_ms=timeout_ms, security=security)
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


def update(epoch: int) -> ControlRequest:
    message = UpdateMetadataRequest(controller_id=1, controller_epoch=epoch, partition_states=[], live_brokers=[])
    return ControlRequest(5, message)


class Scripted:
    """A connection to the broker's second listener; what it does with each request is told."""

    def __init__(
        self,
        script: "Script",
        host: str,
        port: int,
        *,
        client_id: str | None,
        timeout_ms: int,
        security: ClientSecurity | None,
    ) -> None:
        assert (host, port, client_id, timeout_ms, security) == ("inner", 2, "1", 30_000, None)
        self.host, self.port, self._script = host, port, script
        script.done.append("connect")

    def send(self, api: object, version: int, message: UpdateMetadataRequest) -> UpdateMetadataResponse:
        return self._script.answer(message.controller_epoch)

    def close(self) -> None:
        self._script.done.append("close")


class Script:
    """What happens to the requests of one sender, and what its thread did so far."""

    def __init__(self, failures: int) -> None:
        self.done: list[str] = []
        self.waits: list[float | None] = []
        self.on_wire = 0
        self.may_answer = threading.Event()
        self.may_answer.set()
        self._failures = failures

    def answer(self, number: int) -> UpdateMetadataResponse:
        self.on_wire += 1
        assert self.on_wire == 1, "one in flight"
        self.done.append(f"send {number}")
        assert self.may_answer.wait(60)
        self.on_wire -= 1
        if number == 1 and self._failures:
            self._failures -= 1
            raise BrokerUnreachableError("the connection ended")
        return UpdateMetadataResponse()


def scripted(script: Script, monkeypatch: pytest.MonkeyPatch) -> BrokerSender:
    monkeypatch.setattr(channels, "Connection", lambda *a, **k: Scripted(script, *a, **k))
    endpoints = (Endpoint("OUTER", "outer", 1), Endpoint("INNER", "inner", 2))
    found = BrokerSender(
        BrokerInfo(BROKER, endpoints),
        listener="INNER",
        actor="",
        timeout_ms=30_000,
        client_id="1",
        state_change_log=StateChangeLog(None),
        security=None,
    )
    closed = found._closed  # noqa: SLF001
    wait = closed.wait

    def noted(timeout: float | None = None) -> bool:
        script.waits.append(timeout)
        return wait(0)

    monkeypatch.setattr(closed, "wait", noted)
    return found


@pytest.mark.spec("CTL-49")
def test_requests_go_in_order_each_repeated_over_a_new_connection_until_it_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = Script(failures=3)
    script.may_answer.clear()
    found = scripted(script, monkeypatch)
    answered = threading.Semaphore(0)
    order: list[int] = []
    for number in (1, 2, 3):

        def note(_: object, number: int = number) -> None:
            order.append(number)
            answered.release()

        found.send(update(number)._replace(on_answer=note))
    eventually(lambda: script.on_wire == 1, "the first to be on its way, with two behind it", 60)
    script.may_answer.set()
    for _ in range(3):
        assert answered.acquire(timeout=60)
    found.close()
    eventually(has_ended, "the end of the sender's thread", 60)
    steps = [*["connect", "send 1", "close"] * 3, "connect", "send 1", "send 2", "send 3"]
    assert script.done[: len(steps)] == steps and set(script.done[len(steps) :]) == {"close"}
    assert order == [1, 2, 3]
    assert script.waits == [0.1] * 3, "every 100 ms"


@pytest.mark.spec("CTL-49")
def test_a_broker_that_is_removed_is_tried_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(failures=10**9)
    found = scripted(script, monkeypatch)
    found.send(update(1))
    found.send(update(2))
    eventually(lambda: len(script.done) > 1000, "it to try again and again", 60)
    found.close()
    eventually(has_ended, "the end of the sender's thread", 60)
    assert "send 2" not in script.done


@pytest.mark.spec("CTL-17", "CTL-49")
def test_the_answer_of_a_broker_that_is_removed_meanwhile_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(failures=0)
    script.may_answer.clear()
    found = scripted(script, monkeypatch)
    answers: list[object] = []
    found.send(update(1)._replace(on_answer=answers.append))
    eventually(lambda: script.on_wire == 1, "the request to be on its way", 60)
    found.close()
    script.may_answer.set()
    eventually(has_ended, "the end of the sender's thread", 60)
    assert answers == [] and script.on_wire == 0, "though it came"


@pytest.mark.spec("CTL-49")
def test_a_request_for_a_broker_without_channel_is_dropped_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    sent: list[tuple[int, ControlRequest]] = []

    class Kept:
        def __init__(self, broker: BrokerInfo) -> None:
            self.send = lambda request: sent.append((broker.id, request))

        def close(self) -> None: ...

    found = Channels(Kept)
    found.open(BrokerInfo(1, ()))
    for broker in (1, 2):
        found.send(broker, REQUEST)
    found.close(1)
    found.send(1, REQUEST)
    assert sent == [(1, REQUEST)]
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", f"not sending UpdateMetadataRequest to broker {broker}, which is offline") for broker in (2, 1)
    ]


@pytest.mark.spec("CTL-49")
def test_a_broker_has_one_channel_and_another_when_its_address_changes() -> None:
    did: list[str] = []

    class Noted:
        def __init__(self, broker: BrokerInfo) -> None:
            (self.name,) = (e.host for e in broker.endpoints)
            did.append(f"open {self.name}")

        def send(self, request: ControlRequest) -> None:
            did.append(f"send {self.name}")

        def close(self) -> None:
            did.append(f"close {self.name}")

    found = Channels(Noted)
    for host in ("old", "old", "new"):
        found.open(BrokerInfo(1, (Endpoint("PLAINTEXT", host, 9092),)))
    found.send(1, REQUEST)
    found.close_all()
    assert did == ["open old", "close old", "open new", "send new", "close new"]


@pytest.mark.spec("CTL-23", "CTL-61")
def test_what_a_broker_answers_is_a_line_with_the_controllers_id_and_epoch(broker: StubBroker) -> None:
    """Codes 11 and 3 are noted there; and nothing is sent again for them."""
    entries = [LeaderAndIsrResponsePartition(topic="t", partition=n, error_code=code) for n, code in ((0, 11), (1, 3))]
    broker.answers[4] = LeaderAndIsrResponse(partitions=entries)
    kept = KeptLines()
    found = BrokerSender(
        BrokerInfo(BROKER, (Endpoint("PLAINTEXT", "127.0.0.1", broker.port),)),
        listener="PLAINTEXT",
        actor="[Controller id=9 epoch=6] ",
        timeout_ms=60_000,
        client_id="9",
        state_change_log=kept,
        security=None,
    )
    done = threading.Event()
    roles = LeaderAndIsrRequest(controller_id=9, controller_epoch=6, partition_states=[], live_leaders=[])
    stop = StopReplicaRequest(controller_id=9, controller_epoch=6, delete_partitions=True, partitions=[])
    found.send(ControlRequest(2, roles))
    found.send(ControlRequest(1, stop))
    found.send(REQUEST._replace(on_answer=lambda _: done.set()))
    assert done.wait(60)
    found.close()
    node = f"sent to broker 127.0.0.1:{broker.port} (id: {BROKER} rack: null)"
    codes = "{topic=t,partition=0,error_code=11},{topic=t,partition=1,error_code=3}"
    assert kept.lines == [
        ("TRACE", f"[Controller id=9 epoch=6] Received response {{error_code=0{more}}} for request {name} "
         f"with correlation id {number} {node}")
        for number, (name, more) in enumerate([
            ("LEADER_AND_ISR", f",partitions=[{codes}]"), ("STOP_REPLICA", ",partitions=[]"), ("UPDATE_METADATA", ""),
        ], 1)
    ]  # fmt: skip
    assert len(broker.requests) == 3
