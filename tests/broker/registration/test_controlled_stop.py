"""A stopping broker asks whoever is controller to take its leaders away, a few times at most."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kafkatool.broker.handlers.call import Call, load_handlers
from kafkatool.broker.registration.controlled_stop import ask_to_move_leaders
from kafkatool.broker.registration.registration import make_base_paths
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.core.model.values import BrokerInfo, Endpoint, TopicPartition
from kafkatool.core.protocol.messages.controlled_shutdown import API
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.zookeeper.session import ANY_VERSION, ZooKeeper
from kafkatool.core.zookeeper.znodes import BrokerZnode, ControllerZnode
from tests.broker.handlers.served import broker_of, handler_context
from tests.ports import free_port

SERVED = {API.key: load_handlers()[API.key]}
Answer = tuple[ErrorCode, list[TopicPartition]]
DONE: Answer = (ErrorCode.NONE, [])
SOME_LEFT: Answer = (ErrorCode.NONE, [TopicPartition("t", 0)])
NOT_CONTROLLER: Answer = (ErrorCode.STALE_CONTROLLER_EPOCH, [])


def register(zk: ZooKeeper, broker_id: int, port: int) -> None:
    info = BrokerInfo(broker_id, (Endpoint("PLAINTEXT", "127.0.0.1", port),))
    zk.create(BrokerZnode.path(broker_id), BrokerZnode.encode(info, 0))


@contextmanager
def controller(zk: ZooKeeper, broker_id: int, answer: Callable[[], Answer]) -> Iterator[list[tuple[int, int | None]]]:
    """Register a broker that answers ControlledShutdown; yields what it was asked."""
    asked: list[tuple[int, int | None]] = []

    def decide(stopping: int, epoch: int | None) -> Answer:
        asked.append((stopping, epoch))
        return answer()

    context = handler_context(controller=SimpleNamespace(controlled_shutdown=decide))
    with broker_of(SERVED, context) as client:
        register(zk, broker_id, client.socket.getpeername()[1])
        yield asked


def stop(zk: ZooKeeper, give_up: threading.Event | None = None, **properties: Any) -> bool:
    given = {"zookeeper.connect": "x:1", "controlled.shutdown.retry.backoff.ms": "1"}
    config = BrokerConfig.from_properties(given | {k.replace("_", "."): str(v) for k, v in properties.items()})
    return ask_to_move_leaders(zk, config, 3, 77, give_up or threading.Event())


@pytest.fixture(autouse=True)
def cluster(zk: ZooKeeper) -> None:
    make_base_paths(zk)


@pytest.mark.spec("CTL-111", "BRK-126", "BRK-3")
@pytest.mark.parametrize(
    ("protocol", "version", "epoch"),
    [
        *[(release, 1, None) for release in ("0.10.0", "0.10.1", "0.10.2", "0.11.0", "1.0", "1.1", "2.0", "2.1")],
        *[(release, 2, 77) for release in ("2.2", "2.3")],
    ],
)
def test_one_answer_without_remaining_partitions_is_enough(
    zk: ZooKeeper, monkeypatch: pytest.MonkeyPatch, protocol: str, version: int, epoch: int | None
) -> None:
    sent: list[int] = []
    handle = SERVED[API.key].handle

    def noted(request: Any, call: Call) -> Any:
        sent.append(call.header.api_version)
        return handle(request, call)

    monkeypatch.setitem(SERVED, API.key, replace(SERVED[API.key], handle=noted))
    zk.create(ControllerZnode.PATH, ControllerZnode.encode(1, 0))
    with controller(zk, 1, lambda: DONE) as asked:
        assert stop(zk, inter_broker_protocol_version=protocol)
    assert (asked, sent, API.key) == ([(3, epoch)], [version], 7)


@pytest.mark.spec("CTL-111", "BRK-126")
def test_the_controller_is_looked_up_anew_for_each_of_three_tries(zk: ZooKeeper) -> None:
    register(zk, 9, free_port())  # the controller at first: nobody listens there
    zk.create(ControllerZnode.PATH, ControllerZnode.encode(9, 0))
    answers = iter([NOT_CONTROLLER, DONE])
    with controller(zk, 1, lambda: next(answers)) as asked:
        looked_up: list[str] = []
        zookeeper: Any = SimpleNamespace(get=lambda path: _noted(zk, path, looked_up))
        assert stop(zookeeper)
    assert asked == [(3, 77)] * 2
    assert looked_up == [path for broker in (9, 1, 1) for path in (ControllerZnode.PATH, BrokerZnode.path(broker))]


def _noted(zk: ZooKeeper, path: str, read: list[str]) -> Any:
    """Reads; after the first look at /controller broker 1 has become it."""
    node = zk.get(path)
    if path == ControllerZnode.PATH and path not in read:
        zk.set(path, ControllerZnode.encode(1, 0), ANY_VERSION)
    read.append(path)
    return node


@pytest.mark.spec("CTL-111", "BRK-126")
def test_after_the_last_try_it_goes_down_all_the_same(zk: ZooKeeper) -> None:
    assert not stop(zk), "there is no controller at all"
    zk.create(ControllerZnode.PATH, ControllerZnode.encode(1, 0))
    with controller(zk, 1, lambda: SOME_LEFT) as asked:
        assert not stop(zk)
        assert len(asked) == 3
        assert not stop(zk, controlled_shutdown_max_retries=5)
        assert len(asked) == 8


class Waits(threading.Event):
    """Notes for how long it is waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.noted.append(timeout)
        return False


@pytest.mark.spec("CTL-111", "BRK-126")
def test_the_tries_are_the_configured_backoff_apart(zk: ZooKeeper) -> None:
    waits = Waits()
    assert not stop(zk, waits, controlled_shutdown_retry_backoff_ms=7000)
    assert waits.noted == [7.0, 7.0], "and none after the last"


@pytest.mark.spec("CTL-111", "BRK-126")
def test_the_wait_between_two_tries_is_the_configured_one_and_can_be_cut_short(zk: ZooKeeper) -> None:
    config = BrokerConfig.from_properties({"zookeeper.connect": "x:1"})
    assert (config.controlled_shutdown_max_retries, config.controlled_shutdown_retry_backoff_ms) == (3, 5000)
    begun = time.monotonic()
    assert not stop(zk, controlled_shutdown_retry_backoff_ms=150)
    assert time.monotonic() - begun >= 0.3
    hurried = threading.Event()
    hurried.set()
    begun = time.monotonic()
    assert not stop(zk, hurried, controlled_shutdown_retry_backoff_ms=60_000)
    assert time.monotonic() - begun < 60
