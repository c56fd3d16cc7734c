"""What the simulated disk leaves after a power cut: all that was synced, and any part of what was not."""

import os
from pathlib import Path
from random import Random

import pytest

from tests.histories.simulated.disk import Disk


def left(directory: Path, seed: int, *, synced_names: bool) -> dict[str, bytes]:
    """Write files in a directory of a broker, let the power fail, and return what is there."""
    where = directory / str(seed) / "t-0"
    where.mkdir(parents=True)
    with Disk() as disk:
        for name, data in (("log", b"synced"), ("checkpoint", b"old"), ("going", b"gone")):
            with (where / name).open("wb", buffering=0) as file:
                file.write(data)
                os.fsync(file.fileno())
        sync_names(where)
        with (where / "log").open("ab", buffering=0) as file:
            file.write(b"+more")
        beside = where / "checkpoint.tmp"
        with beside.open("wb", buffering=0) as file:
            file.write(b"new")
            os.fsync(file.fileno())
        beside.replace(where / "checkpoint")
        (where / "going").unlink()
        (where / "unsynced").write_bytes(b"12")
        if synced_names:
            sync_names(where)
        disk.fail(where.parent, Random(seed))
    return {path.name: path.read_bytes() for path in where.iterdir()}


def sync_names(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


@pytest.mark.spec("HIS-47")
def test_what_was_synced_is_there_and_of_the_rest_any_part(tmp_path: Path) -> None:
    found = [left(tmp_path, seed, synced_names=False) for seed in range(60)]
    old = [files for files in found if "going" in files]
    new = [files for files in found if "going" not in files]
    assert old and new, "names of the last sync, or those of now"
    assert {(*sorted(files),) for files in old} == {("checkpoint", "going", "log")}
    assert {(*sorted(files),) for files in new} == {("checkpoint", "log", "unsynced")}
    assert {files["checkpoint"] for files in old} == {b"old"}, "it was renamed over, and is still held"
    assert {files["checkpoint"] for files in new} == {b"new"}
    assert {files["going"] for files in old} == {b"gone"}
    logs = {files["log"] for files in found}
    assert {log[:6] for log in logs} == {b"synced"}
    kept = {log.rstrip(b"\0") for log in logs}
    assert kept == {b"synced+more"[:end] for end in range(6, 12)}
    assert any(log.endswith(b"\0") and len(log) == 11 for log in logs), "its length without its data"
    assert {files["unsynced"].rstrip(b"\0") for files in new} == {b"", b"1", b"12"}


@pytest.mark.spec("HIS-47")
def test_names_that_were_synced_stay(tmp_path: Path) -> None:
    for seed in range(20):
        found = left(tmp_path, seed, synced_names=True)
        assert sorted(found) == ["checkpoint", "log", "unsynced"]
        assert found["checkpoint"] == b"new"


@pytest.mark.spec("HIS-47")
def test_the_calls_are_those_of_before_when_it_is_over() -> None:
    before = [getattr(os, name) for name in ("fsync", "rename", "replace", "unlink")]
    with Disk():
        assert os.fsync is not before[0]
    assert [getattr(os, name) for name in ("fsync", "rename", "replace", "unlink")] == before
