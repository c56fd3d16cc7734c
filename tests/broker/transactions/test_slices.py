"""Loading, unloading, scanning and expiring many transactional ids keeps nobody waiting (TXN-15).

``KT_IDS=1000000 scripts/test-slow tests/broker/transactions/test_slices.py -s`` is the long form; it prints its figures.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafkatool.broker.runtime import yielding
from kafkatool.broker.transactions.records import encode_key, encode_value
from kafkatool.broker.transactions.transaction import Identity, Transaction
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import Record, encode_batch
from tests.broker.transactions.stage import HERE, HOUR_MS, OWN, Mortal, Stage, stage
from tests.waiting import eventually

IDS = int(os.environ.get("KT_IDS", "50000"))
_BATCH = 500


@pytest.fixture
def on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with stage(tmp_path, monkeypatch) as running:
        yield running


def fill(on: Stage, ids: int) -> None:
    """Write ids that were used now, as their coordinator would have."""
    now_ms = on.coordinator.now_ms()
    for first in range(0, ids, _BATCH):
        records = [
            Record(
                n - first,
                now_ms,
                encode_key(f"id-{n}"),
                encode_value(Transaction(producer_id=1000 + n, epoch=0, timeout_ms=1000, update_ms=now_ms)),
                (),
            )
            for n in range(first, min(first + _BATCH, ids))
        ]
        on.world.partition(OWN).log.append_as_leader(encode_batch(records), 0, origin_client=False)


class Others:
    """Questions about another id, and the processor time this process took between two of them: how long the interpreter
    was held, whatever else the machine did. It is printed; 20 ms are wanted.
    """

    def __init__(self, on: Stage) -> None:
        self._on = on
        self.asked = 0

    @contextmanager
    def asking(self, phase: str) -> Iterator[None]:
        stop = threading.Event()
        longest_ms = 0.0

        def run() -> None:
            nonlocal longest_ms
            last = time.process_time()
            while not stop.wait(0.001):
                self._on.coordinator.verify("another", Identity(1, 0), frozenset({HERE}))
                now = time.process_time()
                longest_ms, last = max(longest_ms, (now - last) * 1000), now
                self.asked += 1

        self.asked = 0
        thread = threading.Thread(target=run)
        thread.start()
        eventually(lambda: self.asked > 0, "the first of them")
        self.asked, longest_ms = 0, 0.0
        try:
            yield
        finally:
            stop.set()
            thread.join()
        print(f"{phase}: {self.asked} questions, interpreter held for {longest_ms:.0f} ms at most")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.spec("TXN-15")
def test_questions_about_other_ids_are_answered_while_many_come_and_go(on: Stage) -> None:
    fill(on, IDS)
    others, threads = Others(on), threading.active_count()
    with others.asking(f"load of {IDS} ids"):
        on.succeed(Mortal())
    assert others.asked >= IDS // 5000
    assert len(on.coordinator.list()[1]) == IDS
    assert threading.active_count() <= threads + 1, "none for an id"
    with others.asking("scan for timeouts"):
        on.coordinator.time_out()
    object.__setattr__(on.world.config, "transactional_id_expiration_ms", 2 * HOUR_MS)
    on.passed_ms += 3 * HOUR_MS
    with others.asking("expiry"):
        on.coordinator.expire()
    assert others.asked >= IDS // 20_000
    assert on.coordinator.list()[1] == []


@pytest.mark.spec("TXN-15", "TXN-13")
def test_ids_of_a_lost_partition_are_refused_at_once_and_freed_later_one_by_one(on: Stage) -> None:
    fill(on, 10)
    on.succeed(Mortal())
    held = on.coordinator.owned.all()
    assert len(held) == 10
    counts = [sys.getrefcount(entry) for entry in held]
    on.take_jobs()
    on.world.manager.partitions.remove(OWN)
    on.coordinator.on_partitions_stopped([OWN])
    assert all(entry.gone for entry in held)
    assert on.coordinator.describe("id-1") is ErrorCode.NOT_COORDINATOR
    assert [sys.getrefcount(entry) for entry in held] == counts, "held by what is to let them go"
    for job in on.take_jobs():
        job()
    assert [sys.getrefcount(entry) for entry in held] == [count - 1 for count in counts]


@pytest.mark.spec("TXN-15")
def test_others_are_served_between_any_two_ids_and_no_thread_comes_for_one(
    on: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = 20
    fill(on, ids)
    on.succeed(Mortal())
    seconds, pauses = count(), list[ErrorCode]()
    with ThreadPoolExecutor(1) as others:

        def ask() -> ErrorCode:
            return on.coordinator.verify("another", Identity(1, 0), frozenset({HERE}))[HERE]

        def pause(_: float) -> None:
            pauses.append(others.submit(ask).result(60))  # a lock that is held over the pause keeps it from an answer

        others.submit(ask).result(60)
        threads = threading.active_count()
        # Each id takes a second by this clock: more than may be done at a stretch.
        monkeypatch.setattr(yielding, "time", SimpleNamespace(perf_counter=lambda: next(seconds), sleep=pause))

        def told(act: Callable[[], object]) -> list[ErrorCode]:
            pauses.clear()
            act()
            assert threading.active_count() == threads
            return list(pauses)

        unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert told(on.coordinator.time_out) == [unknown] * ids * 2, "what takes too long to begin, and to end"
        assert told(on.coordinator.expire) == [unknown] * ids
        on.world.follow(OWN, epoch=5)
        lost = [on.world.partition(OWN)]
        assert told(lambda: on.coordinator.on_leadership_change([], lost)) == [ErrorCode.NOT_COORDINATOR] * ids
