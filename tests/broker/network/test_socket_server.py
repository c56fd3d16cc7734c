"""The network layer against raw sockets."""

import contextlib
import errno
import itertools
import os
import socket
import struct
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from kafkatool.broker.network import request_channel, socket_server
from kafkatool.broker.network.acceptor import Acceptor
from kafkatool.broker.network.admission import ConnectionQuotas
from kafkatool.broker.network.connection import Connection
from kafkatool.broker.network.processor import Processor
from kafkatool.broker.network.request_channel import Request, RequestChannel
from kafkatool.broker.network.socket_server import SocketServer
from kafkatool.core.errors import KafkatoolError, ProtocolError
from kafkatool.core.protocol.codec.file_region import FileRegion
from tests.broker.network.raw_client import RawClient, connected, echo, frame, network_config, serving, wait_until

TWO_LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
    "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
}


@pytest.fixture
def server() -> Iterator[SocketServer]:
    with serving() as made:
        yield made


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Note whether the channel took the requests offered to it, one after the other."""
    outcomes: list[bool] = []
    offer = RequestChannel.offer

    def noted(channel: RequestChannel, request: Request, wake: Callable[[], None]) -> bool:
        outcomes.append(offer(channel, request, wake))
        return outcomes[-1]

    monkeypatch.setattr(RequestChannel, "offer", noted)
    return outcomes


@pytest.fixture
def no_slot_is_freed_twice(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """See that each address never has fewer connections than none."""
    moves: list[int] = []

    class Counted(ConnectionQuotas):
        def admit(self, host: str) -> bool:
            if admitted := super().admit(host):
                moves.append(1)
            return admitted

        def release(self, host: str) -> None:
            moves.append(-1)
            super().release(host)

    monkeypatch.setattr(socket_server, "ConnectionQuotas", Counted)
    yield
    held = list(itertools.accumulate(moves))
    assert held and min(held) >= 0


@pytest.mark.spec("BRK-5")
def test_connections_go_to_the_listeners_processors_in_strict_rotation() -> None:
    seen: list[str] = []

    def note_processor(request: Request) -> None:
        seen.append(threading.current_thread().name)
        echo(request)

    with serving(note_processor, {0}, num_network_threads="3") as server:
        clients = [RawClient(server.endpoints[0].port) for _ in range(6)]
        for client in clients:
            client.ask(b"\0\0 quick: served by the processor itself")
        for client in clients:
            client.close()
    assert seen[:3] == seen[3:]
    assert Counter(seen) == dict.fromkeys(seen, 2)
    assert len(set(seen)) == 3


@pytest.mark.spec("BRK-5", "BRK-21")
def test_each_listener_has_its_own_port_and_name_and_connection_ids_hold_a_running_index() -> None:
    ids: list[tuple[str, str]] = []

    def note(request: Request) -> None:
        ids.append((request.connection.listener, str(request.connection)))
        echo(request)

    with serving(note, (), **TWO_LISTENERS) as server:
        for listener in (0, 1, 0):
            with connected(server, listener) as client:
                client.ask(b"x")
                port, own = client.socket.getpeername()[1], client.socket.getsockname()[1]
                assert ids[-1][1] == f"127.0.0.1:{port}-127.0.0.1:{own}-{len(ids) - 1}"
    assert [listener for listener, _ in ids] == ["PLAINTEXT", "INTERNAL", "PLAINTEXT"]


@pytest.mark.spec("BRK-5")
def test_each_listener_has_one_acceptor_and_processors_of_its_own_that_need_it_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served_by: list[str] = []
    acceptors: list[Acceptor] = []

    def noted(*args: Any, **options: Any) -> Acceptor:
        acceptors.append(Acceptor(*args, **options))
        return acceptors[-1]

    monkeypatch.setattr(socket_server, "Acceptor", noted)

    def note(request: Request) -> None:
        served_by.append(threading.current_thread().name)
        echo(request)

    before = set(threading.enumerate())
    with serving(note, {0}, num_network_threads="2", **TWO_LISTENERS) as server:
        own = [thread for thread in threading.enumerate() if thread not in before]
        accepting = [thread for thread in own if "acceptor" in thread.name]
        assert sorted(a.name for a in accepting) == ["network-INTERNAL-acceptor", "network-PLAINTEXT-acceptor"]
        clients = [RawClient(server.endpoints[listener].port) for listener in (0, 1, 1, 0)]
        for client in clients:
            client.ask(b"\0\0")
        processors = ["PLAINTEXT-processor-0", "INTERNAL-processor-0", "INTERNAL-processor-1", "PLAINTEXT-processor-1"]
        assert served_by == [f"network-{name}" for name in processors]
        for acceptor in acceptors:
            acceptor.stop()
        assert not any(thread.is_alive() for thread in accepting)
        for client in clients:
            assert client.ask(b"\0\0 still") == b"\0\0 still", "connections do not need their acceptor"
            client.close()


@pytest.mark.spec("BRK-6")
def test_port_0_binds_a_free_port_and_an_empty_host_all_interfaces() -> None:
    with serving(listeners="PLAINTEXT://:0") as server:
        assert server.endpoints[0].port > 0
        listening = [one.laddr for one in psutil.Process().net_connections() if one.status == psutil.CONN_LISTEN]
        assert [one.ip for one in listening if one.port == server.endpoints[0].port] in (["::"], ["0.0.0.0"])
        for address in ("127.0.0.1", "127.0.0.2"):
            client = RawClient(server.endpoints[0].port, address)
            assert client.ask(b"hello") == b"hello"
            client.close()


@pytest.mark.spec("BRK-6")
def test_a_listener_that_cannot_be_bound_is_an_error_that_names_it(server: SocketServer) -> None:
    taken = server.endpoints[0].port
    second = SocketServer(network_config(listeners=f"PLAINTEXT://127.0.0.1:{taken}"))
    with pytest.raises(KafkatoolError, match=f"PLAINTEXT: cannot listen on 127.0.0.1:{taken}"):
        second.bind()
    second.close()


@pytest.mark.spec("BRK-6")
@pytest.mark.parametrize("configured", [True, False])
def test_accepted_sockets_get_nodelay_keepalive_and_the_buffer_sizes(configured: bool) -> None:
    options: list[int] = []

    def note(request: Request) -> None:
        with socket.socket(fileno=os.dup(request.connection.fd)) as sock:
            options.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            options.append(sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
            options.append(sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF))
            options.append(sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))
        echo(request)

    sizes = ("30000", "40000") if configured else ("-1", "-1")
    given = dict(zip(("socket_send_buffer_bytes", "socket_receive_buffer_bytes"), sizes, strict=True))
    with serving(note, (), **given) as server, connected(server) as client:
        client.ask(b"x")
    # Linux doubles what is asked for.
    assert options == [1, 1, *((60000, 80000) if configured else _buffers_of_an_untouched_socket())]


def _buffers_of_an_untouched_socket() -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            return tuple(accepted.getsockopt(socket.SOL_SOCKET, o) for o in (socket.SO_SNDBUF, socket.SO_RCVBUF))  # type: ignore[return-value]


@pytest.mark.spec("BRK-7", "BRK-17", "BRK-20")
@pytest.mark.usefixtures("no_slot_is_freed_twice")
@pytest.mark.parametrize("error", [RuntimeError("on purpose"), OSError("on purpose")], ids=lambda e: type(e).__name__)
def test_an_error_while_serving_one_connection_leaves_the_others_alone(error: Exception) -> None:
    def fail_on_bad(request: Request) -> None:
        if request.frame == b"bad":
            raise error
        echo(request)

    with serving(fail_on_bad, num_io_threads="1", max_connections_per_ip="2") as server, connected(server) as good:
        for _ in range(3):
            with connected(server) as bad:
                bad.send(b"bad")
                assert bad.is_closed_by_server()
            wait_until(lambda: _is_admitted(server))
        assert good.ask(b"still here") == b"still here"


def _is_admitted(server: SocketServer) -> bool:
    """Tell whether one more may come from this address."""
    with connected(server) as again:
        try:
            return again.ask(b"new") == b"new"
        except (EOFError, OSError):
            return False


def _fail_once(monkeypatch: pytest.MonkeyPatch, cls: type, method: str, error: Exception) -> list[bool]:
    """Have the next call of that method fail; the list tells whether it came."""
    original, failed = getattr(cls, method), list[bool]()

    def fails_once(*args: Any) -> Any:
        if failed:
            return original(*args)
        failed.append(True)
        raise error

    monkeypatch.setattr(cls, method, fails_once)
    return failed


@pytest.mark.spec("BRK-7", "BRK-20")
@pytest.mark.usefixtures("no_slot_is_freed_twice")
@pytest.mark.parametrize(
    ("cls", "method"), [(Acceptor, "_configure"), (Connection, "receive"), (Connection, "mute_if_in_work")]
)
@pytest.mark.parametrize("error", [RuntimeError("on purpose"), OSError("on purpose")], ids=lambda e: type(e).__name__)
def test_an_error_with_one_connection_ends_that_one_and_acceptor_and_processor_go_on(
    monkeypatch: pytest.MonkeyPatch, cls: type, method: str, error: Exception
) -> None:
    with serving(max_connections_per_ip="2") as server, connected(server) as good:
        assert good.ask(b"before") == b"before"
        failed = _fail_once(monkeypatch, cls, method, error)
        with connected(server) as bad:
            bad.send(b"bad")
            assert bad.is_closed_by_server()
        assert failed
        monkeypatch.undo()
        assert good.ask(b"still here") == b"still here"
        wait_until(lambda: _is_admitted(server))  # the slot of the one that failed is free


@pytest.mark.spec("BRK-7")
def test_an_accept_that_fails_ends_neither_the_acceptor_nor_any_connection(
    server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(server) as good:
        assert good.ask(b"before") == b"before"
        failed = _fail_once(monkeypatch, socket.socket, "accept", OSError(errno.EMFILE, "too many open files"))
        with connected(server) as first, connected(server) as second:
            assert (first.ask(b"1"), second.ask(b"2")) == (b"1", b"2")
        wait_until(lambda: bool(failed))
        assert good.ask(b"after") == b"after"


@pytest.mark.spec("BRK-8")
@pytest.mark.parametrize("length", [-1, -(2**31), 1001, 2**31 - 1])
def test_a_length_out_of_bounds_closes_without_reply(length: int) -> None:
    with serving(socket_request_max_bytes="1000") as server, connected(server) as client:
        client.socket.sendall(struct.pack(">i", length))
        assert client.is_closed_by_server()


@pytest.mark.spec("BRK-8")
def test_a_frame_of_exactly_the_limit_arrives_in_any_pieces() -> None:
    body = os.urandom(1000)
    with serving(socket_request_max_bytes="1000") as server, connected(server) as client:
        for piece in (frame(body)[:3], frame(body)[3:500], frame(body)[500:]):
            client.socket.sendall(piece)
            assert client.answers_nothing_for(0.02) or piece.endswith(body[-1:])
        assert client.receive() == body


@pytest.mark.spec("BRK-13")
def test_pipelined_requests_are_worked_one_at_a_time_and_answered_in_order() -> None:
    at_work, most = Counter[str](), Counter[str]()
    lock = threading.Lock()

    def slowly(request: Request) -> None:
        name = str(request.connection)
        with lock:
            at_work[name] += 1
            most[name] = max(most[name], at_work[name])
        time.sleep(0.002)
        with lock:
            at_work[name] -= 1
        echo(request)

    bodies = [b"%d" % i for i in range(30)]
    with serving(slowly, num_io_threads="4") as server, connected(server) as one, connected(server) as two:
        one.send(*bodies)
        two.send(*bodies)
        assert [one.receive() for _ in bodies] == bodies
        assert [two.receive() for _ in bodies] == bodies
    assert set(most.values()) == {1}


@pytest.mark.spec("BRK-13", "BRK-19")
def test_a_request_without_an_answer_lets_the_next_one_through() -> None:
    def silent_on_x(request: Request) -> None:
        if request.frame == b"x":
            request.connection.unmute()
        else:
            echo(request)

    with serving(silent_on_x) as server, connected(server) as client:
        client.send(b"x", b"x", b"y")
        assert client.receive() == b"y"


@pytest.mark.spec("BRK-13")
def test_the_next_request_is_not_begun_before_the_work_without_an_answer_is_done() -> None:
    held: SimpleQueue[Request] = SimpleQueue()
    begun: list[bytes] = []

    def hold_x(request: Request) -> None:
        begun.append(bytes(request.frame))
        if request.frame == b"x":
            held.put(request)
        else:
            echo(request)

    with serving(hold_x, num_io_threads="4") as server, connected(server) as client, connected(server) as other:
        client.send(b"x", b"y")
        request = held.get(timeout=60)
        for _ in range(20):
            other.ask(b"o")
        assert b"y" not in begun
        request.connection.unmute()
        assert client.receive() == b"y"


@pytest.mark.spec("BRK-15")
@pytest.mark.parametrize("handlers", [1, 3])
def test_requests_are_taken_in_the_order_they_came_by_num_io_threads_handlers(
    offered: list[bool], handlers: int
) -> None:
    gate, taken = threading.Event(), list[bytes]()

    def hold(request: Request) -> None:
        taken.append(bytes(request.frame))
        gate.wait(60)
        echo(request)

    before = set(threading.enumerate())
    with serving(hold, num_io_threads=str(handlers)) as server:
        assert [("handler" in t.name) for t in threading.enumerate() if t not in before].count(True) == handlers
        clients = [RawClient(server.endpoints[0].port) for _ in range(9)]
        for i, client in enumerate(clients):
            client.send(b"%d" % i)
            wait_until(lambda i=i: len(offered) == i + 1)  # type: ignore[misc]
        wait_until(lambda: len(taken) == handlers)
        assert sorted(taken) == [b"%d" % i for i in range(handlers)], "as many at work as there are handlers"
        gate.set()
        for client in clients:
            client.receive()
            client.close()
    assert handlers > 1 or taken == [b"%d" % i for i in range(9)]


@pytest.mark.spec("BRK-15")
def test_the_channel_holds_no_more_than_its_bound_whoever_offers(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hesitant:
        """Lets the other processors go on between the look and the put."""

        def __init__(self) -> None:
            self.held: list[Any] = []
            self.put = self.held.append

        def qsize(self) -> int:
            size = len(self.held)
            time.sleep(0.001)
            return size

    monkeypatch.setattr(request_channel, "SimpleQueue", Hesitant)
    channel, full = RequestChannel(5), threading.Event()
    outcomes: SimpleQueue[bool] = SimpleQueue()
    request: Any = object()

    def offer() -> None:
        full.wait(60)
        for _ in range(5):
            outcomes.put(channel.offer(request, lambda: None))

    crowd = [threading.Thread(target=offer) for _ in range(8)]
    for one in crowd:
        one.start()
    full.set()
    for one in crowd:
        one.join()
    assert [outcomes.get() for _ in range(40)].count(True) == 5


@pytest.mark.spec("BRK-15")
def test_a_full_channel_stops_reading_and_loses_nothing(offered: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []
    receive = Connection.receive

    def counted(connection: Connection) -> Any:
        frames = receive(connection)
        if frames is not None:
            read.append(bytes(frames))
        return frames

    monkeypatch.setattr(Connection, "receive", counted)
    held: SimpleQueue[None] = SimpleQueue()
    taken: list[bytes] = []

    def hold(request: Request) -> None:
        held.get()
        taken.append(bytes(request.frame))
        echo(request)

    with serving(hold, num_io_threads="1", queued_max_requests="2") as server:
        clients = [RawClient(server.endpoints[0].port) for _ in range(8)]
        for i, client in enumerate(clients):
            client.send(b"%d" % i)
        wait_until(lambda: offered.count(True) == 3 and not offered[-1])
        assert offered.count(True) == 3, "one at work, two queued"
        wait_until(lambda: offered.count(False) >= 5)  # the processor has been round again and again
        assert len(read) == 4, "and the one that was refused: nothing more is read"
        for _ in clients:
            held.put(None)
        assert [client.receive() for client in clients] == [b"%d" % i for i in range(8)]
        for client in clients:
            client.close()
    assert sorted(taken) == [b"%d" % i for i in range(8)]


@pytest.mark.spec("BRK-13", "BRK-16")
def test_a_slow_reader_delays_only_its_own_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    big = os.urandom(4_000_000)
    begun: list[bytes] = []
    write = Connection._write  # noqa: SLF001
    writers: dict[int, set[str]] = {}  # by the port of the client

    def noted(connection: Connection, outgoing: Any) -> None:
        writers.setdefault(connection.peer[1], set()).add(threading.current_thread().name)
        write(connection, outgoing)

    monkeypatch.setattr(Connection, "_write", noted)

    def answer(request: Request) -> None:
        begun.append(bytes(request.frame))
        request.connection.send([frame(big)] if request.frame == b"big" else [frame(bytes(request.frame))])

    with (
        serving(answer, num_io_threads="1") as server,
        connected(server, receive_buffer_bytes=4096) as slow,
        connected(server) as quick,
    ):
        slow.send(b"big", b"after")
        for i in range(50):
            assert quick.ask(b"%d" % i) == b"%d" % i
        assert b"big" in begun and b"after" not in begun, "the answer before is not written yet"
        assert slow.receive() == big
        assert slow.receive() == b"after"
        of_slow, of_quick = (writers[client.socket.getsockname()[1]] for client in (slow, quick))
    assert of_quick == {"network-handler-0"}, "who answers writes"
    assert of_slow == {"network-handler-0", "network-PLAINTEXT-processor-0"}, "and the processor what is left over"


@pytest.mark.spec("BRK-15")
def test_all_listeners_share_one_queue(offered: list[bool]) -> None:
    gate, held = threading.Event(), threading.Event()

    def hold(request: Request) -> None:
        held.set()
        gate.wait(60)
        echo(request)

    with (
        serving(hold, (), num_io_threads="1", queued_max_requests="1", **TWO_LISTENERS) as server,
        connected(server, 0) as at_work,
        connected(server, 0) as queued,
        connected(server, 1) as other,
    ):
        at_work.send(b"at work")
        assert held.wait(60)
        queued.send(b"queued")
        wait_until(lambda: offered == [True, True])
        other.send(b"other")
        wait_until(lambda: len(offered) > 2)
        assert not any(offered[2:]), "what waits at one listener leaves no room for what comes at the other"
        gate.set()
        assert [client.receive() for client in (at_work, queued, other)] == [b"at work", b"queued", b"other"]


@pytest.mark.spec("BRK-16")
def test_a_parked_request_occupies_no_handler_and_is_answered_from_another_thread() -> None:
    parked: SimpleQueue[Request] = SimpleQueue()

    def park(request: Request) -> None:
        if request.frame == b"park":
            parked.put(request)
        else:
            echo(request)

    with serving(park, num_io_threads="1") as server:
        waiting = [RawClient(server.endpoints[0].port) for _ in range(3)]
        for client in waiting:
            client.send(b"park")
        with connected(server) as other:
            assert other.ask(b"x") == b"x"
        for _ in waiting:
            echo(parked.get(timeout=60))
        for client in waiting:
            assert client.receive() == b"park"
            client.close()


@pytest.mark.spec("BRK-13", "BRK-15", "BRK-16")
def test_a_processor_serves_quick_requests_itself_only_while_nothing_else_waits(offered: list[bool]) -> None:
    threads: dict[bytes, str] = {}
    gate, held = threading.Event(), threading.Event()

    def note(request: Request) -> None:
        threads[bytes(request.frame)] = threading.current_thread().name
        if request.frame == b"\0\x01 held":
            held.set()
            gate.wait(60)
        echo(request)

    with (
        serving(note, {0}, num_io_threads="1") as server,
        connected(server) as one,
        connected(server) as two,
        connected(server) as three,
    ):
        assert one.ask(b"\0\0 quick") == b"\0\0 quick"
        one.send(b"\0\x01 held")
        assert held.wait(60)
        two.send(b"\0\x01 queued")
        wait_until(lambda: offered == [True, True])
        three.send(b"\0\0 behind")
        assert three.answers_nothing_for(0.05)
        gate.set()
        assert three.receive() == b"\0\0 behind"
        assert two.receive() == b"\0\x01 queued"
    assert "processor" in threads[b"\0\0 quick"]
    assert all("handler" in name for frame_, name in threads.items() if frame_ != b"\0\0 quick")
    assert len(threads) == 4


@pytest.mark.spec("BRK-18")
def test_an_idle_connection_is_closed_and_a_busy_one_kept() -> None:
    limit_s = 0.3
    with serving(connections_max_idle_ms="300") as server:

        def is_kept() -> bool:
            """False: this process was held up for so long that the connection was not busy."""
            begun = last = time.monotonic()
            with connected(server) as busy:
                while last - begun < 3 * limit_s:
                    asked = time.monotonic()
                    try:
                        assert busy.ask(b"ping") == b"ping"
                    except (EOFError, OSError):
                        assert time.monotonic() - last > limit_s, "closed though it was busy"
                        return False
                    last = asked
            return True

        started = time.monotonic()
        with connected(server) as idle:
            assert idle.is_closed_by_server()
            assert time.monotonic() - started > 0.25
        wait_until(is_kept)


@pytest.mark.spec("BRK-18")
def test_a_byte_read_or_written_is_a_sign_of_life() -> None:
    parked: SimpleQueue[Request] = SimpleQueue()
    with serving(parked.put) as holding, connected(holding) as client:
        client.send(b"x")
        connection = parked.get(timeout=60).connection
        for read in (False, True):
            connection.last_active = time.monotonic() - 100
            if read:
                client.socket.sendall(b"\0")
            else:
                connection.send([b"\0"])
            wait_until(lambda: time.monotonic() - connection.last_active < 90)


@pytest.mark.spec("BRK-18")
def test_each_poll_closes_the_one_idle_longest_and_no_other() -> None:
    polls: list[tuple[float, list[str]]] = []

    class Poll:
        """An epoll without events, that holds the processor after some rounds."""

        def poll(self, timeout: float) -> list[tuple[int, int]]:
            polls.append((timeout, list(closed)))
            if len(polls) == 4:
                over.set()
                released.wait(60)
            return []

        def register(self, fd: int, events: int) -> None: ...

        def close(self) -> None: ...

    class Idle(SimpleNamespace):
        on_ready = None

        def __str__(self) -> str:
            return str(self.name)

        def register(self) -> None: ...

        def close(self) -> None: ...

    over, released = threading.Event(), threading.Event()
    closed: list[str] = []
    processor = Processor("idle", RequestChannel(1), max_idle_ms=50, on_close=lambda c: closed.append(str(c)))
    processor.epoll.close()
    processor.epoll = Poll()  # type: ignore[assignment]
    now = time.monotonic()
    ages = {"young": -1000.0, "older": 100.0, "oldest": 300.0, "old": 50.1}  # one of them is not idle for long
    for fd, (name, age_s) in enumerate(ages.items(), 1000):
        processor.add(Idle(fd=fd, name=name, last_active=now - age_s))  # type: ignore[arg-type]
    processor.start(lambda _: None, frozenset())
    assert over.wait(60)
    told = list(polls)
    released.set()
    processor.stop()
    assert [seen for _, seen in told] == [[], ["oldest"], ["oldest", "older"], ["oldest", "older", "old"]]
    assert {timeout for timeout, _ in polls} <= {0.3}


@pytest.mark.spec("BRK-18", "BRK-21")
def test_an_answer_whose_connection_is_gone_is_dropped_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    parked: SimpleQueue[Request] = SimpleQueue()
    with serving(parked.put, connections_max_idle_ms="50") as server:

        def asked() -> bool:
            """Tell whether the request came through: a connection may be idle for too long before this process sends it."""
            with connected(server) as client:
                with contextlib.suppress(OSError):
                    client.send(b"x")
                assert client.is_closed_by_server()
            return not parked.empty()

        wait_until(asked)
        request = parked.get()
        wait_until(lambda: request.connection.closed)
        with connected(server) as new:  # may well get the same descriptor
            echo(request)
            assert new.is_closed_by_server(), "nothing comes before it has been idle for too long, too"
    told = [r.levelname for r in caplog.records if "is dropped: its connection is closed" in r.getMessage()]
    assert told == ["WARNING"]


@pytest.mark.spec("BRK-21")
def test_an_answer_that_comes_late_is_not_that_of_a_new_connection_with_the_same_ports(
    caplog: pytest.LogCaptureFixture,
) -> None:
    parked: SimpleQueue[Request] = SimpleQueue()
    alone = "127.84.30.1"  # nobody else connects from it, so that nobody can take the port between the two connections
    with (
        serving(parked.put) as server,
        contextlib.closing(RawClient(server.endpoints[0].port, from_address=alone)) as client,
    ):
        address = client.socket.getsockname()
        client.send(b"late")
        late = parked.get(timeout=60)
        late.connection.end()
        wait_until(lambda: late.connection.closed)
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()  # with a reset, so that its port may be used again at once
        with socket.create_connection(("127.0.0.1", server.endpoints[0].port), 60, source_address=address) as new:
            new.sendall(frame(b"new"))
            request = parked.get(timeout=60)
            assert str(request.connection).rpartition("-")[0] == str(late.connection).rpartition("-")[0], "same ports"
            echo(late)
            echo(request)
            assert new.recv(100) == frame(b"new")
    assert "is dropped: its connection is closed" in caplog.text


@pytest.mark.spec("BRK-19")
@pytest.mark.parametrize("half", [True, False])
def test_whole_requests_received_before_the_peer_closed_are_still_executed(half: bool) -> None:
    done: list[bytes] = []

    def work(request: Request) -> None:
        time.sleep(0.002)
        done.append(bytes(request.frame))
        request.connection.unmute()

    bodies = [b"%d" % i for i in range(20)]
    with serving(work) as server:
        client = RawClient(server.endpoints[0].port)
        client.send(*bodies)
        if half:
            client.socket.shutdown(socket.SHUT_WR)
        else:
            client.close()
        wait_until(lambda: len(done) == len(bodies))
        client.close()
    assert done == bodies


@pytest.mark.spec("BRK-19")
def test_a_half_closed_client_still_gets_its_answers(server: SocketServer) -> None:
    with connected(server) as client:
        client.send(b"1", b"2")
        client.socket.shutdown(socket.SHUT_WR)
        assert [client.receive(), client.receive()] == [b"1", b"2"]
        assert client.is_closed_by_server()


@pytest.mark.spec("BRK-20", "SEC-95")
@pytest.mark.usefixtures("no_slot_is_freed_twice")
def test_connections_of_one_address_are_capped_and_a_close_frees_a_slot() -> None:
    with serving(max_connections_per_ip="2") as server:
        port = server.endpoints[0].port
        first, second = RawClient(port), RawClient(port)
        assert first.ask(b"1") == b"1"
        assert second.ask(b"2") == b"2"
        with connected(server) as excess:
            assert excess.is_closed_by_server()
        first.close()
        wait_until(lambda: _is_admitted(server))
        second.close()


@pytest.mark.spec("BRK-20")
@pytest.mark.usefixtures("no_slot_is_freed_twice")
@pytest.mark.parametrize("why", ["idle", "length", "refused", "reset"])
def test_whyever_a_connection_is_closed_its_slot_is_free(why: str) -> None:
    def refuse(request: Request) -> None:
        if request.frame == b"refused":
            raise ProtocolError("on purpose")
        echo(request)

    limits = {"max_connections_per_ip": "1", "socket_request_max_bytes": "1000"}
    if why == "idle":
        limits["connections_max_idle_ms"] = "50"
    with serving(refuse, (), **limits) as server:
        for _ in range(2):
            wait_until(lambda: _is_admitted(server))
            with connected(server) as ended:
                match why:
                    case "length":
                        ended.socket.sendall(struct.pack(">i", 1001))
                    case "refused":
                        ended.send(b"refused")
                    case "reset":
                        ended.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                assert why == "reset" or ended.is_closed_by_server()
        wait_until(lambda: _is_admitted(server))


@pytest.mark.spec("BRK-20")
def test_each_address_has_its_own_share_and_a_close_frees_one_slot_of_it() -> None:
    quotas = ConnectionQuotas(2, {"127.0.0.3": 3})
    for host, cap in [("127.0.0.1", 2), ("127.0.0.2", 2), ("127.0.0.3", 3)]:
        assert [quotas.admit(host) for _ in range(5)] == [True] * cap + [False] * (5 - cap)
    quotas.release("127.0.0.1")
    assert [quotas.admit(host) for host in ("127.0.0.2", "127.0.0.3")] == [False, False], "another's"
    assert [quotas.admit("127.0.0.1") for _ in range(2)] == [True, False], "one, not all"
    for _ in range(2):
        quotas.release("127.0.0.1")
    assert [quotas.admit(host) for host in ("127.0.0.2", "127.0.0.3")] == [False, False], "nor with its last one"


@pytest.mark.spec("BRK-20", "SEC-95")
@pytest.mark.parametrize(
    ("host", "overridden"), [("127.0.0.1", "localhost"), ("", "127.0.0.1")], ids=["IPv4", "IPv4 by a socket of IPv6"]
)
def test_an_override_wins_over_the_cap(host: str, overridden: str) -> None:
    limits = {
        "listeners": f"PLAINTEXT://{host}:0",
        "max_connections_per_ip": "0",
        "max_connections_per_ip_overrides": f"{overridden}:1",
    }
    with serving(echo, (), **limits) as server, connected(server) as client:
        assert client.ask(b"1") == b"1"
        with connected(server) as excess:
            assert excess.is_closed_by_server()


@pytest.mark.spec("BRK-16")
def test_file_regions_are_sent_between_bytes_and_over_many_rounds() -> None:
    content = os.urandom(3_000_000)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "log")
        path.write_bytes(content)
        with path.open("rb") as file:
            first, second = FileRegion(file, 100, 2_500_000), FileRegion(file, 0, 10)
            expected = b"<" + content[100:2_500_100] + b"|" + content[:10] + b">"

            def send_file(request: Request) -> None:
                head = struct.pack(">i", len(expected))
                request.connection.send([head, b"<", first, b"|", second, b">"])

            with serving(send_file) as server, connected(server, receive_buffer_bytes=8192) as client:
                client.send(b"x", b"y")
                assert client.receive() == expected
                assert client.receive() == expected


@pytest.mark.spec("BRK-127")
def test_stopping_reads_no_more_finishes_what_was_queued_and_frees_the_port(
    offered: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, reads_no_more = threading.Event(), threading.Event()
    end_handlers = RequestChannel.end_handlers

    def noted(channel: RequestChannel, number: int) -> None:
        reads_no_more.set()
        end_handlers(channel, number)

    monkeypatch.setattr(RequestChannel, "end_handlers", noted)

    def gated(request: Request) -> None:
        gate.wait(60)
        echo(request)

    server = SocketServer(network_config(num_io_threads="1"))
    server.bind()
    server.serve(gated)
    port = server.endpoints[0].port
    clients = [RawClient(port) for _ in range(3)]
    for client in clients:
        client.send(b"x")
    wait_until(lambda: offered == [True] * 3)
    stopper = threading.Thread(target=server.stop_serving)
    stopper.start()
    assert reads_no_more.wait(60)
    for client in clients:
        client.send(b"too late")
    gate.set()
    assert [client.receive() for client in clients] == [b"x"] * 3
    stopper.join()
    assert clients[0].answers_nothing_for(0.1)
    assert offered == [True] * 3
    server.close()
    server.close()
    for client in clients:
        assert client.is_closed_by_server()
        client.close()
    with pytest.raises(OSError):
        RawClient(port)


@pytest.mark.spec("BRK-119")
def test_connections_are_accepted_before_serving_and_read_after() -> None:
    server = SocketServer(network_config())
    server.bind()
    try:
        with connected(server) as client:
            client.send(b"early")
            assert client.answers_nothing_for(0.05)
            server.serve(echo)
            assert client.receive() == b"early"
    finally:
        server.close()
