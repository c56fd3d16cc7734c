import random
import socket

import pytest

from kafkatool.broker.embedded import ports


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
