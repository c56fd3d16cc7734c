"""A cluster whose workers write to disks of their own, where this machine sees nothing of it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.core.statelog.logs import record
from tests.core.statelog.there.cluster import SparkCluster

DEADLINE_S = 280


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.spec("SCL-22X")
def test_what_workers_write_to_disks_of_their_own_is_no_success(tmp_path: Path) -> None:
    (here := tmp_path / "here").mkdir()
    (logs := tmp_path / "logs").mkdir()
    (logs / "state-change.log").write_bytes(b"".join(record(f"00,{n:03d}") for n in range(1000)))
    with SparkCluster(tmp_path / "cluster", hidden=here) as cluster:
        settings = [word for s in cluster.settings.items() for word in ("--spark-conf", "=".join(s))]
        command = [sys.executable, "-m", "kafkatool", "logs", "merge", "--master", cluster.url, *settings]
        command += ["--logs", str(logs), "--format", "parquet", "--out", (here / "rows").as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 1
    assert "1 of 1 parts of the result cannot be seen from here" in done.stderr
    assert "rows written" not in done.stderr
    assert list(here.iterdir()) == []
