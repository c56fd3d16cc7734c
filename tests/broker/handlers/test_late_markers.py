"""WriteTxnMarkers that comes late, in the next transaction of its producer: known by its connection (TXN-85)."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kafkatool.broker.handlers.call import load_handlers
from kafkatool.broker.replication.leading.appends import Appends
from kafkatool.broker.runtime.timer import monotonic_ms
from kafkatool.broker.storage.batches.transaction_markers import Marker
from kafkatool.broker.transactions import late_markers
from kafkatool.broker.transactions.late_markers import LateMarkers, Sender
from kafkatool.broker.transactions.marker_writes import MarkerWrite
from kafkatool.broker.transactions.transaction import Identity
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.frames import decode_response, encode_request
from kafkatool.core.protocol.messages import write_txn_markers as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.broker.handlers.served import broker_of, handler_context
from tests.broker.network.raw_client import RawClient
from tests.broker.transactions.stage import HERE, THERE, Stage, stage

NONE = ErrorCode.NONE
COORDINATOR = "broker-2-txn-marker-sender"


class _Coordinator(RawClient):
    """One connection of a coordinator."""

    def send_markers(self, of: Identity, *places: TopicPartition, committed: bool, name: str = COORDINATOR) -> None:
        marker = wire.TxnMarker(
            producer_id=of.producer_id,
            producer_epoch=of.epoch,
            committed=committed,
            topics=[wire.WriteTxnMarkersTopic(topic=p.topic, partitions=[p.partition]) for p in places],
            coordinator_epoch=0,
        )
        request = wire.WriteTxnMarkersRequest(markers=[marker])
        self.socket.sendall(encode_request(wire.API, 1, 7, name, request))

    def write(self, of: Identity, *places: TopicPartition, committed: bool, name: str = COORDINATOR) -> set[int]:
        """Have markers written; return the codes of their answer."""
        self.send_markers(of, *places, committed=committed, name=name)
        answer: Any = decode_response(wire.API, 1, self.receive())[1]
        return {p.error_code for m in answer.markers for t in m.topics for p in t.partitions}


@dataclass(frozen=True, slots=True)
class _Served:
    """A stage behind a socket, and a producer of it."""

    stage: Stage
    port: int
    producer: Identity

    def connect(self) -> closing[_Coordinator]:
        connection = _Coordinator(self.port)
        connection.write(Identity(999, 0), committed=True, name="nobody")  # it is accepted
        return closing(connection)

    def begin(self, sequence: int, *places: TopicPartition) -> None:
        """Have a transaction with a record in each place."""
        assert self.stage.add("id", self.producer, *places) is NONE
        assert {self.stage.produce("id", self.producer, place, sequence) for place in places} == {NONE}


@pytest.fixture
def on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Served]:
    with stage(tmp_path, monkeypatch) as made:
        made.world.clock.now_ms = monotonic_ms()  # as connections have it
        code, producer = made.init("id")
        assert code is NONE
        context = handler_context(metadata_cache=made.world.cache, marker_writes=made.remote_markers)
        with broker_of(load_handlers(), context) as client:
            yield _Served(made, client.socket.getpeername()[1], producer)


@pytest.mark.spec("TXN-85", "TXN-105")
@pytest.mark.parametrize("committed", [True, False])
def test_by_a_connection_older_than_the_last_one_that_its_sender_used_nothing_is_ended(
    on: _Served, committed: bool
) -> None:
    mine = on.producer
    with on.connect() as old, on.connect() as new:
        on.begin(0, HERE)
        assert new.write(mine, HERE, committed=committed) == {NONE}, "the repeat"
        assert on.stage.end("id", mine, committed=committed) is NONE
        on.begin(1, HERE)
        written = on.stage.markers(HERE, mine.producer_id)
        old.send_markers(mine, HERE, committed=committed)
        assert old.is_closed_by_server(), "who is right repeats over a new connection"
        assert not on.stage.is_settled(HERE), "the next transaction is open as before"
        assert on.stage.markers(HERE, mine.producer_id) == written
        assert new.write(mine, HERE, committed=not committed) == {NONE}
        assert on.stage.is_settled(HERE)


@pytest.mark.spec("TXN-85", "TXN-105")
def test_by_a_connection_older_than_the_leadership_nothing_is_ended(on: _Served) -> None:
    mine, world = on.producer, on.stage.world
    with on.connect() as old:
        on.begin(0, HERE, THERE)
        assert old.write(mine, HERE, committed=True) == {NONE}, "nobody led before"
        world.follow(HERE, epoch=1)  # a repeat that is sent now goes to another leader
        world.clock.now_ms = monotonic_ms()
        world.lead(HERE, epoch=2)
        on.begin(1, HERE)
        assert old.write(mine, THERE, committed=True) == {NONE}, "of others it may be the first"
        old.send_markers(mine, HERE, THERE, committed=False)
        assert old.is_closed_by_server()
    assert not on.stage.is_settled(HERE)
    with on.connect() as new:
        assert new.write(mine, HERE, committed=True) == {NONE}
        world.lead(HERE, epoch=3, version=1)  # it goes on leading
        assert new.write(mine, HERE, committed=True) == {NONE}
    assert on.stage.is_settled(HERE)


@pytest.mark.spec("TXN-85")
def test_an_epoch_that_was_missed_may_have_had_another_leader(on: _Served) -> None:
    mine, world = on.producer, on.stage.world
    with on.connect() as old:
        world.clock.now_ms = monotonic_ms()
        world.lead(HERE, epoch=2, version=1)
        old.send_markers(mine, HERE, committed=False)
        assert old.is_closed_by_server()


@pytest.mark.spec("TXN-85")
def test_senders_are_told_apart_by_their_names(on: _Served) -> None:
    mine = on.producer
    with on.connect() as old, on.connect() as new:
        assert new.write(mine, HERE, committed=True) == {NONE}
        assert old.write(mine, HERE, committed=True, name="broker-3-txn-marker-sender") == {NONE}
        old.send_markers(mine, committed=True)
        assert old.is_closed_by_server(), "also those that name no partition"


@pytest.mark.spec("TXN-85")
def test_what_is_overtaken_on_its_way_to_the_log_is_not_appended(on: _Served, monkeypatch: pytest.MonkeyPatch) -> None:
    writes, mine = on.stage.remote_markers, on.producer
    on.begin(0, HERE)
    append, told = Appends.append, list[list[int]]()

    def write(accepted_ms: float) -> bool:
        marker = MarkerWrite(mine, Marker(True, 0), [HERE])
        return writes.write(
            [marker], lambda done: told.append(list(done[0].values())), Sender(COORDINATOR, accepted_ms)
        )

    def overtaken(self: Appends, *args: Any, **options: Any) -> None:
        monkeypatch.setattr(Appends, "append", append)
        assert write(2.0), "the repeat, by another thread"
        append(self, *args, **options)

    monkeypatch.setattr(Appends, "append", overtaken)
    assert write(1.0), "it was not late when it came"
    assert told == [[NONE], [ErrorCode.NOT_LEADER_FOR_PARTITION]]
    assert on.stage.markers(HERE, mine.producer_id) == [(mine.epoch, True)]
    assert not write(1.0)


@pytest.mark.spec("TXN-85", "TXN-89")
def test_the_senders_that_were_heard_of_last_are_remembered(on: _Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_markers, "_MOST_SENDERS", 2)
    late = LateMarkers(on.stage.world.manager.partitions)
    for name in ("a", "b", "a", "c"):
        late.note(Sender(name, 2.0))
    late.note(Sender("a", 1.0))  # the newest counts
    assert [late.is_superseded(Sender(name, 1.0)) for name in "abc"] == [True, False, True]
    assert not late.is_superseded(Sender("a", 2.0))
