"""The proxy that knows frames, between a client and a broker that only answers."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkatool.core.protocol.frames import encode_request, encode_response
from kafkatool.core.protocol.messages import end_txn, heartbeat, join_group
from tests.histories.frames.frame import Splitter, correlation_of, read_request
from tests.histories.frames.proxy import FrameProxy
from tests.histories.frames.record import Record, read_frames
from tests.histories.frames.rules import Call, Hold, Late, Lose, Rule, Rules
from tests.serving import serving
from tests.waiting import eventually

pytestmark = pytest.mark.spec("HIS-46")
_PATIENCE_S = 120


class Stub:
    """A broker that answers each request with its correlation id, or as a test says; ``got`` are the requests."""

    def __init__(self) -> None:
        self.port = 0
        self.got: list[int] = []
        self.bytes = bytearray()
        self.answers: Callable[[int], list[bytes]] = lambda correlation: [answer(correlation)]

    def serve(self, connection: socket.socket) -> None:
        splitter = Splitter()
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(4096):
                self.bytes += data
                for frame in splitter.feed(data):
                    asked = read_request(frame)
                    assert asked is not None
                    self.got.append(asked.correlation)
                    for each in self.answers(asked.correlation):
                        connection.sendall(each)


@pytest.fixture
def broker() -> Iterator[Stub]:
    stub = Stub()
    with serving(stub.serve) as port:
        stub.port = port
        yield stub


class Client:
    """One connection."""

    def __init__(self, port: int, name: str = "c") -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), _PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._splitter = Splitter()
        self._heard: list[int] = []
        self._name = name

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def ask(self, *correlations: int) -> None:
        self.send(b"".join(beat(correlation, self._name) for correlation in correlations))

    def hear(self) -> int | None:
        """Return the correlation id of the next answer, None at the end."""
        while not self._heard:
            try:
                data = self._socket.recv(1000)
            except ConnectionError:
                return None
            if not data:
                return None
            self._heard += map(correlation_of, self._splitter.feed(data))
        return self._heard.pop(0)


def beat(correlation: int, client: str = "c") -> bytes:
    request = heartbeat.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    return encode_request(heartbeat.API, 1, correlation, client, request)


def answer(correlation: int) -> bytes:
    return struct.pack(">iiih", 10, correlation, 0, 0)


def with_rules(*rules: Rule) -> Rules:
    made = Rules()
    for rule in rules:
        made.add(rule)
    return made


NEVER = Rule("Produce", Lose())  # with it, frames go on one by one


@pytest.mark.parametrize("rules", [(), (NEVER,)], ids=["without a rule", "while a rule waits for others"])
def test_all_bytes_pass_wherever_they_are_cut_both_ways(broker: Stub, rules: tuple[Rule, ...]) -> None:
    data = beat(1) + beat(2)
    broker.answers = lambda correlation: [answer(correlation)[:7], answer(correlation)[7:]]
    with FrameProxy(broker.port, rules=with_rules(*rules)) as proxy:
        for cut in range(len(data)):
            with Client(proxy.port) as client:
                if cut:
                    client.send(data[:cut])
                client.send(data[cut:])
                assert (client.hear(), client.hear()) == (1, 2)
    assert bytes(broker.bytes) == data * len(data)


def test_without_a_rule_bytes_are_not_kept_until_their_frame_is_whole(broker: Stub) -> None:
    with FrameProxy(broker.port) as proxy, Client(proxy.port) as client:
        client.send(beat(1)[:9])
        eventually(lambda: bytes(broker.bytes) == beat(1)[:9], "a part of a frame to pass")
        met = proxy.rules.add(Rule("Heartbeat", Lose()))  # it is too late for this one
        client.send(beat(1)[9:])
        assert client.hear() == 1
        assert not met.met.is_set()
        client.ask(2)
        assert client.hear() is None
        assert bytes(broker.bytes) == beat(1) + beat(2)


def test_what_a_rule_kept_of_a_frame_goes_on_when_there_is_none_any_more(broker: Stub) -> None:
    with FrameProxy(broker.port, rules=with_rules(NEVER)) as proxy, Client(proxy.port) as client:
        client.ask(1)
        client.send(beat(2)[:9])
        assert client.hear() == 1
        proxy.rules.clear()
        client.send(beat(2)[9:] + beat(3))
        assert (client.hear(), client.hear()) == (2, 3)
        assert bytes(broker.bytes) == beat(1) + beat(2) + beat(3)


@pytest.mark.parametrize("rules", [(), (NEVER,)])
def test_another_protocol_passes_untouched(rules: tuple[Rule, ...]) -> None:
    greeting = b"\x16\x03\x01" + bytes(range(256))

    def echo(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(4096):
                connection.sendall(data)

    with (
        serving(echo) as port,
        FrameProxy(port, rules=with_rules(*rules)) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), _PATIENCE_S) as client,
    ):
        for text in (greeting[:5], greeting[5:], greeting):
            client.sendall(text)
            assert client.recv(len(text), socket.MSG_WAITALL) == text


def test_the_answer_to_the_nth_request_of_a_client_is_lost_though_it_was_carried_out(broker: Stub) -> None:
    lose = Rule("Heartbeat", Lose(), nth=2, client="c")
    with (
        FrameProxy(broker.port, rules=with_rules(lose)) as proxy,
        Client(proxy.port) as c,
        Client(proxy.port, "d") as d,
    ):
        for correlation in (1, 2, 3):
            d.ask(correlation)
            assert d.hear() == correlation
        c.ask(1)
        assert c.hear() == 1
        c.ask(2)
        assert c.hear() is None
        assert broker.got == [1, 2, 3, 1, 2]
        d.ask(4)
        assert d.hear() == 4


def test_answers_belong_to_requests_by_their_ids(broker: Stub) -> None:
    broker.answers = lambda correlation: [] if correlation == 1 else [answer(2), answer(1)]
    lose = Rule("Heartbeat", Lose(), nth=1)
    with FrameProxy(broker.port, rules=with_rules(lose)) as proxy, Client(proxy.port) as client:
        client.ask(1, 2)
        assert client.hear() == 2
        assert client.hear() is None


def test_a_request_that_is_held_is_overtaken_by_none_of_its_connection(broker: Stub) -> None:
    rules = Rules()
    held = rules.add(Rule("Heartbeat", Hold(), client="c"))
    with (
        FrameProxy(broker.port, rules=rules) as proxy,
        Client(proxy.port) as client,
        Client(proxy.port, "d") as other,
    ):
        client.ask(1, 2)
        client.ask(3)
        assert held.met.wait(_PATIENCE_S)
        other.ask(9)
        assert other.hear() == 9
        assert broker.got == [9]
        held.released.set()
        assert [client.hear() for _ in range(3)] == [1, 2, 3]
        assert broker.got == [9, 1, 2, 3]
        assert held.done.is_set()


def test_a_request_is_held_for_its_time_without_being_released(broker: Stub) -> None:
    rules = with_rules(Rule("Heartbeat", Hold(0.01)))
    with FrameProxy(broker.port, rules=rules) as proxy, Client(proxy.port) as client:
        client.ask(1)
        assert client.hear() == 1


def test_a_late_request_comes_after_its_client_is_gone_and_after_its_repeat(broker: Stub) -> None:
    rules = Rules()
    late = rules.add(Rule("Heartbeat", Late(), nth=2))
    heard: list[int] = []
    with FrameProxy(broker.port, rules=rules, hears=lambda line: heard.append(line["correlation"])) as proxy:
        with Client(proxy.port) as client:
            client.ask(1)
            assert client.hear() == 1
            client.ask(2, 3)
            assert client.hear() is None
        with Client(proxy.port) as again:
            again.ask(22)
            assert again.hear() == 22
        assert broker.got == [1, 22]
        late.released.set()
        assert late.done.wait(_PATIENCE_S)
        assert broker.got == [1, 22, 2]
    assert 3 not in heard  # what was behind it is lost: no more than its beginning arrives of a stream


def test_a_silent_late_request_leaves_its_client_waiting_until_that_gives_up(broker: Stub) -> None:
    rules = Rules()
    late = rules.add(Rule("Heartbeat", Late(silent=True)))
    with FrameProxy(broker.port, rules=rules) as proxy:
        with Client(proxy.port) as client, Client(proxy.port) as again:
            client.ask(1, 2)
            assert late.met.wait(_PATIENCE_S)
            again.ask(22)
            assert again.hear() == 22
            late.released.set()
            assert client.hear() is None, "what is told is told to nobody"
        assert late.done.is_set()
    assert broker.got == [22, 1]


def test_a_late_request_is_over_when_the_broker_closes_instead_of_answering(broker: Stub) -> None:
    def close(_: int) -> list[bytes]:
        raise ConnectionError

    rules = Rules()
    late = rules.add(Rule("Heartbeat", Late(0)))
    broker.answers = close
    with FrameProxy(broker.port, rules=rules) as proxy, Client(proxy.port) as client:
        client.ask(1)
        assert late.done.wait(_PATIENCE_S)
    assert broker.got == [1]


def test_its_end_delivers_nothing_that_is_kept(broker: Stub) -> None:
    rules = Rules()
    late = rules.add(Rule("Heartbeat", Late()))
    with FrameProxy(broker.port, rules=rules) as proxy, Client(proxy.port) as client:
        client.ask(1)
        assert client.hear() is None
        assert late.met.is_set()
    assert broker.got == []
    assert not late.done.is_set()


def test_a_call_before_delivery(broker: Stub) -> None:
    seen: list[tuple[int, list[int]]] = []
    call = Rule("Heartbeat", Call("before", lambda broker_id: seen.append((broker_id, list(broker.got)))), nth=2)
    with FrameProxy(broker.port, broker=3, rules=with_rules(call)) as proxy, Client(proxy.port) as client:
        client.ask(1, 2)
        assert (client.hear(), client.hear()) == (1, 2)
    assert [(broker_id, 2 in got) for broker_id, got in seen] == [(3, False)]


def test_a_call_after_delivery_is_over_before_the_client_hears_and_then_it_hears_nothing(broker: Stub) -> None:
    may_end, delivered = threading.Event(), threading.Event()

    def called(_: int) -> None:
        eventually(lambda: broker.got == [1, 2], "the request to be there")
        delivered.set()
        assert may_end.wait(_PATIENCE_S)

    rules = Rules()
    armed = rules.add(Rule("Heartbeat", Call("delivered", called), nth=2))
    with FrameProxy(broker.port, rules=rules) as proxy, Client(proxy.port) as client:
        client.ask(1, 2)
        assert delivered.wait(_PATIENCE_S)
        assert client.hear() == 1
        may_end.set()
        assert client.hear() is None
        assert armed.done.wait(_PATIENCE_S) and armed.error is None


def test_a_call_after_the_answer(broker: Stub) -> None:
    has_heard = threading.Event()
    rules = Rules()
    armed = rules.add(Rule("Heartbeat", Call("answered", lambda _: has_heard.wait(_PATIENCE_S)), nth=1))
    with FrameProxy(broker.port, rules=rules) as proxy, Client(proxy.port) as client:
        client.ask(1)
        assert client.hear() == 1
        assert not armed.done.is_set()
        has_heard.set()
        assert armed.done.wait(_PATIENCE_S)
        client.ask(2)
        assert client.hear() == 2


def test_what_a_call_raises_is_kept(broker: Stub) -> None:
    rules = Rules()
    armed = rules.add(Rule("Heartbeat", Call("before", lambda _: 1 // 0)))
    with FrameProxy(broker.port, rules=rules) as proxy, Client(proxy.port) as client:
        client.ask(1)
        assert client.hear() == 1
    assert isinstance(armed.error, ZeroDivisionError)


def test_frames_are_written_down_and_tell_generations(broker: Stub, tmp_path: Path) -> None:
    joined = {
        1: join_group.JoinGroupResponse(error_code=79, generation_id=-1, member_id="m"),
        2: join_group.JoinGroupResponse(error_code=0, generation_id=4, member_id="m"),
        3: join_group.JoinGroupResponse(error_code=0, generation_id=5, member_id="m"),
    }
    broker.answers = lambda correlation: [
        bytes(each)  # type: ignore[arg-type]
        for each in encode_response(join_group.API, 5, correlation, joined[correlation])
    ]
    record = Record(tmp_path / "frames.jsonl")
    asking = join_group.JoinGroupRequest(
        group_id="g", session_timeout_ms=1, member_id="m", protocol_type="consumer", protocols=[]
    )
    lost = Rule("JoinGroup", Lose(), nth=3)
    told = []
    with (
        FrameProxy(broker.port, broker=2, rules=with_rules(lost), hears=record) as proxy,
        Client(proxy.port) as client,
    ):
        for correlation in (1, 2, 3):
            client.send(encode_request(join_group.API, 5, correlation, "anna", asking))
            client.hear()
            told.append(record.generation_of("m"))
    record.close()
    assert told == [None, 4, 4]  # the last one nobody got
    assert record.generation_of("n") is record.generation_of(None) is None
    assert record.asked == {("JoinGroup", "anna"): 3}
    lines = read_frames(tmp_path / "frames.jsonl")
    assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)
    assert [(line["what"], line["correlation"], line.get("code")) for line in lines] == [
        ("asked", 1, None),
        ("answered", 1, 79),
        ("asked", 2, None),
        ("answered", 2, 0),
        ("asked", 3, None),
        ("lost", 3, 0),
    ]
    assert {(line["broker"], line["api"], line["version"], line["client"]) for line in lines} == {
        (2, "JoinGroup", 5, "anna")
    }
    assert {line["ends"][1] for line in lines} == {broker.port}
    sent = len(encode_request(join_group.API, 5, 1, "anna", asking))
    assert lines[0]["size"] == sent and lines[0]["group"] == "g"
    assert lines[3]["size"] != sent and lines[3]["generation"] == 4


def test_a_request_without_an_answer_is_nobodys_burden(broker: Stub) -> None:
    broker.answers = lambda correlation: [] if correlation == 1 else [answer(correlation)]
    call = Rule("Heartbeat", Call("answered", lambda _: None))
    with FrameProxy(broker.port, rules=with_rules(call)) as proxy, Client(proxy.port) as client:
        client.ask(1, 2)
        assert client.hear() == 2


def test_bodies_tell_rules_which_one_is_meant(broker: Stub) -> None:
    def end(correlation: int, committed: bool) -> bytes:
        asked = end_txn.EndTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0, committed=committed)
        return encode_request(end_txn.API, 1, correlation, "c", asked)

    aborts = Rule("EndTxn", Lose(), body={"committed": False})
    with FrameProxy(broker.port, rules=with_rules(aborts)) as proxy, Client(proxy.port) as client:
        client.send(end(1, True))
        assert client.hear() == 1
        client.send(end(2, False))
        assert client.hear() is None
