"""Processes that belong to a cluster, and those that only look at its files."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkatool.broker.embedded import processes


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
