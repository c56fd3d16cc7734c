"""Coordination moves between brokers of ours and real ones while transactions begin and end all the time (TXN-98)."""

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Final

import pytest

from kafkatool.broker.transactions.states import TransactionState
from kafkatool.core.model.topic_names import TRANSACTION_TOPIC
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.compat import real_kafka
from tests.compat.mixed import OURS, WAIT_S, Mixed
from tests.compat.mixed_coordination import (
    BESIDE,
    LIMIT_MS,
    THEIRS,
    TRIED,
    Cast,
    both_of,
    coordinate,
    coordinated_cluster,
    state_of,
)
from tests.integration.isolation import values_of
from tests.raw_transactions import RawProducer
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.slowest, pytest.mark.timeout(1800)]

NONE = ErrorCode.NONE
TOPIC: Final = "busy"
PRODUCERS: Final = 4
ROUNDS: Final = int(os.environ.get("KAFKATOOL_MIXED_ROUNDS", "1"))
"""How often coordination goes by each way; more by hand."""
AGAIN: Final = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
"""What a leader says whose follower has just died, of a batch that it has."""
COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


@pytest.fixture(params=real_kafka.versions(*TRIED))
def mixed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    version, protocol = request.param
    with coordinated_cluster(version, protocol, tmp_path_factory.mktemp("busy")) as cluster:
        yield cluster


class Busy:
    """A producer that does one transaction after the other in both partitions; every third it aborts.

    Each of its requests, repeated until there is an answer, has to be answered that it is done.
    """

    def __init__(self, by: RawProducer) -> None:
        self.by = by
        self.done = 0
        self._over = threading.Event()

    def work(self) -> int:
        """Go on until told to stop; runs on a thread of its own."""
        while not self._over.is_set():
            assert self.by.add(*both_of(TOPIC)) == NONE, self._where
            for place in both_of(TOPIC):
                code = self._send(place)
                assert code == NONE, f"{self._where}: {code}"
            code = self.by.end(committed=self._is_committed(self.done))
            assert code == NONE, f"{self._where}: {code}"
            self.done += 1
        return NONE

    @property
    def _where(self) -> str:
        return f"transaction {self.done} of {self.by.transactional_id}, {self.by.codes}"

    def _send(self, place: TopicPartition) -> int:
        while (code := self.by.send(place, self._text(self.done, place))) in AGAIN:
            pass
        return code

    def stop(self) -> None:
        self._over.set()

    def committed(self, place: TopicPartition) -> list[str]:
        """Return what it has committed there, in order."""
        return [self._text(number, place) for number in range(self.done) if self._is_committed(number)]

    def _text(self, number: int, place: TopicPartition) -> str:
        return f"{self.by.transactional_id} in {place}: {number}"

    @staticmethod
    def _is_committed(number: int) -> bool:
        return number % 3 != 2


def goes_on(busy: Sequence[Busy], working: Sequence[Future[int]], transactions: int = 10) -> None:
    """Wait until each has done that many more."""
    wanted = [one.done + transactions for one in busy]

    def is_done() -> bool:
        for one in working:
            if one.done():
                one.result()
        return all(one.done >= count for one, count in zip(busy, wanted, strict=True))

    eventually(is_done, f"{transactions} more transactions of each", LIMIT_MS / 1000)


@pytest.mark.spec("TXN-98", "TXN-99", "TXN-95", "TXN-96")
def test_coordination_goes_to_and_fro_under_load(mixed: Mixed) -> None:
    """By an election, by a controlled stop and by kill -9, of either kind: each transaction is there once, or not at all."""
    mixed.create(TOPIC, {0: (THEIRS, BESIDE, OURS), 1: (OURS, THEIRS, BESIDE)})
    with Cast(mixed, TOPIC) as cast:
        busy = [Busy(cast.producer(str(number))) for number in range(PRODUCERS)]
        working = [cast.later(one.work) for one in busy]
        try:
            for _ in range(ROUNDS):
                coordinate(mixed, OURS, TOPIC)
                goes_on(busy, working)
                coordinate(mixed, THEIRS, TOPIC)  # ours is stopped
                goes_on(busy, working)
                for victim, heir in ((THEIRS, OURS), (OURS, THEIRS)):
                    mixed.reign(heir)  # one of Kafka 2.0 that follows a dead one leaves that in the ISRs
                    mixed.crash(victim)
                    eventually(lambda h=heir: mixed.leaders(TRANSACTION_TOPIC) == [h], f"{heir} to coordinate", WAIT_S)  # type: ignore[misc]
                    goes_on(busy, working)
                    mixed.await_gone(victim)
                    mixed.start(victim, [TRANSACTION_TOPIC, TOPIC])
                    goes_on(busy, working)
                coordinate(mixed, OURS, TOPIC)
                mixed.stop(THEIRS)
                mixed.start(THEIRS, [TRANSACTION_TOPIC, TOPIC])
                goes_on(busy, working)
        finally:
            for one in busy:
                one.stop()
        assert [one.result() for one in working] == [NONE] * PRODUCERS
        for one in busy:
            eventually(lambda by=one.by: state_of(mixed, OURS, by) in COMPLETE, "the last ends", WAIT_S)  # type: ignore[misc]
    seen = values_of(mixed, TOPIC, "read_committed", 2)
    for one in busy:
        for place in both_of(TOPIC):
            mine = f"{one.by.transactional_id} in {place}: "
            assert [text for text in seen if text.startswith(mine)] == one.committed(place)
    assert len(seen) == sum(len(one.committed(place)) for one in busy for place in both_of(TOPIC))
    mixed.check_replicas()
