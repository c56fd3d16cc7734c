"""Class-data archives: bound to their Java and jars, used only as they were made, never made twice at once."""

import fcntl
import gc
import os
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen
from types import SimpleNamespace

import pytest

from kafkatool.core import class_data
from kafkatool.core.class_data import archive_path, discard, make, make_in_background, seal, usable
from kafkatool.core.java import Java, find_java

MAKER = ["python", "-m", "maker"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(class_data.SWITCH, raising=False)
    return tmp_path / "cache"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[str]]]:
    """Give the commands that would have been run in the background."""
    commands: list[list[str]] = []

    def start(command: list[str], **_: object) -> SimpleNamespace:
        commands.append(command)
        return SimpleNamespace()

    monkeypatch.setattr("subprocess.Popen", start)
    yield commands


def test_nobody_is_warned_of_a_maker_that_nobody_waits_for(cache: Path, tmp_path: Path) -> None:
    """A test suite whose warnings are errors would fail, on each fresh machine anew."""
    archive, go_on = tmp_path / "cache" / "a.jsa", tmp_path / "pipe"
    os.mkfifo(go_on)
    maker = [sys.executable, "-c", f"open({str(go_on)!r}).read()"]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert make_in_background(archive, maker)
        gc.collect()
    with go_on.open("w"):
        pass  # and it ends
    # what other tests left to be collected is told here, too, and is no maker
    assert [one.message for one in told if isinstance(one.source, Popen) and one.source.args == maker] == []


def made(archive: Path) -> Path:
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.write_bytes(b"classes")
    seal(archive)
    return archive


def test_each_java_has_an_archive_of_its_own_for_its_exact_jars(cache: Path, tmp_path: Path) -> None:
    one = Java(tmp_path / "one" / "bin" / "java", 17)
    other = Java(tmp_path / "other" / "bin" / "java", 17)
    (jar := tmp_path / "one.jar").write_bytes(b"classes")
    of_one = archive_path("some", one, [jar])
    assert of_one.parent == cache / "kafkatool"
    assert of_one == archive_path("some", one, [jar]) != archive_path("some", other, [jar])
    assert of_one != archive_path("other", one, [jar])
    jar.write_bytes(b"others")
    assert of_one != archive_path("some", one, [jar])


def test_an_archive_is_used_only_as_it_was_made(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = archive_path("some", find_java(), [])
    assert not usable(archive)
    made(archive)
    assert usable(archive)
    monkeypatch.setenv(class_data.SWITCH, "off")
    assert not usable(archive)
    monkeypatch.delenv(class_data.SWITCH)
    archive.write_bytes(b"classe!")
    os.utime(archive, ns=(1, 1))
    assert not usable(archive)
    archive.unlink()
    assert not usable(archive)


def test_it_is_made_in_the_background_unless_that_failed_lately_or_is_under_way(
    cache: Path, started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = archive_path("some", find_java(), [])
    assert make_in_background(archive, MAKER)
    assert started == [MAKER]
    with archive.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not make_in_background(archive, MAKER)
    discard(made(archive))
    assert not archive.exists()
    assert not make_in_background(archive, MAKER)
    long_ago = time.time() - class_data.RETRY_S - 60
    os.utime(archive.with_suffix(".failed"), (long_ago, long_ago))
    assert make_in_background(archive, MAKER)
    monkeypatch.setenv(class_data.SWITCH, "off")
    assert not make_in_background(archive, MAKER)
    assert len(started) == 2


def test_a_cache_that_cannot_be_written_costs_nothing(
    tmp_path: Path, started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.delenv(class_data.SWITCH, raising=False)
    assert not make_in_background(archive_path("some", find_java(), []), MAKER)
    assert started == []


def test_a_making_that_fails_leaves_no_archive_and_is_not_tried_again_for_a_day(
    cache: Path, started: list[list[str]]
) -> None:
    archive = archive_path("some", find_java(), [])

    def fail(directory: Path, classes: Path) -> None:
        assert not make_in_background(archive, MAKER), "it is under way"
        raise ValueError

    with pytest.raises(ValueError):
        make(archive, fail, ["java"])
    assert not usable(archive) and not make_in_background(archive, MAKER)
    assert started == [] and list(archive.parent.glob("making-*")) == []
