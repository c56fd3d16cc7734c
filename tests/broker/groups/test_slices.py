"""Loading, unloading and expiring many commits keeps nobody waiting (GRP-17).

``KT_COMMITS=1000000 scripts/test-slow tests/broker/groups/test_slices.py -s`` is the long form; it prints its figures.
"""

import gc
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kafkatool.broker.coordination import log_walk
from kafkatool.broker.groups.records import OffsetKey, OffsetValue, encode_key, encode_offset
from kafkatool.broker.groups.states import GroupState
from kafkatool.broker.runtime import gc_pause
from kafkatool.broker.runtime.gc_pause import gc_paused
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import Record, encode_batch, iter_records
from tests.broker.groups.test_coordinator import Stage
from tests.waiting import eventually

GROUPS = 1000
COMMITS = int(os.environ.get("KT_COMMITS", "100000"))


def fill(stage: Stage, commits: int) -> None:
    value = encode_offset(OffsetValue(7, 1, "", 1, None), with_epoch=True)
    batch_size = 100
    for first in range(0, commits, batch_size):
        records = [
            Record(i, 0, encode_key(OffsetKey(f"group-{n % GROUPS}", "topic", n // GROUPS)), value, ())
            for i, n in enumerate(range(first, min(first + batch_size, commits)))
        ]
        stage.replica.log.append_as_leader(encode_batch(records), 0, origin_client=False)


class Others:
    """Another group's heartbeats, and the processor time this process took between two of them: how long the
    interpreter was held, whatever else the machine did. It is printed; 20 ms are wanted.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._stop = threading.Event()
        self.beats = 0
        self.longest_ms = 0.0

    def run(self) -> None:
        last = time.process_time()
        while not self._stop.wait(0.001):
            error = self._stage.coordinator.heartbeat("another", "m", None, 1)
            assert error in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_MEMBER_ID)
            now = time.process_time()
            self.longest_ms, last = max(self.longest_ms, (now - last) * 1000), now
            self.beats += 1

    @contextmanager
    def beating(self, phase: str, *, at_least: int) -> Iterator[None]:
        self.beats, self.longest_ms = 0, 0.0
        self._stop.clear()
        thread = threading.Thread(target=self.run)
        thread.start()
        # From now on only what is done here can keep them waiting.
        eventually(lambda: self.beats > 0, "the first of them")
        self.beats, self.longest_ms = 0, 0.0
        started, started_cpu = time.monotonic(), time.process_time()
        try:
            yield
        finally:
            took, cpu = time.monotonic() - started, time.process_time() - started_cpu
            self._stop.set()
            thread.join()
        print(f"{phase}: {took:.2f} s, {cpu:.2f} s of CPU, interpreter held for {self.longest_ms:.0f} ms at most")
        assert self.beats >= at_least, phase


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.spec("GRP-17")
def test_other_groups_heartbeats_are_answered_while_many_commits_come_and_go(stage: Stage) -> None:
    fill(stage, COMMITS)
    others = Others(stage)
    with others.beating(f"load of {COMMITS} commits", at_least=COMMITS // 5000):
        stage.coordinator.on_leadership_change([stage.state()], [])
        eventually(lambda: not stage.coordinator.groups.partitions.loading(), "the load", 400)
    held = stage.coordinator.groups.all()
    assert sum(len(h.group.offsets.in_force) for h in held) == COMMITS

    def is_unloaded_beside_them() -> bool:
        """Unload; it takes 70 ms, for which others may have the machine: then it is loaded and unloaded once more."""
        held = stage.coordinator.groups.all()
        with others.beating("unload", at_least=0):
            stage.follow()
            eventually(lambda: not any(h.group.offsets.in_force for h in held), "the memory to be given back", 100)
        stage.lead()
        return others.beats > 0

    eventually(is_unloaded_beside_them, "a heartbeat to be answered during an unload", 100)
    with others.beating("expiry", at_least=COMMITS // 20_000):
        stage.expire_after(days=1)
    assert stage.coordinator.groups.all() == []


@pytest.mark.spec("GRP-17")
def test_the_cycle_collector_does_not_walk_through_what_was_loaded(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(stage, 2 * GROUPS)
    enabled: list[bool] = []
    records = iter_records

    def noting(batch: memoryview) -> Iterator[Record]:
        enabled.append(gc.isenabled())
        return records(batch)

    monkeypatch.setattr(log_walk, "iter_records", noting)
    monkeypatch.setattr(gc_pause, "_ours", True)  # as in a process that is a broker
    frozen = gc.get_freeze_count()
    try:
        stage.lead()
        assert enabled and not any(enabled)
        assert gc.isenabled()
        assert gc.get_freeze_count() >= frozen + 2 * GROUPS
    finally:
        gc.unfreeze()


@pytest.mark.spec("GRP-17")
def test_of_several_loads_the_last_lets_the_collector_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc_pause, "_ours", True)
    try:
        with gc_paused():
            with gc_paused():
                assert not gc.isenabled()
            assert not gc.isenabled()
        assert gc.isenabled()
        gc.disable()
        with gc_paused():
            pass
        assert not gc.isenabled(), "whoever runs this has switched it off"
    finally:
        gc.enable()
        gc.unfreeze()


@pytest.mark.spec("GRP-17")
def test_within_another_program_the_collector_is_left_alone(stage: Stage) -> None:
    fill(stage, 2 * GROUPS)
    frozen = gc.get_freeze_count()
    with gc_paused():
        assert gc.isenabled()
    stage.lead()
    assert gc.get_freeze_count() == frozen


@pytest.mark.spec("GRP-17", "GRP-15")
def test_an_unloaded_group_is_dead_at_once_and_its_memory_is_given_back_later(stage: Stage) -> None:
    partition = TopicPartition("t", 0)
    stage.lead()
    stage.commit({partition: 1})
    (held,) = stage.coordinator.groups.all()
    stage.follow()
    assert held.group.state is GroupState.DEAD
    eventually(lambda: not held.group.offsets.in_force, "its commits to be freed")
