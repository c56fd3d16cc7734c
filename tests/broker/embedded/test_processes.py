"""Processes that belong to a cluster, and those that only look at its files."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from kafkatool.broker.embedded import processes
from kafkatool.broker.embedded.cluster_files import ClusterFiles
from kafkatool.broker.embedded.cluster_processes import ClusterProcesses
from kafkatool.broker.embedded.zookeeper_process import MAIN
from tests.paths import ROOT


@pytest.fixture
def looking_on(tmp_path: Path) -> Iterator[Path]:
    """Run a process that shows a file as a pager or an editor would."""
    path = tmp_path / "server.properties"
    wait = "import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", wait, str(path)], stdin=-1, stdout=-1) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        yield path
        process.stdin.close()


def test_whoever_only_has_the_file_open_is_not_taken_for_the_broker(looking_on: Path) -> None:
    assert processes.find("kafkatool", looking_on) is None
    assert processes.find("-c", looking_on) is not None


def test_no_module_of_the_directory_that_somebody_is_in_is_taken(tmp_path: Path) -> None:
    """A file of one's project named as a library is would break each broker; in /tmp it might be another's."""
    for name in ("orjson", "queue", "click"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(3)\n")
    command = ClusterProcesses(ClusterFiles(tmp_path / "cluster")).command(1)
    assert command[:2] == [sys.executable, "-P"]
    ran = subprocess.run([*processes.PYTHON, "-m", "kafkatool", "--version"], cwd=tmp_path, timeout=60, check=False)
    assert ran.returncode == 0


def test_a_checkout_that_is_not_installed_is_found_by_its_processes(tmp_path: Path) -> None:
    bare = [sys.executable, "-S", "-P", "-c", "import kafkatool; print(kafkatool.__file__)"]  # without site-packages
    environment = {k: v for k, v in processes.own_environment().items() if k != "PYTHONHOME"}
    found = subprocess.run(bare, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert Path(found.stdout.strip()).parents[1] == ROOT


@pytest.fixture
def running() -> Iterator[Callable[[Sequence[str]], int]]:
    """Run processes of no work with such arguments, by their ids."""
    words = "import sys; print(flush=True); sys.stdin.read()"
    with contextlib.ExitStack() as ends:

        def run(arguments: Sequence[str]) -> int:
            process = ends.enter_context(
                subprocess.Popen([sys.executable, "-c", words, *arguments], stdin=-1, stdout=-1)
            )
            assert process.stdin is not None and process.stdout is not None
            ends.callback(process.stdin.close)
            process.stdout.readline()
            return process.pid

        yield run


def test_what_runs_of_a_cluster_is_found_by_its_directory_alone(
    tmp_path: Path, running: Callable[[Sequence[str]], int]
) -> None:
    """Its files may be gone: somebody removed them while it ran. What runs in a directory below is another cluster's."""
    own = ClusterProcesses(ClusterFiles(tmp_path / "a"))
    below = ClusterProcesses(ClusterFiles(tmp_path / "a" / "b"))
    beside = ClusterProcesses(ClusterFiles(tmp_path / "ab"))
    found = [running(["-m", *own.command(number)[3:]]) for number in (1, 12)]
    others = [running(["-m", *other.command(1)[3:]]) for other in (below, beside)]
    zookeeper = running([MAIN, str(tmp_path / "a" / "zookeeper" / "zoo.cfg")])
    others += [running([MAIN, str(tmp_path / "a" / "zoo.cfg")])]
    others += [
        running(["kafkatool", "cluster", "down", "--dir", f"{tmp_path}/a/"]),
        running(["kafkatool", "logs", "merge", "--logs", f"{tmp_path}/a/broker-1/logs"]),
        running(["vi", f"{tmp_path}/a/broker-1/server.properties"]),
    ]
    assert [one.pid for one in own.left()] == [*found, zookeeper]
    assert [one.pid for one in below.left()] == [others[0]]
    own.end_left(gentle=False)
    assert own.left() == [] and all(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in others)


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="only root of Linux makes mounts of its own")
def test_a_process_that_sees_other_mounts_is_of_here_if_it_sees_this_file(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path / "a")
    files.properties(1).parent.mkdir(parents=True)
    files.properties(1).touch()
    command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
    command += ClusterProcesses(files).command(1)[3:]
    for hide, is_here in (("true", True), (f"mount -t tmpfs none {tmp_path}", False)):
        script = f'{hide} && exec "$@"'
        with subprocess.Popen(["unshare", "-m", "sh", "-c", script, "sh", *command], stdin=-1, stdout=-1) as process:
            assert process.stdin is not None and process.stdout is not None
            if process.stdout.readline():  # else this machine lets nobody make mounts
                assert (processes.find("kafkatool", files.properties(1)) is not None) == is_here
                assert [one.pid for one in ClusterProcesses(files).left()] == [process.pid] * is_here
            process.stdin.close()
