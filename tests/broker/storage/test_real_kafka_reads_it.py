"""Kafka's own DumpLogSegments on a directory written here: no mismatch in batches, indexes or snapshots (BRK-129)."""

import subprocess
from pathlib import Path

import pytest

from kafkatool.core.java import find_java
from tests.broker.storage.batches import batch
from tests.broker.storage.logs import make_log
from tests.compat.real_kafka import libraries, require

_COMPLAINTS = ("mismatch", "not found", "isValid: false", "Non-consecutive", "corrupt", "Exception")


def _dump(libs: Path, *arguments: str) -> str:
    command = [str(find_java().executable), "-cp", f"{libs}/*", "kafka.tools.DumpLogSegments", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    return str(done.stdout)


@pytest.mark.slow
@pytest.mark.spec("BRK-129", "BRK-132", "BRK-139")
@pytest.mark.parametrize("version", ["2.8.2", "1.1.1"])
def test_dump_log_segments_finds_nothing_wrong(tmp_path: Path, version: str) -> None:
    require(version)
    libs = libraries(version)
    log = make_log(tmp_path / "t-0", segment_bytes="20000", index_interval_bytes="500")
    for number in range(300):
        sent = batch(1 + number % 5, timestamp=10**12 + number * 37 % 50, producer=(7, 0, log.log_end_offset))
        log.append_as_leader(sent, number // 100)
    end = log.log_end_offset
    log.close()

    def files(*suffixes: str) -> str:
        return ",".join(str(p) for p in sorted((tmp_path / "t-0").iterdir()) if p.suffix in suffixes)

    dumped = _dump(libs, "--deep-iteration", "--files", files(".log", ".index", ".timeindex"))
    checked = _dump(libs, "--verify-index-only", "--files", files(".index"))
    for text in (dumped, checked):
        assert not [line for line in text.splitlines() if any(complaint in line for complaint in _COMPLAINTS)]
    assert f"offset: {end - 1} " in dumped
    if version == "2.8.2":  # older ones cannot read snapshots
        assert f"lastOffset: {end - 1} " in _dump(libs, "--files", files(".snapshot"))
