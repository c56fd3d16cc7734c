import errno
import random
import socket
from types import SimpleNamespace

import pytest

from kafkatool.broker.embedded import ports
from kafkatool.core.errors import RefusedError
from tests.ports import free_port


def test_ports_are_free_different_and_never_given_to_an_outgoing_connection() -> None:
    picked = list(ports.free_ports(20))
    assert len(set(picked)) == 20
    assert set(picked) <= set(ports.candidate_ports())
    assert all(ports.is_free(port) for port in picked)


def test_those_who_seeded_chance_alike_pick_different_ports() -> None:
    picked = []
    for _ in range(2):
        random.seed(1)
        picked.append(list(ports.free_ports(5)))
    assert picked[0] != picked[1]


def test_a_port_somebody_listens_on_is_not_free() -> None:
    with socket.create_server((ports.HOST, 0)) as server:
        assert not ports.is_free(server.getsockname()[1])


def test_where_outgoing_connections_take_every_port_any_free_one_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "ATTEMPTS", 0)
    assert len(set(ports.free_ports(3))) == 3


def test_a_port_that_is_held_is_not_picked_and_served_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a broker which is down: another cluster that starts meanwhile must not have it."""
    (port, other) = ports.free_ports(2)
    chances = iter([port, port, other])
    monkeypatch.setattr(ports, "_CHANCE", SimpleNamespace(choice=lambda _: next(chances)))
    held = ports.hold(port)
    assert held is not None
    with held:
        assert list(ports.free_ports(1)) == [other]
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((ports.HOST, port))
        assert ports.is_free(port), "for whom it is held"
        with (
            socket.create_server((ports.HOST, port)) as server,
            socket.create_connection((ports.HOST, port)) as client,
        ):
            served, address = server.accept()
            served.close()
            assert address == client.getsockname()
            assert ports.hold(port) is None, "somebody listens there"


def test_a_port_that_a_test_has_got_is_given_to_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two brokers of one cluster once got the same: each was free when it was picked."""
    first, other = ports.free_ports(2)
    chances = iter([first, first, other])
    monkeypatch.setattr(ports, "_CHANCE", SimpleNamespace(choice=lambda _: next(chances)))
    assert [free_port(), free_port()] == [first, other]
    with socket.create_server((ports.HOST, first)) as server:
        assert server.getsockname()[1] == first


def test_a_port_that_is_none_or_not_to_be_had_is_told_as_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError, match="port 65536 for broker 2 is none: the highest is 65535"):
        ports.require_free(65_536, "broker 2")

    def forbidden(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("socket.socket.bind", forbidden)
    with pytest.raises(RefusedError, match="port 80 for broker 1 is one that this user may not listen on"):
        ports.require_free(80, "broker 1")
