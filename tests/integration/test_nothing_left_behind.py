"""A process that used a cluster and was killed leaves no process and no directory, whatever state the cluster was in."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kafkatool import EmbeddedCluster
from kafkatool.broker.embedded.cluster_files import ClusterFiles
from tests.waiting import eventually

USER = """
import signal, sys
from kafkatool import EmbeddedCluster
cluster = EmbeddedCluster(brokers=2, directory=(sys.argv[1] if len(sys.argv) > 1 else None))
with cluster:
    frozen = cluster.faults.freeze(2)
    print(cluster.files.directory, flush=True)
    signal.pause()
"""

SHARES = """
import signal
from kafkatool import EmbeddedCluster
cluster = EmbeddedCluster(brokers=2, directory="{directory}").share()
frozen = cluster.faults.freeze(2)
print("frozen", flush=True)
signal.pause()
"""


def user(tmp_path: Path, *arguments: str) -> tuple[subprocess.Popen[str], Path]:
    """Start a process with a cluster, one of its brokers frozen; return the cluster's directory, too."""
    process = subprocess.Popen(
        [sys.executable, "-c", USER, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert process.stdout is not None
    with process.stdout:
        return process, Path(process.stdout.readline().strip())


def processes_of(directory: Path) -> list[psutil.Process]:
    """List those that name the directory; a zombie names nothing."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(str(directory) in argument for argument in process.cmdline()):
                found.append(process)
    return found


@pytest.fixture(autouse=True)
def nothing_of_ours(tmp_path: Path) -> Iterator[None]:
    """End what is left when a test fails."""
    yield
    for process in processes_of(tmp_path):
        with contextlib.suppress(psutil.Error):
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_after_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    process, directory = user(tmp_path)
    assert len(processes_of(directory)) == 4, "ZooKeeper, two brokers, the guardian"
    process.send_signal(number)
    process.wait()
    eventually(lambda: not processes_of(directory), "the processes to end")
    eventually(lambda: not directory.exists(), "the directory to go")
    assert directory.parent == tmp_path and list(tmp_path.iterdir()) == []


def test_after_a_signal_a_directory_that_was_given_stays(tmp_path: Path) -> None:
    process, directory = user(tmp_path, str(tmp_path / "given"))
    process.kill()
    process.wait()
    eventually(lambda: not processes_of(directory), "the processes to end")
    assert (directory / "broker-1" / "server.log").stat().st_size


def test_what_is_left_when_the_guardian_is_killed_too_goes_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, directory = user(tmp_path)
    (guardian,) = (p for p in processes_of(directory) if "kafkatool.broker.embedded.guardian" in p.cmdline())
    guardian.kill()
    process.kill()
    process.wait()
    assert processes_of(directory) and directory.exists()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with EmbeddedCluster(brokers=1) as cluster:
        assert not processes_of(directory) and not directory.exists()
        assert [p.name for p in tmp_path.iterdir()] == [cluster.files.directory.name], "its own is there"
    assert list(tmp_path.iterdir()) == []


def test_a_shared_cluster_ends_with_the_last_of_its_users(tmp_path: Path) -> None:
    first = EmbeddedCluster(brokers=1, directory=tmp_path / "shared").share()
    second = EmbeddedCluster(brokers=1, directory=tmp_path / "shared").share()
    pid = first.status().brokers[0].pid
    assert pid == second.status().brokers[0].pid is not None
    first.down()
    assert second.status().brokers[0].pid == pid
    second.down()
    eventually(lambda: not processes_of(tmp_path / "shared"), "the processes to end")
    third = EmbeddedCluster(brokers=1, directory=tmp_path / "shared").share()
    assert third.status().brokers[0].pid not in (pid, None)
    third.down()
    eventually(lambda: not processes_of(tmp_path / "shared"), "the processes to end")


@pytest.mark.slow
def test_the_guardian_of_one_who_is_gone_spares_what_was_started_since_then(tmp_path: Path) -> None:
    """Ended by another (kt cluster down) and started anew for nobody (kt cluster up), while the owner lived on."""
    directory = tmp_path / "laptop"
    owner, _ = user(tmp_path, str(directory))
    EmbeddedCluster(directory=directory).down(gentle=False)
    guardians = [p for p in processes_of(directory) if "kafkatool.broker.embedded.guardian" in p.cmdline()]
    with EmbeddedCluster(brokers=1, directory=directory) as again:  # its own end ends it
        again.down(gentle=False)
        again.up(owned=False)
        owner.kill()
        owner.wait()
        eventually(lambda: not any(g.is_running() for g in guardians), "the guardian to end")
        assert again.status().brokers[0].pid is not None


def test_whoever_ended_late_spares_what_was_started_since_then(tmp_path: Path) -> None:
    """The owner's end comes after kt cluster down and up: the cluster there now is not its own."""
    owner = EmbeddedCluster(brokers=1, directory=tmp_path / "laptop").up()
    other = EmbeddedCluster(brokers=1, directory=tmp_path / "laptop")
    other.down(gentle=False)
    other.up(owned=False)
    pid = other.status().brokers[0].pid
    owner.down()
    assert other.status().brokers[0].pid == pid is not None
    EmbeddedCluster(directory=tmp_path / "laptop").down(gentle=False)  # who has started none may end any
    eventually(lambda: not processes_of(tmp_path / "laptop"), "the processes to end")


def test_what_a_killed_process_froze_goes_on_for_those_who_share_the_cluster(tmp_path: Path) -> None:
    mine, theirs = (EmbeddedCluster(brokers=2, directory=tmp_path / "shared").share() for _ in range(2))
    script = SHARES.format(directory=tmp_path / "shared")
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline().strip() == "frozen"
        mine.restore()
        frozen = psutil.Process(mine.status().brokers[1].pid)
        assert frozen.status() == psutil.STATUS_STOPPED, "it belongs to one who lives"
        process.kill()
        process.wait()
        theirs.restore()
        assert frozen.status() != psutil.STATUS_STOPPED
        theirs.create_topic("t", replication_factor=2)
    for cluster in (mine, theirs):
        cluster.down()
    eventually(lambda: not processes_of(tmp_path / "shared"), "the processes to end")


def test_a_guardian_waits_for_whoever_starts_a_broker(tmp_path: Path) -> None:
    owner, directory = user(tmp_path)
    with ClusterFiles(directory).lock():
        owner.kill()
        owner.wait()
        time.sleep(2)
    eventually(lambda: not processes_of(directory), "the processes to end")
    eventually(lambda: not directory.exists(), "the directory to go")


def test_a_temporary_cluster_that_could_not_be_started_to_be_shared_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    cluster = EmbeddedCluster(brokers=1, name="shared")
    monkeypatch.setattr(cluster, "_wait_ready", interrupt)
    with pytest.raises(KeyboardInterrupt):
        cluster.share()
    eventually(lambda: not processes_of(tmp_path), "the processes to end")
    eventually(lambda: not list(tmp_path.iterdir()), "the directory to go")
