"""The class-data archive of ZooKeeper's JVM: made once, used by the next start, given up where the JVM dies of it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from kafkatool.broker.embedded.ports import free_ports
from kafkatool.broker.embedded.zookeeper_archive_maker import make
from kafkatool.broker.embedded.zookeeper_process import MAIN, ZooKeeperProcess, archive_path
from kafkatool.core import class_data
from kafkatool.core.java import find_java
from tests.waiting import eventually

READY_MS = 100_000


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(class_data.SWITCH, raising=False)
    return tmp_path / "cache"


@pytest.fixture
def server(cache: Path, tmp_path: Path) -> Iterator[ZooKeeperProcess]:
    (port,) = free_ports(1)
    server = ZooKeeperProcess(tmp_path / "zookeeper", port)
    yield server
    server.stop(gentle=False)


def maps(server: ZooKeeperProcess, archive: Path) -> bool:
    """Tell whether the server that runs has the archive in its memory."""
    assert server.child is not None
    return str(archive) in Path(f"/proc/{server.child.pid}/maps").read_text()


def test_it_is_made_once_and_used_until_it_is_found_damaged(
    server: ZooKeeperProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make()
    archive = archive_path(find_java())
    made_at = archive.stat().st_mtime_ns
    make()
    assert archive.stat().st_mtime_ns == made_at and list(archive.parent.glob("making-*")) == []
    server.start().wait_ready(READY_MS)
    assert maps(server, archive) and not server.have_archive_made()
    server.stop()

    monkeypatch.setenv(class_data.SWITCH, "off")
    server.start().wait_ready(READY_MS)
    assert not maps(server, archive) and not server.have_archive_made()
    server.stop()
    monkeypatch.delenv(class_data.SWITCH)

    data = bytearray(archive.read_bytes())
    data[4096 : len(data) // 2] = b"\xa5" * (len(data) // 2 - 4096)
    archive.chmod(0o644)
    archive.write_bytes(data)
    class_data.seal(archive)  # damage that nobody could see
    monkeypatch.chdir(tmp_path)
    server.start().wait_ready(READY_MS)
    assert not archive.exists() and not server.have_archive_made(), "it killed the JVM, and may do so again"
    assert list(tmp_path.glob("*.log")) + list(tmp_path.glob("core*")) == [], "where it crashed it told nobody"


def test_a_start_that_lacked_it_has_it_made(server: ZooKeeperProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    server.start().wait_ready(READY_MS)
    started: list[list[str]] = []
    monkeypatch.setattr("subprocess.Popen", lambda command, **_: started.append(command) or SimpleNamespace())  # type: ignore[func-returns-value]
    assert server.have_archive_made()
    monkeypatch.undo()
    assert started == [[sys.executable, "-P", "-m", "kafkatool.broker.embedded.zookeeper_archive_maker"]]


def test_a_maker_that_is_killed_leaves_no_server(cache: Path) -> None:
    environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
    command = [sys.executable, "-m", "kafkatool.broker.embedded.zookeeper_archive_maker"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as maker:
        try:
            eventually(lambda: bool(servers_below(cache)), "the server that lists its classes", 100)
        finally:
            maker.kill()
    eventually(lambda: not servers_below(cache), "its end", 100)


def servers_below(directory: Path) -> list[psutil.Process]:
    """Return the ZooKeepers with their data there."""
    found = []
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
        except psutil.Error:
            continue
        if MAIN in command and str(directory) in command[-1] and process.status() != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found
