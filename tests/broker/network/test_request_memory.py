"""What requests take of a broker's memory, and who reads on when it is full."""

import os
import struct
import threading

import pytest

from kafkatool.broker.network.request_channel import Request
from kafkatool.broker.network.request_memory import RequestMemory
from tests.broker.network.raw_client import connected, echo, serving, wait_until


class Reader:
    def __init__(self) -> None:
        self.ended = False

    def end(self) -> None:
        self.ended = True


class Woken:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


@pytest.mark.spec("SEC-98")
def test_above_the_limit_nobody_reads_until_it_falls() -> None:
    memory, wake = RequestMemory(100), Woken()
    first, second = Reader(), Reader()
    assert memory.may_read(first, wake)
    memory.receive(60, whole_bytes=60)
    assert memory.may_read(second, wake)
    memory.receive(40)
    assert not memory.may_read(first, wake)
    assert not memory.may_read(second, wake)  # not the one, either, whose request is only begun
    assert wake.times == 0
    memory.forget(60, whole=True, reader=first)
    assert wake.times == 1
    assert memory.may_read(second, wake)
    assert memory.received_bytes == 40


@pytest.mark.spec("SEC-98")
def test_with_nothing_in_work_one_at_a_time_reads_to_the_end_however_large_its_request() -> None:
    now = [0.0]
    memory, wake = RequestMemory(100, clock=lambda: now[0]), Woken()
    large, other = Reader(), Reader()
    memory.receive(100)
    memory.receive(90)
    for _ in range(3):
        assert memory.may_read(large, wake)
        assert not memory.may_read(other, wake)
        memory.receive(500)
    now[0] = 9.9
    assert not memory.may_read(other, wake)
    assert not large.ended
    memory.receive(1, whole_bytes=1601)
    assert not memory.may_read(other, wake)  # that it is in work now is a reason to wait, not to close anybody
    now[0] = 100.0
    assert not memory.may_read(other, wake)
    assert not large.ended
    memory.forget(1601, whole=True, reader=large)
    assert wake.times == 1
    assert memory.may_read(other, wake)


@pytest.mark.spec("SEC-98")
def test_who_has_the_turn_and_does_not_use_it_is_closed() -> None:
    now = [0.0]
    memory, wake = RequestMemory(100, clock=lambda: now[0]), Woken()
    stalled, other = Reader(), Reader()
    memory.receive(150)
    assert memory.may_read(stalled, wake)
    now[0] = 10.0
    assert not memory.may_read(other, wake)
    assert stalled.ended
    memory.forget(150, whole=False, reader=stalled)
    assert wake.times == 1
    assert memory.may_read(other, wake)


@pytest.mark.spec("SEC-98")
def test_one_request_in_work_does_not_keep_everybody_from_reading_while_halves_fill_the_memory() -> None:
    now = [0.0]
    memory, wake = RequestMemory(100, clock=lambda: now[0]), Woken()
    parked, stalled, other = Reader(), Reader(), Reader()
    memory.receive(1, whole_bytes=1)
    memory.receive(99)
    assert memory.may_read(stalled, wake), "of which not all are in work"
    assert not memory.may_read(other, wake)
    now[0] = 10.0
    assert not memory.may_read(other, wake)
    assert stalled.ended and not parked.ended
    assert memory.may_read(other, wake), "though the other one's bytes are not given back yet"
    memory.receive(3, whole_bytes=3)
    assert wake.times == 1, "the turn is free again"
    memory.forget(96, whole=False, reader=stalled)
    assert memory.may_read(other, wake)


@pytest.mark.spec("SEC-98")
def test_turns_end_when_whole_requests_alone_reach_the_limit() -> None:
    memory, wake = RequestMemory(100), Woken()
    large, other = Reader(), Reader()
    memory.receive(90)
    memory.receive(10, whole_bytes=10)
    assert memory.may_read(large, wake)
    memory.receive(95, whole_bytes=95)
    assert not memory.may_read(large, wake) and not memory.may_read(other, wake)
    memory.forget(10, whole=True, reader=other)
    assert wake.times == 1 and memory.may_read(other, wake)


@pytest.mark.spec("SEC-98")
def test_who_waits_is_woken_when_halves_become_too_many_to_wait_for_answers() -> None:
    memory, wake = RequestMemory(100), Woken()
    waiting = Reader()
    memory.receive(60, whole_bytes=60)
    memory.receive(40)
    assert not memory.may_read(waiting, wake)
    memory.receive(15)  # by one that began to read before
    assert wake.times == 1 and memory.may_read(waiting, wake)


@pytest.mark.spec("SEC-98")
def test_a_turn_counts_no_more_once_everybody_may_read() -> None:
    now = [0.0]
    memory, wake = RequestMemory(100, clock=lambda: now[0]), Woken()
    first, second = Reader(), Reader()
    memory.receive(60)
    memory.receive(60)
    assert memory.may_read(first, wake)
    memory.forget(60, whole=False, reader=second)
    now[0] = 60.0
    memory.receive(60)
    assert memory.may_read(second, wake) and not first.ended


@pytest.mark.spec("SEC-98")
def test_a_client_is_served_though_one_request_is_parked_and_half_a_frame_fills_the_memory() -> None:
    go_on = threading.Event()

    def hold(request: Request) -> None:
        if bytes(request.frame[2:]) == b"parked":
            go_on.wait(100)
        echo(request)

    with (
        serving(hold, num_io_threads="8", queued_max_request_bytes="50000") as server,
        connected(server) as parked,
        connected(server) as half,
        connected(server) as other,
    ):
        parked.send(b"\0\0parked")
        wait_until(lambda: server.received_bytes > 0)
        half.socket.sendall(struct.pack(">i", 60_000) + b"\0\0" + bytes(55_000))
        wait_until(lambda: server.received_bytes >= 50_000)
        assert other.ask(b"\0\0x") == b"\0\0x"
        go_on.set()
        assert parked.receive() == b"\0\0parked"


@pytest.mark.spec("SEC-98")
def test_a_broker_that_is_full_reads_nobody_and_closes_nobody_and_then_serves_all() -> None:
    go_on = threading.Event()
    taken: list[int] = []

    def hold(request: Request) -> None:
        taken.append(len(request.frame))
        go_on.wait(60)
        echo(request)

    with (
        serving(hold, num_io_threads="8", queued_max_request_bytes="100000") as server,
        connected(server) as first,
        connected(server) as second,
        connected(server) as third,
    ):
        bodies = [b"\0\0" + bytes([n]) * 80_000 for n in range(3)]
        first.send(bodies[0])
        wait_until(lambda: len(taken) == 1)
        second.send(bodies[1])  # begins below the limit, which its beginning may reach: it is read later, if so
        third.send(bodies[2])
        assert third.answers_nothing_for(0.5)
        assert len(taken) <= 2
        go_on.set()
        for peer, body in zip((first, second, third), bodies, strict=True):
            assert peer.receive() == body
            assert peer.ask(b"\0\0x") == b"\0\0x"


@pytest.mark.spec("SEC-98")
def test_a_processor_that_is_woken_when_it_has_ended_writes_into_no_other_file() -> None:
    """Its descriptor's number may be that of a log by then."""
    with serving() as server:
        listeners = server._listeners  # noqa: SLF001  # nobody else has their processors
        wakes = [processor.wake for listener in listeners for processor in listener.processors]
    files = [os.memfd_create("log") for _ in range(50)]
    try:
        for wake in wakes:
            wake()
        assert wakes and [os.fstat(fd).st_size for fd in files] == [0] * 50
    finally:
        for fd in files:
            os.close(fd)


@pytest.mark.spec("SEC-98")
def test_one_request_larger_than_the_limit_passes() -> None:
    with serving(echo, queued_max_request_bytes="1000") as server, connected(server) as peer:
        large = b"\0\0" + bytes(300_000)
        for _ in range(3):
            assert peer.ask(large) == large


@pytest.mark.spec("SEC-98")
@pytest.mark.parametrize("leave", ["close", "answer"])
def test_half_a_request_counts_and_is_given_back_when_its_connection_ends(leave: str) -> None:
    with serving(echo, queued_max_request_bytes="50000") as server, connected(server) as other:
        with connected(server) as half:
            half.socket.sendall(struct.pack(">i", 60_000) + b"\0\0" + bytes(55_000))
            wait_until(lambda: server.received_bytes >= 50_000)
            if leave == "answer":
                half.socket.sendall(bytes(60_000 - 55_002))
                assert len(half.receive()) == 60_000
        assert other.ask(b"\0\0x") == b"\0\0x"
        wait_until(lambda: server.received_bytes == 0)


@pytest.mark.spec("SEC-98")
def test_the_brokers_own_listener_is_always_read() -> None:
    go_on = threading.Event()

    def hold(request: Request) -> None:
        if len(request.frame) > 1000:
            go_on.wait(60)
        echo(request)

    with (
        serving(
            hold,
            queued_max_request_bytes="1000",
            listeners="INNER://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
            listener_security_protocol_map="INNER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            inter_broker_listener_name="INNER",
        ) as server,
        connected(server, 0) as broker,
        connected(server, 1) as client,
        connected(server, 1) as other,
    ):
        client.send(b"\0\0" + bytes(5000))
        wait_until(lambda: server.received_bytes >= 5000)
        other.send(b"\0\0x")
        assert broker.ask(b"\0\0follower") == b"\0\0follower"
        assert other.answers_nothing_for(0.5)
        go_on.set()
        assert other.receive() == b"\0\0x"


@pytest.mark.spec("SEC-98")
@pytest.mark.parametrize("largest", [1000, 2_000_000_000])
def test_without_the_property_a_quarter_of_the_machine_is_said(largest: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "kafkatool.broker.network")
    with serving(echo, socket_request_max_bytes=str(largest)) as server, connected(server) as peer:
        assert peer.ask(b"\0\0x") == b"\0\0x"
    (line,) = [r for r in caplog.records if "queued.max.request.bytes" in r.getMessage()]
    assert isinstance(line.args, tuple)
    quarter = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    assert line.args[0] == max(quarter, 2 * largest)
