"""A server that accepts a connection and then says nothing, as a starting ZooKeeper may."""

from typing import Any

import pytest

from kafkatool.broker.embedded.zookeeper_process import ZooKeeperProcess
from kafkatool.core.zookeeper.handshake import Handshake
from kafkatool.core.zookeeper.session import SessionState, ZooKeeper
from tests.faults.proxy import Proxy
from tests.waiting import eventually


@pytest.mark.spec("CTL-18", "BRK-122")
def test_a_connection_that_is_accepted_and_never_answered_does_not_cost_the_session(
    zookeeper_server: ZooKeeperProcess,
) -> None:
    states: list[SessionState] = []
    with (
        Proxy(zookeeper_server.port) as proxy,
        ZooKeeper(f"127.0.0.1:{proxy.port}", session_timeout_ms=60_000, connection_timeout_ms=25_000) as zk,
    ):
        zk.add_session_listener(states.append)
        session = zk.session_id
        proxy.silence()
        before = proxy.accepted
        proxy.reset()
        eventually(lambda: proxy.accepted > before, "it to connect again")
        proxy.heal(how="forget")  # the next connection works, this one is never answered
        assert zk.get("/") is not None, "within twice the connection timeout, and before the session would be over"
        assert zk.session_id == session
    assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]


@pytest.mark.spec("CTL-18")
def test_the_limit_grows_while_nobody_answers_up_to_what_is_allowed_and_is_small_again_after() -> None:
    limits: list[float] = []
    answers = iter([TimeoutError, TimeoutError, TimeoutError, None, None])

    def invoke(timeout_s: float, request: Any, xid: Any) -> Any:
        limits.append(timeout_s)
        if error := next(answers):
            raise error
        return request

    handshake = Handshake(invoke, 1)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            handshake(3, "connect")
    assert [handshake(3, "connect"), handshake(3, "connect")] == ["connect", "connect"]
    assert limits == [1, 2, 3, 3, 1]
