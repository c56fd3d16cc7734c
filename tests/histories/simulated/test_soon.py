"""How soon nothing is open any more once every real transaction has ended: in played time, as no test asserts a duration.

What brokers do takes some ms there, as do their messages; all that the product waits for by itself would show.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import Random
from typing import Final

import pytest

from kafkatool.broker.transactions.coordinator import TransactionCoordinator
from kafkatool.broker.transactions.transaction import Identity
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import TRANSACTIONAL
from tests.broker.replication.world import Clock
from tests.broker.storage.batch_builders import batch
from tests.histories.power.disk import Disk
from tests.histories.power.noting import Noting
from tests.histories.simulated.brokers import (
    BROKERS,
    PARTITIONS,
    TRANSACTIONS,
    Broker,
    Produced,
    Wires,
    partition_of,
)
from tests.histories.simulated.controller import rule_as_written

SOON_MS: Final = 1000.0
NONE: Final = ErrorCode.NONE
KEY, OTHER_KEY = 0, 1
_PATIENCE_MS: Final = 20_000.0
_TIMEOUT_MS: Final = 3_000
_PASSING: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_LEADER_FOR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)
_Tell = Callable[[ErrorCode], None]


class Played:
    """Three brokers to which nothing happens but what a test does; a step is a ms."""

    def __init__(self, directory: Path, disk: Disk, seed: int) -> None:
        self.clock, wires = Clock(), Wires()
        self._chance, ids = Random(f"steps {seed}"), count(1000)
        self.brokers: dict[int, Broker] = {}
        for number in BROKERS:
            self.brokers[number] = Broker(
                number,
                directory / str(number),
                self.clock,
                wires,
                self.brokers,
                Random(f"between {seed} {number}"),
                lambda: next(ids),
                disk,
                1 << 20,
            )
        self.controller = rule_as_written(self.brokers, wires, self.clock)
        self.until(lambda: all(self.leader_of(key).partitions[key].is_leader for key in PARTITIONS), "all to be led")

    def until(self, what: Callable[[], bool], title: str, limit_ms: float = _PATIENCE_MS) -> None:
        """Go on until that is so. AssertionError: it takes longer."""
        over = self.clock() + limit_ms
        while not what():
            assert self.clock() < over, f"{title}: not within {limit_ms:g} ms"
            self.pass_ms()

    def pass_ms(self) -> None:
        """Go on by one step."""
        self.clock.pass_ms(1)
        for broker in self.brokers.values():
            if broker.alive:
                for _ in range(4):
                    broker.step(self._chance)

    def leader_of(self, key: int) -> Broker:
        return self.brokers[self.controller.state(key)[0].leader or 0]

    def kill(self, broker: Broker) -> None:
        """Kill it; its session is over at once."""
        broker.kill()
        self.controller.session_ended(broker.id)

    def init(self, id_: str) -> Identity:
        """Get an identity."""
        given: list[Identity] = []

        def ask(coordinator: TransactionCoordinator, tell: _Tell) -> None:
            def told(code: ErrorCode, identity: Identity) -> None:
                given.append(identity)
                tell(code)

            coordinator.give_identity(id_, _TIMEOUT_MS, None, told)

        assert self._told(ask) is NONE
        return given[-1]

    def add(self, id_: str, identity: Identity, key: int) -> None:
        places = frozenset({partition_of(key)})
        assert self._told(lambda on, tell: on.add_partitions(id_, identity, places, tell)) is NONE

    def end(self, id_: str, identity: Identity, *, committed: bool) -> None:
        assert self._told(lambda on, tell: on.end(id_, identity, committed=committed, done=tell)) is NONE

    def _told(self, ask: Callable[[TransactionCoordinator, _Tell], None]) -> ErrorCode:
        """Ask the coordinator until it says more than to come again."""
        while True:
            told: list[ErrorCode] = []
            ask(self.leader_of(TRANSACTIONS).coordination.transactions, told.append)
            self.until(lambda told=told: bool(told), "an answer of the coordinator")  # type: ignore[misc]
            if told[0] not in _PASSING:
                return told[0]
            self.pass_ms()

    def send(self, id_: str, identity: Identity, key: int, sequence: int = 0) -> ErrorCode:
        """Send a batch of a transaction until its leader says more than to come again."""
        while True:
            data = bytes(batch(attributes=TRANSACTIONAL, producer=(*identity, sequence)))
            sent = Produced(key, data, id_)
            self.leader_of(key).serve(sent)
            self.until(lambda sent=sent: sent.code is not None, "an answer of the leader")  # type: ignore[misc]
            assert sent.code is not None
            if sent.code not in _PASSING:
                return sent.code
            self.pass_ms()

    def are_stable(self) -> bool:
        """Tell whether readers see all there is, at each leader."""
        for key in PARTITIONS:
            one = self.leader_of(key).partitions[key]
            end = one.log.log_end_offset
            if not (one.is_leader and one.high_watermark.offset == end == one.log.last_stable_offset):
                return False
        return True


@contextmanager
def played(directory: Path, seed: int) -> Iterator[Played]:
    directory.mkdir()
    disk = Disk(directory)
    with Noting(directory, disk.take):
        made = Played(directory, disk, seed)
        yield made
        for broker in made.brokers.values():
            if broker.alive:
                broker.kill()


def send_what_hangs(on: Played, real: Identity) -> None:
    """Send batches of transactions that there are not; each is refused."""
    ended = on.init("ended")
    on.add("ended", ended, KEY)
    assert on.send("ended", ended, KEY) is NONE
    on.end("ended", ended, committed=True)
    replaced = on.init("replaced")
    assert on.init("replaced").epoch > replaced.epoch
    told = [
        on.send("nobody", Identity(77, 0), KEY),
        on.send("real", Identity(78, 0), KEY),
        on.send("ended", ended, KEY, 1),
        on.send("replaced", replaced, KEY),
        on.send("real", real, OTHER_KEY),
    ]
    unknown, illegal = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE
    assert told == [unknown, unknown, illegal, ErrorCode.INVALID_PRODUCER_EPOCH, illegal]


@pytest.mark.spec("TXN-106")
@pytest.mark.parametrize("seed", range(5))
def test_a_second_after_the_last_real_end_nothing_is_open_at_leaders_and_at_their_successors(
    tmp_path: Path, seed: int
) -> None:
    with played(tmp_path / "disks", seed) as on:
        real = on.init("real")
        on.add("real", real, KEY)
        assert on.send("real", real, KEY) is NONE
        send_what_hangs(on, real)
        assert not on.are_stable()
        on.end("real", real, committed=True)
        on.until(on.are_stable, "all to be stable", SOON_MS)
        for sequence, (key, dies) in enumerate(((KEY, KEY), (KEY, TRANSACTIONS)), 1):
            on.add("real", real, key)
            assert on.send("real", real, key, sequence) is NONE
            on.end("real", real, committed=False)
            dead = on.leader_of(dies)
            on.kill(dead)
            on.until(on.are_stable, f"all to be stable without broker {dead.id}", SOON_MS)
            dead.start()
            on.controller.session_began(dead.id)
            on.until(on.controller.all_in_sync, "all to be in sync")


@pytest.mark.spec("TXN-106", "TXN-44")
def test_a_second_after_its_time_is_over_what_a_producer_left_open_is_not(tmp_path: Path) -> None:
    with played(tmp_path / "disks", 1) as on:
        real = on.init("real")
        on.add("real", real, KEY)
        began = on.clock()
        assert on.send("real", real, KEY) is NONE
        on.until(on.are_stable, "the end of what was left open", _TIMEOUT_MS + SOON_MS)
        assert on.clock() - began >= _TIMEOUT_MS - SOON_MS
