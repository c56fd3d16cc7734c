"""The lock on a plan: one holder, seen by others, gone with its process; and no trouble where it cannot be had."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafkatool.core.errors import RefusedError
from kafkatool.core.operations.reassignment.runs import run_lock
from kafkatool.core.operations.reassignment.runs.saved_run import RunFiles
from tests.waiting import eventually

HOLDER = """
import sys, pathlib
from kafkatool.core.operations.reassignment.runs import run_lock
with run_lock.held(*map(pathlib.Path, sys.argv[1:])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.spec("RSN-22X", "RSN-31X")
def test_it_has_one_holder_and_goes_with_a_process_that_is_killed(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.touch()
    assert not run_lock.is_held(plan)
    command = [sys.executable, "-c", HOLDER, str(plan)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        assert run_lock.is_held(plan)
        with pytest.raises(run_lock.HeldError, match="another kt is carrying out this plan"), run_lock.held(plan):
            pass
        holder.kill()
    eventually(lambda: not run_lock.is_held(plan), "the lock to go", 60)
    with run_lock.held(plan):
        assert run_lock.is_held(plan)
    assert not run_lock.is_held(plan)
    assert list(tmp_path.iterdir()) == [plan]


@pytest.mark.spec("ADM-108")
@pytest.mark.parametrize("words", [("reassign", "--execute"), ("drain", "3")])
def test_a_kt_that_carries_out_a_plan_is_seen_on_its_machine_wherever_its_plan_is(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    """The other way round nothing can be said here: other tests may carry out plans."""
    plan = tmp_path / "plan.json"
    plan.touch()
    command = [sys.executable, "-c", HOLDER.replace("sys.argv[1:]", "sys.argv[1:2]"), str(plan), *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        assert run_lock.any_held()
        holder.kill()


@pytest.mark.spec("RSN-22X", "RSN-31X")
def test_a_plan_that_an_editor_has_replaced_is_still_locked_for_others(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text("before")
    files = RunFiles(str(plan))
    with files.alone():
        for text in ("once", "twice"):
            (tmp_path / "saved").write_text(text)
            (tmp_path / "saved").replace(plan)
            assert files.is_carried_out()
            with pytest.raises(run_lock.HeldError), files.alone():
                pass
        assert files.is_carried_out()  # who was refused has not taken the file away
    assert not files.is_carried_out() and list(tmp_path.iterdir()) == [plan]


@pytest.mark.spec("RSN-22X", "RSN-20X")
@pytest.mark.parametrize("plan", ["-", "/dev/stdin", "/dev/fd/63"])
def test_what_belongs_to_a_plan_from_a_pipe_lies_in_the_working_directory(
    plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = RunFiles(plan)
    assert (files.state, files.rollback) == (Path("reassignment.state.json"), Path("reassignment.rollback.json"))
    with files.alone():
        with pytest.raises(run_lock.HeldError), RunFiles("-").alone():
            pass
        assert not list(tmp_path.iterdir())


@pytest.mark.spec("RSN-22X")
def test_the_file_that_a_killed_holder_has_left_is_taken_again(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.touch()
    files = RunFiles(str(plan))
    lock = tmp_path / "plan.lock"
    command = [sys.executable, "-c", HOLDER, str(plan), str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        plan.unlink()
        assert files.is_carried_out()
        holder.kill()
    assert lock.exists() and not files.is_carried_out()
    with files.alone():
        assert files.is_carried_out()
    assert not lock.exists()


@pytest.mark.spec("RSN-22X", "RSN-31X")
def test_who_waits_for_a_file_that_its_holder_removes_takes_the_one_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, lock = tmp_path / "plan.json", tmp_path / "plan.lock"
    plan.touch()
    flock = fcntl.flock
    waited: list[int] = []

    def taken_as_its_holder_ends(descriptor: int, operation: int) -> None:
        if lock.exists() and not waited:
            waited.append(lock.stat().st_ino)
            lock.unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", taken_as_its_holder_ends)
    with RunFiles(str(plan)).alone():
        assert waited and run_lock.is_held(lock)


@pytest.mark.spec("RSN-22X")
def test_who_looks_does_not_keep_others_from_taking_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def flock(descriptor: int, operation: int) -> None:
        tried.append(operation)
        if len(tried) < 3:
            raise BlockingIOError

    monkeypatch.setattr(run_lock, "_PATIENCE_S", 60.0)
    monkeypatch.setattr(fcntl, "flock", flock)
    with run_lock.held(tmp_path):
        assert len(tried) == 3


@pytest.mark.spec("SEC-45")
def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    plan, lock, elsewhere = tmp_path / "plan.json", tmp_path / "plan.lock", tmp_path / "elsewhere"
    plan.touch()
    lock.symlink_to(elsewhere)
    with pytest.raises(RefusedError, match=r"plan\.lock is a symbolic link"), run_lock.held(plan, lock):
        pass
    assert not elsewhere.exists() and not run_lock.is_held(plan)


@pytest.mark.spec("RSN-22X")
def test_a_file_that_may_only_be_read_a_directory_and_a_pipe_can_be_held(tmp_path: Path) -> None:
    plan, pipe = tmp_path / "plan.json", tmp_path / "pipe"
    plan.touch(mode=0o400)
    os.mkfifo(pipe)
    for path in (plan, tmp_path, pipe):
        with run_lock.held(path):
            assert run_lock.is_held(path)


@pytest.mark.spec("RSN-22X")
def test_without_locks_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(95, "Operation not supported")

    with run_lock.held(tmp_path / "absent"):
        assert not run_lock.is_held(tmp_path / "absent")
    monkeypatch.setattr(fcntl, "flock", flock)
    with run_lock.held(tmp_path):
        assert not run_lock.is_held(tmp_path)
