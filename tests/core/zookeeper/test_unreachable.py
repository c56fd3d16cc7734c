"""Which hosts of a connect string are said not to exist."""

import socket

import pytest

from kafkatool.core.zookeeper.unreachable import unknown_hosts


def look_up(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(socket, "getaddrinfo", fail)


@pytest.mark.spec("COM-1")
@pytest.mark.parametrize("number", [socket.EAI_NONAME, socket.EAI_NODATA])
def test_a_name_that_means_no_address_is_unknown(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    look_up(monkeypatch, socket.gaierror(number, "Name or service not known"))
    assert unknown_hosts("zk1:2181,zk2/kafka") == ["zk1", "zk2"]


@pytest.mark.spec("COM-1")
@pytest.mark.parametrize(
    "error",
    [socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), OSError(24, "Too many open files")],
    ids=["no answer yet", "no file left"],
)
def test_a_name_server_that_does_not_answer_makes_no_name_unknown(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    look_up(monkeypatch, error)
    assert unknown_hosts("zk1:2181,zk2/kafka") == []
