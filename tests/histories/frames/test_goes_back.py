"""Play faults of librdkafka's, on our brokers and on Kafka, by which a member of a group goes back (docs/known-faults.md).

All begin with an answer that comes when its question is no longer wanted. In the first two it answers ListOffsets, and the
client asks once more half a second later, whoever has the key by then. In the last one it says to ask for committed offsets
again.
"""

import contextlib
import itertools
import os
import time
from collections.abc import Iterator
from typing import Self

import confluent_kafka
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.histories.frames.rules import Hold, Rule
from tests.histories.frames.stage import Stage, stage_with_a_key
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
_TOPIC = "back"
_OFFSETS = list(range(5))
_COMMITTED = 3
_QUIET_S = 1.0  # longer than any fetch waits, and than a question is put off
_ATTEMPTS = 60  # of the first, which depends on who is run when; of the others where the client stands still
_PATIENCE_S = 120
_TRIED = 0x021000FF  # librdkafka 2.16.0


@pytest.fixture(scope="module", params=["ours", pytest.param("2.8.2", marks=pytest.mark.slowest)])
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Yield three brokers, and a key of five values."""
    if confluent_kafka.libversion()[1] > _TRIED:
        pytest.skip("tried with librdkafka 2.16.0; a later one may be mended")
    values = [b"%d" % value for value in _OFFSETS]
    with stage_with_a_key(request.param, tmp_path_factory.mktemp("back"), _TOPIC, values) as stage:
        yield stage


class _Member:
    """The one member of a group of its own; ``told`` has what it was told, and what it read. A context manager."""

    def __init__(self, stage: Stage, name: str, isolation: str = "read_uncommitted") -> None:
        self.told: list[str | int] = []
        self._stage, self._name = stage, name
        self._consumer = Consumer(
            {
                "bootstrap.servers": stage.bootstrap,
                "group.id": name,
                "client.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "fetch.wait.max.ms": 100,
                "session.timeout.ms": 60_000,
                "log_level": 0,
            }
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stage.doors.rules.clear()
        self._consumer.close()

    def join(self) -> None:
        """Begin to join; the rest is done by reading."""
        self._consumer.subscribe(
            [_TOPIC],
            on_assign=lambda *_: self.told.append("assigned"),
            on_revoke=lambda *_: self.told.append("revoked"),
            on_lost=lambda *_: self.told.append("lost"),
        )

    def leave(self) -> None:
        """Leave the group; the key is no longer the member's when this returns."""
        self._consumer.unsubscribe()
        eventually(lambda: not self.read() and self.told[-1] != "assigned", "the key's end")

    def commit(self, offset: int) -> None:
        self._consumer.commit(offsets=[TopicPartition(_TOPIC, 0, offset)], asynchronous=False)

    def read(self, seconds: float = 0.05) -> list[int]:
        """Return the offsets of two values at most."""
        found = []
        for message in self._consumer.consume(2, seconds):
            assert message.error() is None, message.error()
            found.append(message.offset() or 0)
        self.told += found
        return found

    def read_all(self, *, commits: bool = False) -> list[int]:
        """Read to the end, until nothing more comes; return all that was read since the key was assigned last."""
        deadline, quiet_since = time.monotonic() + _PATIENCE_S, time.monotonic()
        while self.found[-1:] != _OFFSETS[-1:] or time.monotonic() < quiet_since + _QUIET_S:
            assert time.monotonic() < deadline, f"the end is not read: {self.told}"
            if offsets := self.read():
                quiet_since = time.monotonic()
                if commits:
                    self.commit(offsets[-1] + 1)
        return self.found

    @property
    def found(self) -> list[int]:
        """Return what was read since the key was assigned last."""
        since = max((at for at, told in enumerate(self.told) if told == "assigned"), default=len(self.told))
        return [told for told in self.told[since:] if isinstance(told, int)]

    def asked(self, api: str) -> int:
        """Return how many such requests the client has made."""
        assert self._stage.doors.record is not None
        return self._stage.doors.record.count(self._name).get((api, self._name), 0)

    def await_asked(self, api: str, times: int) -> None:
        """Read until the client has made so many such requests."""

        def is_asked() -> bool:
            self.read()
            return self.asked(api) >= times

        eventually(is_asked, f"{times} requests {api}")

    def begin_to_commit(self, producer: Producer, offset: int) -> None:
        """Commit in a transaction of that producer, which nobody ends."""
        producer.init_transactions(_PATIENCE_S)
        producer.begin_transaction()
        metadata = self._consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition(_TOPIC, 0, offset)], metadata, _PATIENCE_S)

    def lose_the_key_while_asking(self, committed: int | None = None) -> None:
        """Join and leave, the question for the key's start under way meanwhile; commit between; the answer comes then."""
        held = self._stage.doors.rules.add(Rule("ListOffsets", Hold(), client=self._name))
        self.join()
        eventually(lambda: not self.read() and held.met.is_set(), "the question for the start")
        if committed is not None:
            self.commit(committed)
        self.leave()
        assert self.asked("Fetch") == 0
        held.released.set()
        self._stage.doors.rules.clear()


@contextlib.contextmanager
def _on_one_processor() -> Iterator[None]:
    """Have threads that are begun in the block share a processor, so that one that is woken runs before who wakes it."""
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(everywhere)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, everywhere)


def _goes_back(offsets: list[int]) -> bool:
    return any(after <= before for before, after in itertools.pairwise(offsets))


@pytest.mark.spec("HIS-13")
@pytest.mark.parametrize("committed", [0, _COMMITTED])
def test_librdkafka_fetches_a_key_that_it_has_lost_and_gives_that_first_when_it_has_it_again(
    stage: Stage, committed: int
) -> None:
    for attempt in range(_ATTEMPTS):
        with _on_one_processor():
            member = _Member(stage, f"lost-{committed}-{attempt}")
        with member:
            member.lose_the_key_while_asking(committed or None)
            member.await_asked("Fetch", 2)  # of which the first has been answered
            assert member.told == ["assigned", "revoked"], "nobody has the key"
            member.join()
            found = member.read_all(commits=True)
        if found != _OFFSETS[committed:]:
            break
    early = len(found) - len(_OFFSETS[committed:])
    assert early > 0
    assert found == [*_OFFSETS[:early], *_OFFSETS[committed:]], (
        "what it fetched before, then from where it should begin"
    )
    assert member.told[:4] == ["assigned", "revoked", "assigned", 0]


@pytest.mark.spec("HIS-13")
def test_librdkafka_goes_back_to_a_keys_start_half_a_second_after_it_resumed(stage: Stage) -> None:
    for attempt in range(_ATTEMPTS):
        with _Member(stage, f"resumed-{attempt}") as member:
            member.lose_the_key_while_asking(_COMMITTED)
            member.join()
            found = member.read_all()
        if _goes_back(found):
            break
    assert found == [*_OFFSETS[_COMMITTED:], *_OFFSETS]
    assert member.told[: 3 + len(found)] == ["assigned", "revoked", "assigned", *found]


@pytest.mark.spec("HIS-13")
def test_librdkafka_begins_anew_where_it_is_told_twice_that_its_offset_is_unstable(stage: Stage) -> None:
    for attempt in range(_ATTEMPTS):
        with _Member(stage, name := f"unstable-{attempt}", "read_committed") as member:
            member.commit(_COMMITTED)
            producer = Producer(
                {
                    "bootstrap.servers": stage.bootstrap,
                    "transactional.id": name,
                    "transaction.timeout.ms": 600_000,
                }
            )
            member.begin_to_commit(producer, _OFFSETS[-1])
            member.join()
            member.await_asked("OffsetFetch", asked := 5)  # by then it waits for a second until it asks again
            member.leave()
            member.join()
            member.await_asked("OffsetFetch", asked + 6)
            producer.abort_transaction(_PATIENCE_S)
            found = member.read_all()
        if found[0] < _COMMITTED:
            break
    assert found == _OFFSETS
