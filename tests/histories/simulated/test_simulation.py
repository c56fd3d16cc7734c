"""The simulated cluster's histories: the same for the same seed, clean, and not blind."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kafkatool.broker.replication.following import follow
from kafkatool.broker.replication.following.truncation import Truncation
from kafkatool.broker.replication.leading.fetch_sessions import FetchPlan, FetchSessions
from kafkatool.broker.security.principal import ANONYMOUS, Principal
from kafkatool.broker.storage.compaction import compaction_round
from kafkatool.broker.storage.log import log_opening, log_reader
from kafkatool.core.protocol.messages.fetch import FetchRequest
from tests.histories.analyser.verdict import CLEAN, FOUND
from tests.histories.history import FAIL, INFO, OK, read_file
from tests.histories.simulated.brokers import KEYS, OUTPUT
from tests.histories.simulated.coordination import GROUP, TRANSFORMERS
from tests.histories.simulated.faults import ASKED_FOR, KINDS
from tests.histories.simulated.shrinking import shrunk
from tests.histories.simulated.simulation import Schedule, StalledError, drawn, run
from tests.paths import ROOT

_OPERATIONS = 300


@pytest.mark.slow
@pytest.mark.spec("HIS-48")
def test_the_same_schedule_gives_the_same_history_byte_for_byte(tmp_path: Path) -> None:
    for name in ("once", "again"):
        run(tmp_path / name, drawn(5, _OPERATIONS))
    once, again = ((tmp_path / name / "history.jsonl").read_bytes() for name in ("once", "again"))
    assert once == again
    run(tmp_path / "another", drawn(6, _OPERATIONS))
    assert (tmp_path / "another" / "history.jsonl").read_bytes() != once


@pytest.mark.slow
@pytest.mark.spec("HIS-48")
def test_no_order_of_a_set_shows_in_a_history(tmp_path: Path) -> None:
    for hashes in ("1", "2"):
        kept = ["--seeds", "5", "--operations", "200", "--keep", str(tmp_path / hashes)]
        environment = {**os.environ, "PYTHONHASHSEED": hashes}
        subprocess.run(
            [sys.executable, "-m", "tests.histories.simulated", *kept], cwd=ROOT, env=environment, check=True
        )
    one, other = ((tmp_path / hashes / "5" / "history.jsonl").read_bytes() for hashes in ("1", "2"))
    assert one == other


_ALONE = """
import sys, threading, time
from pathlib import Path
from types import SimpleNamespace
from kafkatool.broker.runtime import yielding
from tests.histories.simulated.simulation import drawn, run

def refuse(*_):
    raise AssertionError("nobody waits, and nobody else is at work")

def thrice(clock):
    return lambda: clock() * 3

for owner, name in ((threading.Thread, "start"), (time, "sleep"), (threading.Condition, "wait")):
    setattr(owner, name, refuse)
for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter"):
    setattr(time, name, thrice(getattr(time, name)))
# Its pauses are for threads that are not here: they come by the machine's time, and nothing waits for them.
yielding.time = SimpleNamespace(perf_counter=time.perf_counter, sleep=lambda _: None)
run(Path(sys.argv[1]), drawn(5, int(sys.argv[2]), ["kill", "power", "session"]))
"""


@pytest.mark.slow
@pytest.mark.spec("HIS-48")
def test_a_run_has_one_thread_and_a_clock_of_its_own(tmp_path: Path) -> None:
    """In an interpreter of its own, as whatever else waits in this one would be refused as well."""
    run(tmp_path / "once", drawn(5, _OPERATIONS, ["kill", "power", "session"]))
    alone = [sys.executable, "-c", _ALONE, str(tmp_path / "again"), str(_OPERATIONS)]
    subprocess.run(alone, cwd=ROOT, check=True)
    once, again = ((tmp_path / name / "history.jsonl").read_bytes() for name in ("once", "again"))
    assert once == again


@pytest.mark.slow
@pytest.mark.spec("HIS-48")
def test_members_share_a_group_s_keys_through_several_generations_and_commit_in_them(tmp_path: Path) -> None:
    run(tmp_path / "run", drawn(1, _OPERATIONS * 2))
    operations = read_file(tmp_path / "run" / "history.jsonl").operations
    told: set[str] = set()
    for group in (GROUP, TRANSFORMERS):
        own = [o for o in operations if o.group == group]
        events = [event for o in own for event in o.rebalance]
        told |= {event.what for event in events}
        generations = [event.generation for event in events if event.what == "assigned"]
        assert None not in generations and len(set(generations)) > 2
        owners = {
            (event.generation, key, o.process)
            for o in own
            for event in o.rebalance
            if event.what == "assigned"
            for key in event.keys
        }
        assert len({(generation, key) for generation, key, _ in owners}) == len(owners), "one owner each"
        assert any(
            len({process for generation, _, process in owners if generation == one}) > 1 for one in generations
        ), "and several share"
        committed = [o for o in own if any(commit.offsets and commit.outcome == OK for commit in o.commits)]
        assert len({o.process for o in committed}) > 1
        in_generations = {o.generation for o in committed if o.generation is not None}
        assert len(in_generations) > 2 and in_generations <= set(generations)
    assert told == {"assigned", "revoked", "lost"}


@pytest.mark.slow
@pytest.mark.spec("HIS-48")
def test_transactions_come_to_every_end_with_values_and_with_offsets(tmp_path: Path) -> None:
    transactions = []
    for seed in (1, 2, 3):
        run(tmp_path / "run", drawn(seed, _OPERATIONS * 2))
        transactions += [o for o in read_file(tmp_path / "run" / "history.jsonl").operations if o.f == "txn"]
    assert {o.type for o in transactions} == {OK, FAIL, INFO}
    assert any(commit.offsets for o in transactions if o.type == OK for commit in o.commits)
    outputs = [send for o in transactions for send in o.sends if send.key == OUTPUT]
    assert outputs
    assert all(send.source is not None for send in outputs)


@pytest.mark.spec("HIS-48", "HIS-20")
def test_a_run_ends_with_the_batches_in_which_all_that_was_read_lies(tmp_path: Path) -> None:
    run(tmp_path / "run", drawn(3, _OPERATIONS))
    operations = read_file(tmp_path / "run" / "history.jsonl").operations
    last = operations[-1]
    assert (last.f, last.type) == ("batches", OK)
    read = {
        (key, at) for o in operations for poll in o.polls for key, (offsets, _) in poll.runs.items() for at in offsets
    }
    assert len(read) > _OPERATIONS / 4
    assert all(any(base <= at <= end for base, end, *_ in last.value[key]) for key, at in read)


@pytest.mark.spec("HIS-48", "HIS-50")
@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 9))])
def test_clients_of_the_simulated_brokers_see_nothing_that_is_not_allowed(tmp_path: Path, seed: int) -> None:
    verdict = run(tmp_path / "run", drawn(seed, _OPERATIONS))
    assert verdict.exit_code == CLEAN, list(verdict.lines())


@pytest.mark.slow
@pytest.mark.spec("HIS-45", "HIS-48")
@pytest.mark.parametrize("kind", ASKED_FOR)
def test_what_a_run_has_to_ask_for_shows_nothing_either(tmp_path: Path, kind: str) -> None:
    verdict = run(tmp_path / "run", drawn(2, _OPERATIONS, [kind, "move"]))
    assert verdict.exit_code == CLEAN, list(verdict.lines())


@pytest.mark.slow
@pytest.mark.spec("HIS-45", "HIS-48", "HIS-49", "BRK-137")
def test_no_power_cut_leaves_a_hole_that_anybody_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With small segments one that was not synced yet is often lost while the next one is not."""
    monkeypatch.setattr(Schedule, "segment_bytes", 600)
    schedules = (drawn(seed, 800, ["power", "move"]) for seed in range(2, 22))
    with monkeypatch.context() as patch:
        patch.setattr(log_opening, "first_gap", lambda *_: None)
        seen = next(one for one in schedules if run(tmp_path / "run", one).exit_code == FOUND)
    verdict = run(tmp_path / "run", seen)
    assert verdict.exit_code == CLEAN, list(verdict.lines())


@pytest.mark.slow
@pytest.mark.spec("HIS-30", "HIS-48")
def test_compacted_keys_show_nothing_and_are_compacted(tmp_path: Path) -> None:
    schedule = drawn(1, _OPERATIONS, compacted=True)
    verdict = run(tmp_path / "run", schedule)
    assert verdict.exit_code == CLEAN, list(verdict.lines())
    history = read_file(tmp_path / "run" / "history.jsonl")
    assert history.options["cleanup"] == "compact"
    sent = {send.value for o in history.operations if o.type == OK for send in o.sends if send.key in KEYS}
    reader = next(o.process for o in history.operations if o.f == "final")
    last = {
        v for o in history.operations if o.process == reader for p in o.polls for _, vs in p.runs.values() for v in vs
    }
    assert any(value < 0 for value in sent), "tombstones"
    assert sent - last, "what was replaced is gone"


@pytest.mark.spec("HIS-13", "HIS-48")
def test_a_process_reads_in_fetch_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    incremental = []
    real = FetchSessions.plan

    def noted(self: FetchSessions, request: FetchRequest, owner: Principal = ANONYMOUS) -> FetchPlan:
        plan = real(self, request, owner)
        incremental.append(plan.incremental)
        return plan

    monkeypatch.setattr(FetchSessions, "plan", noted)
    run(tmp_path / "run", drawn(1, _OPERATIONS, ["move"]))
    assert incremental.count(True) > incremental.count(False) > 0


@pytest.mark.spec("HIS-29", "HIS-48")
def test_records_are_deleted_and_starts_told(tmp_path: Path) -> None:
    run(tmp_path / "run", drawn(2, _OPERATIONS, ["delete"]))
    operations = read_file(tmp_path / "run" / "history.jsonl").operations
    deleted = [o for o in operations if o.f == "delete" and o.type == OK and max(o.value.values()) > 0]
    assert deleted
    told = [o for o in operations if o.f == "ends" and o.type == OK and o.invoked > deleted[0].completed]
    key, offset = next(iter(deleted[0].value.items()))
    assert told and all(o.value[key][0] >= offset for o in told)


@pytest.mark.spec("HIS-45", "HIS-48")
def test_a_schedule_is_a_function_of_its_seed_and_has_every_kind_of_fault() -> None:
    assert drawn(3, 2000) == drawn(3, 2000) != drawn(4, 2000)
    assert {fault.kind for seed in range(20) for fault in drawn(seed, 2000).faults} == set(KINDS)
    assert {fault.kind for fault in drawn(3, 2000, ["kill"]).faults} == {"kill"}


@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.spec("HIS-48", "HIS-49")
def test_followers_that_cut_nothing_are_found_out_by_a_schedule_of_which_nothing_can_be_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "decide_truncation", lambda _epochs, end, *_: Truncation(end, True))

    def fails(schedule: Schedule) -> bool:
        try:
            return bool(run(tmp_path / "run", schedule).unallowed)
        except StalledError:
            return False

    schedule = next(schedule for schedule in (drawn(seed, _OPERATIONS) for seed in range(1, 30)) if fails(schedule))
    least = shrunk(schedule, fails)
    assert fails(least)
    assert 1 <= len(least.faults) < len(schedule.faults)
    for fault in least.faults:
        assert not fails(replace(least, faults=tuple(other for other in least.faults if other != fault)))
    assert least.operations < schedule.operations
    assert least.operations == 1 or not fails(replace(least, operations=least.operations - 1))
    assert 1 <= len(least.present) < len(schedule.present)
    for process in least.present if len(least.present) > 1 else ():
        assert not fails(least.with_only([other for other in least.present if other != process]))


@pytest.mark.spec("HIS-48", "HIS-49")
def test_values_of_aborted_transactions_that_readers_are_not_told_of_are_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "_aborted_transactions", lambda *_: [])
    assert "G1a" in {anomaly.kind for anomaly in run(tmp_path / "run", drawn(1, _OPERATIONS)).unallowed}


@pytest.mark.slow
@pytest.mark.spec("HIS-48", "HIS-49")
def test_a_repeat_of_a_batch_that_compaction_left_nothing_of_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kinds(schedule: Schedule) -> set[str]:
        return {anomaly.kind for anomaly in run(tmp_path / "run", schedule).unallowed}

    schedules = (drawn(seed, _OPERATIONS, ["repeat"], compacted=True) for seed in range(1, 20))
    with monkeypatch.context() as patch:
        patch.setattr(compaction_round, "empty_batch", lambda _: None)
        caught = next(schedule for schedule in schedules if kinds(schedule) == {"duplicate"})
    assert kinds(caught) == set()
