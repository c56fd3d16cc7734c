"""What is kept of runs of real processes, ours and Kafka's; and one that fails, of mutated brokers, made smaller."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.compat import real_kafka
from tests.faults.world import BROKERS
from tests.histories.analyser.verdict import CLEAN, FOUND, judge
from tests.histories.frames.doors import Doors
from tests.histories.frames.record import Record, read_frames
from tests.histories.history import read_file
from tests.histories.kept.plan import WORKERS, read, told
from tests.histories.kept.versions import versions
from tests.histories.mutants import MUTANTS, found_in, planted
from tests.histories.nemesis import KafkaStage, create_topic
from tests.paths import ROOT
from tests.waiting import eventually

_KEPT = {
    "history.jsonl", "verdict.txt", "schedule.txt", "schedule.json", "versions.txt", "timeline.html", "data", "cluster",
}  # fmt: skip
_FIRST_OTHER = 900_000  # process that is no worker's: it deletes records, or reads all at the end
_CELL = ("--isolation", "read_committed", "--losses", "never", "--cleanup", "delete", "--via", "assign")


def _run(module: str, root: Path, temporary: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    temporary.mkdir(exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(root), "TMPDIR": str(temporary)}
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


def _check_kept(directory: Path, kinds: Sequence[str]) -> None:
    """Check that all is there of a run on our brokers: steps of these kinds, and what each broker said and stored."""
    assert {path.name for path in directory.iterdir()} - {"clients.log", "frames.jsonl", "shrunk"} == _KEPT
    history = read_file(directory / "history.jsonl")
    assert (directory / "verdict.txt").read_text().splitlines() == list(judge(history).lines())
    plan = read(directory / "schedule.json")
    assert [step.faults[0].kind for step in plan.steps] == list(kinds)
    assert (directory / "schedule.txt").read_text().splitlines() == list(told(plan))
    begun = [line["value"] for line in history.faults if isinstance(line["value"]["step"], int)]
    assert [value["step"] for value in begun if value["begins"]] == list(range(len(kinds)))
    sent = {send.value for operation in history.operations for send in operation.sends if send.offset is not None}
    for broker in BROKERS:
        own = directory / "cluster" / f"broker-{broker}"
        assert (own / "server.log").stat().st_size > 0
        assert "state.change.logger" in (own / "logs" / "state-change.log").read_text()
        logs = list((directory / "data" / f"broker-{broker}").glob("history-*/*.log"))
        stored = b"".join(log.read_bytes() for log in logs)
        assert sum(f"{value} ".encode() in stored for value in sent) > len(sent) / 2, "what was sent is in its logs"
        assert not list((own / "data").glob("*")), "it was moved"
    page = (directory / "timeline.html").read_text()
    assert all(f'<span class="name">broker {broker}</span>' in page for broker in BROKERS)
    assert page.count('<i class="fault"') >= len(kinds)


def _workers(directory: Path) -> set[int]:
    """Return who was at work, by the processes of a history."""
    processes = {operation.process for operation in read_file(directory / "history.jsonl").operations}
    return {process % WORKERS for process in processes if isinstance(process, int) and process < _FIRST_OTHER}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.spec("HIS-48")
def test_all_there_is_of_a_run_is_kept_if_that_is_asked_for(tmp_path: Path) -> None:
    arguments = ["--seed", "7", "--operations", "200", *_CELL, "--guarantee", "idempotent", "--pause", "1", "--frames"]
    arguments += ["--faults", "kill", "--steps", "1", "--least", "1", "--keep", str(tmp_path / "kept")]
    done = _run("tests.histories.run", ROOT, tmp_path / "temporary", *arguments)
    assert done.returncode == CLEAN, done.stdout + done.stderr
    _check_kept(tmp_path / "kept", ["kill"])
    assert {line["what"] for line in read_frames(tmp_path / "kept" / "frames.jsonl")} >= {"asked", "answered"}
    assert (tmp_path / "kept" / "versions.txt").read_text().splitlines() == list(versions())
    assert "no anomaly that is not allowed" in (tmp_path / "kept" / "verdict.txt").read_text()
    (register,) = (tmp_path / "temporary").glob("history-runs-*.txt")
    assert "seed 7 on ours: 200 operations" in register.read_text()


@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(3600)
@pytest.mark.spec("HIS-48", "HIS-49")
def test_a_run_that_fails_is_kept_and_made_smaller(tmp_path: Path) -> None:
    """Brokers that tell readers of no aborted records show it without any fault, and by few workers."""
    mutant = next(m for m in MUTANTS if m.number == 36)
    arguments = ["--seed", "1", "--operations", "16", *_CELL, "--guarantee", mutant.guarantee, "--pause", "1"]
    arguments += ["--faults", "kill", "--steps", "2", "--least", "2"]
    with planted(mutant) as root:
        failed = _run("tests.histories.run", root, tmp_path, *arguments)
        assert failed.returncode == FOUND, failed.stdout + failed.stderr
        (kept,) = tmp_path.glob("history-run-*")
        _check_kept(kept, ["kill", "kill"])
        assert "G1a" in found_in((kept / "verdict.txt").read_text())
        shrinking = _run("tests.histories.kept", root, tmp_path, str(kept), "--minutes", "30")
    assert shrinking.returncode in (0, 1), shrinking.stdout + shrinking.stderr
    least = read(kept / "shrunk" / "schedule.json")
    assert least.steps == (), shrinking.stdout
    assert len(least.workers) < WORKERS and least.operations < 16, shrinking.stdout
    assert "\n".join(told(least)) in shrinking.stdout
    at_work = _workers(kept / "shrunk")
    assert at_work and at_work <= set(least.workers) and len(_workers(kept)) > len(at_work)
    _check_kept(kept / "shrunk", [])
    assert found_in((kept / "shrunk" / "verdict.txt").read_text()) & found_in((kept / "verdict.txt").read_text())
    assert {path.name for path in kept.iterdir()} - {"clients.log"} == _KEPT | {"shrunk"}


def _log(directory: Path, broker: int, partition: int) -> Path:
    return directory / f"broker-{broker}" / f"orders-{partition}" / "00000000000000000000.log"


@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(1500)
@pytest.mark.spec("HIS-48")
@pytest.mark.parametrize("with_doors", [False, True])
def test_what_brokers_of_real_kafka_said_and_stored_is_kept_too(tmp_path: Path, with_doors: bool) -> None:
    real_kafka.require("2.8.2")
    doors = Doors(Record(tmp_path / "frames.jsonl")) if with_doors else None
    stage = KafkaStage("2.8.2", tmp_path / "cluster", doors)
    try:
        create_topic(stage, "orders", 2, {})
        wanted = [_log(tmp_path / "cluster", broker, partition) for broker in BROKERS for partition in (0, 1)]
        eventually(lambda: all(log.exists() for log in wanted), "replicas on each broker", 300)
    finally:
        stage.down(tmp_path / "data")
    for broker in BROKERS:
        assert all(_log(tmp_path / "data", broker, partition).exists() for partition in (0, 1))
        assert not _log(tmp_path / "cluster", broker, 1).exists(), "it was moved"
        assert (tmp_path / "cluster" / f"broker-{broker}.out").exists()
        log = (tmp_path / "cluster" / f"broker-{broker}-logs" / "state-change.log").read_text()
        assert "orders-1" in log and "(state.change.logger)" in log
