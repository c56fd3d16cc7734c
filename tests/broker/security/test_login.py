"""New logins on a connection that is logged in, without a socket: its clock is the test's."""

import struct
from collections.abc import Callable
from typing import Any

import pytest

from kafkatool.broker.handlers import api_versions
from kafkatool.broker.security import login
from kafkatool.broker.security.login import Login, SaslListener, State, Verdict
from kafkatool.broker.security.mechanisms import PlainExchange, PlainUsers
from kafkatool.core.protocol import frames
from kafkatool.core.protocol.codec.schema import Api
from tests.broker.network.secured import ALICE, HANDSHAKE_0, HANDSHAKE_1, METADATA, VERSIONS_0, authenticate

TOLD = struct.Struct(">ih")  # correlation id, error code


def new_login(clock: Callable[[], float], lifetime_ms: int = 0) -> Login:
    users = PlainUsers({"alice": "alice-secret"})
    listener = SaslListener(
        "MINE",
        {"PLAIN": lambda: PlainExchange(users)},
        {"PLAIN": lifetime_ms},
        api_versions.answer,
        api_versions.answer_newer,
        clock=clock,
    )
    return Login(listener)


class Stage:
    """A login that is done, and lasts a minute."""

    def __init__(self, lifetime_ms: int = 60_000) -> None:
        self.now_s = 1000.0
        self.login = new_login(lambda: self.now_s, lifetime_ms)
        assert self.code(HANDSHAKE_1) == 0
        assert self.login.take(authenticate(ALICE)).verdict is Verdict.READY

    def code(self, frame: bytes) -> int:
        answer = self.login.take(frame).answer
        assert answer is not None
        return int(TOLD.unpack_from(b"".join(map(bytes, answer)), 4)[1])  # type: ignore[arg-type]


@pytest.mark.spec("SEC-70")
def test_new_logins_begin_no_faster_than_one_a_second_but_for_the_first() -> None:
    stage = Stage()
    for wait_s in (0.0, 1.0, 1.0):
        stage.now_s += wait_s
        assert stage.code(HANDSHAKE_1) == 0
        assert stage.login.take(authenticate(ALICE)).verdict is Verdict.READY
        stage.now_s += 0.0
        assert stage.code(HANDSHAKE_1) == 34
        assert stage.login.state is State.READY  # and all goes on
        assert stage.login.take(METADATA).verdict is Verdict.SERVE


@pytest.mark.spec("SEC-70")
def test_a_new_login_may_come_in_bare_frames_and_begins_the_lifetime_anew() -> None:
    stage = Stage()
    stage.now_s += 59
    assert stage.code(HANDSHAKE_0) == 0
    assert stage.login.take(ALICE).verdict is Verdict.READY
    stage.now_s += 59.9
    assert stage.login.take(METADATA).verdict is Verdict.SERVE
    stage.now_s += 0.1
    assert stage.login.take(METADATA).verdict is Verdict.CLOSE


@pytest.mark.spec("SEC-70")
def test_after_its_lifetime_a_new_login_is_taken_still_and_nothing_else() -> None:
    stage = Stage()
    stage.now_s += 3600
    for frame in (METADATA, VERSIONS_0):
        assert stage.login.take(frame).verdict is Verdict.CLOSE
    assert stage.code(HANDSHAKE_1) == 0
    assert stage.login.take(authenticate(ALICE)).verdict is Verdict.READY
    assert stage.login.take(METADATA).verdict is Verdict.SERVE


BEFORE: dict[str, list[bytes]] = {
    "first": [],
    "versions": [VERSIONS_0],
    "tokens": [HANDSHAKE_1],
    "bare tokens": [HANDSHAKE_0],
}


@pytest.mark.spec("SEC-63")
@pytest.mark.parametrize("state", BEFORE)
def test_before_the_login_three_requests_alone_are_decoded(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each key and version: no other schema is reachable for who has not logged in."""
    decoded: set[int] = set()
    headers, requests = frames.decode_header, frames.decode_request

    def header(api: Api, frame: Any) -> Any:
        decoded.add(api.key)
        return headers(api, frame)

    def request(api: Api, *more: Any) -> Any:
        decoded.add(api.key)
        return requests(api, *more)

    monkeypatch.setattr(login, "decode_header", header)
    monkeypatch.setattr(login, "decode_request", request)
    verdicts = set()
    for key in range(-1, 70):
        for version in range(-1, 14):
            one = new_login(lambda: 1000.0)
            for frame in BEFORE[state]:
                one.take(frame)
            decoded.clear()
            verdicts.add(one.take(struct.pack(">hhih", key, version, 7, -1) + bytes(40)).verdict)
            assert decoded <= {key} & {17, 18, 36}, (key, version)
    assert verdicts <= {Verdict.ANSWER, Verdict.REFUSE}
