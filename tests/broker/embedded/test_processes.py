"""Processes that belong to a cluster, and those that only look at its files."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkatool.broker.embedded import processes
from kafkatool.broker.embedded.cluster_files import ClusterFiles
from kafkatool.broker.embedded.cluster_processes import ClusterProcesses
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


def test_what_runs_of_a_cluster_is_found_by_its_directory_alone(tmp_path: Path) -> None:
    """Its files may be gone: somebody removed them while it ran."""
    words = "import sys; print(flush=True); sys.stdin.read()"
    named = [
        ["kafkatool", str(tmp_path / "a" / "b")],
        ["kafkatool", str(tmp_path / "ab" / "c")],
        [str(tmp_path / "a" / "b")],
    ]
    with contextlib.ExitStack() as running:
        found = []
        for arguments in named:
            process = running.enter_context(
                subprocess.Popen([sys.executable, "-c", words, *arguments], stdin=-1, stdout=-1)
            )
            assert process.stdin is not None and process.stdout is not None
            running.callback(process.stdin.close)
            process.stdout.readline()
            found.append(process.pid)
        assert [one.pid for one in processes.inside(["kafkatool"], tmp_path / "a")] == found[:1]
