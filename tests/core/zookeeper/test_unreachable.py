"""Which servers of a connect string are said not to exist, to refuse, or to be Kafka's brokers."""

import socket
import threading
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from kafkatool.broker.embedded.zookeeper_process import ZooKeeperProcess
from kafkatool.commands.main import kt
from kafkatool.core.errors import NotZooKeeperError
from kafkatool.core.zookeeper import kazoo_link
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.unreachable import brokers_instead, refusing_servers, unknown_hosts
from tests.ports import free_port
from tests.waiting import eventually

API_VERSIONS = 18


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Give the address of what behaves as a broker: it says which APIs it knows, and closes on what it cannot read.

    It is in this process, which may stand still for longer than a probe waits.
    """
    monkeypatch.setattr("kafkatool.core.zookeeper.unreachable.PROBE_S", 60.0)

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as stream:
                frame = stream.read(int.from_bytes(stream.read(4)))
                if int.from_bytes(frame[:2]) == API_VERSIONS:
                    answer = frame[4:8] + bytes(6)  # correlation id, no error, no APIs
                    connection.sendall(len(answer).to_bytes(4) + answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join(60)


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


@pytest.mark.spec("COM-1")
def test_servers_are_refusing_if_all_of_them_are() -> None:
    closed = f"127.0.0.1:{free_port()}"
    with socket.create_server(("127.0.0.1", 0)) as server:
        open_ = f"127.0.0.1:{server.getsockname()[1]}"
        assert refusing_servers(f"{closed}/kafka") == [closed]
        assert refusing_servers(f"{closed},{open_}/kafka") == []


@pytest.mark.spec("COM-1")
def test_a_server_that_is_slow_to_accept_does_not_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", never)
    assert refusing_servers("10.0.0.1:2181") == []


@pytest.mark.spec("COM-1")
def test_servers_are_brokers_if_all_of_them_answer_as_such(
    broker: str, zookeeper_server: ZooKeeperProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert brokers_instead(f"{broker}/kafka") == [broker]
    assert brokers_instead(f"{broker},{zookeeper_server.connect}") == []
    assert brokers_instead(f"{broker},127.0.0.1:{free_port()}") == []
    monkeypatch.setattr("kafkatool.core.zookeeper.unreachable.PROBE_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert brokers_instead(f"127.0.0.1:{silent.getsockname()[1]}") == []


@pytest.mark.spec("COM-1")
def test_a_brokers_port_is_told_long_before_the_time_is_up(broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kazoo_link, "_SLOW_S", 0.1)
    monkeypatch.setattr(kazoo_link, "tls_instead", lambda _: [])  # which would take the whole time of a probe
    with (
        pytest.raises(NotZooKeeperError, match=f"a broker answers at {broker}"),
        ZooKeeper(broker, connection_timeout_ms=3_600_000),
    ):
        pass
    result = CliRunner().invoke(kt, ["topics", "list", "--zookeeper", broker])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"kt: not ZooKeeper, but Kafka: a broker answers at {broker}. ZooKeeper's address is zookeeper.connect in the "
        "brokers' server.properties (port 2181 as a rule)\n"
    )


@pytest.mark.spec("COM-1")
def test_a_zookeeper_that_is_slow_is_waited_for_still(zk_connect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kazoo_link, "_SOON_S", 0)
    monkeypatch.setattr(kazoo_link, "_SLOW_S", 0)
    monkeypatch.setattr(kazoo_link, "tls_instead", lambda _: [])  # which takes long enough for a session
    asked: list[str] = []

    def ask(hosts: str) -> list[str]:
        asked.append(hosts)
        return brokers_instead(hosts)

    monkeypatch.setattr(kazoo_link, "brokers_instead", ask)

    def is_asked() -> bool:
        """Connect; a session is there before it is asked where this thread is held up."""
        with ZooKeeper(zk_connect) as zk:
            assert zk.get("/") is not None
        return bool(asked)

    eventually(is_asked, "a session that takes its time")
    assert asked == [zk_connect.partition("/")[0]]
