"""Kafka's own DumpLogSegments on a directory written here: no mismatch in batches, indexes or snapshots (BRK-129)."""

import subprocess
from pathlib import Path

import pytest

from kafkatool.core.java import find_java
from tests.broker.storage.batch_builders import batch, marker
from tests.broker.storage.compaction.compacting import append, clean, compacted_log, roll
from tests.broker.storage.logs import make_log
from tests.compat.real_kafka import libraries, require, versions

_COMPLAINTS = ("mismatch", "not found", "isValid: false", "Non-consecutive", "corrupt", "Exception")


def _dump(libs: Path, *arguments: str) -> str:
    command = [str(find_java().executable), "-cp", f"{libs}/*", "kafka.tools.DumpLogSegments", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    return str(done.stdout)


@pytest.mark.slow
@pytest.mark.spec("BRK-129", "BRK-132", "BRK-139")
@pytest.mark.parametrize("version", versions("2.8.2", "1.1.1"))
def test_dump_log_segments_finds_nothing_wrong(tmp_path: Path, version: str) -> None:
    require(version)
    libs = libraries(version)
    log = make_log(tmp_path / "t-0", segment_bytes="20000", index_interval_bytes="500")
    for number in range(300):
        sent = batch(1 + number % 5, timestamp=10**12 + number * 37 % 50, producer=(7, 0, log.log_end_offset))
        log.append_as_leader(sent, number // 100)
    end = log.log_end_offset
    log.close()

    dumped = _dumped_without_complaint(libs, tmp_path / "t-0")
    assert f"offset: {end - 1} " in dumped
    if version == "2.8.2":  # older ones cannot read snapshots
        assert f"lastOffset: {end - 1} " in _dump(libs, "--files", _files(tmp_path / "t-0", ".snapshot"))


def _files(directory: Path, *suffixes: str) -> str:
    return ",".join(str(p) for p in sorted(directory.iterdir()) if p.suffix in suffixes)


def _dumped_without_complaint(libs: Path, directory: Path) -> str:
    dumped = _dump(libs, "--deep-iteration", "--files", _files(directory, ".log", ".index", ".timeindex"))
    checked = _dump(libs, "--verify-index-only", "--files", _files(directory, ".index"))
    for text in (dumped, checked):
        assert not [line for line in text.splitlines() if any(complaint in line for complaint in _COMPLAINTS)]
    return dumped


@pytest.mark.slow
@pytest.mark.spec("BRK-129", "BRK-167")
@pytest.mark.parametrize("version", versions("2.8.2", "1.1.1"))
def test_dump_log_segments_reads_what_compaction_wrote(tmp_path: Path, version: str) -> None:
    """All codecs, batches without records, tombstones, and a transaction."""
    require(version)
    log = compacted_log(tmp_path / "t-0", segment_bytes="2000", index_interval_bytes="300")
    for number in range(120):
        pairs = [(f"k{(number * 7 + i) % 40}", f"value {number}") for i in range(4)]
        append(log, [*pairs, (f"d{number % 9}", None)], codec=number % (5 if version == "2.8.2" else 4))
    end = log.log_end_offset
    for data in (
        batch(2, base_offset=end, key=b"k1", producer=(9, 0, 0), attributes=0x10, epoch=0),
        marker(commit=False, producer=(9, 0), base_offset=end + 2),
    ):
        log.append_as_follower(memoryview(data))
    roll(log)
    log.high_watermark = log.log_end_offset
    before = sum(s.size_bytes for s in log.segments)
    assert clean(log) >= 1
    assert sum(s.size_bytes for s in log.segments) < before / 2
    log.close()
    dumped = _dumped_without_complaint(libraries(version), tmp_path / "t-0")
    if version == "2.8.2":  # older ones do not show batches
        assert "count: 0" in dumped  # the batch that holds the last sequence of producer 9
    assert "endTxnMarker: ABORT" in dumped
