"""Clocks: local times become UTC, also in the hour that a clock change repeats."""

from pathlib import Path

import pytest

from kafkatool.core.errors import UsageError
from kafkatool.core.statelog.jobs.carrier import Logs
from kafkatool.core.statelog.jobs.here import Here
from kafkatool.core.statelog.jobs.ordered_merge import merge_ordered
from kafkatool.core.statelog.lines.selection import Selection
from kafkatool.core.statelog.sources.clocks import Clock, clock, clocks, find_zone
from kafkatool.core.statelog.sources.source import Source
from tests.core.statelog.logs import InProcess, record, source, written

BERLIN = "Europe/Berlin"


def merged(sources: list[Source], zones: list[str], directory: Path, selection: Selection = Selection()) -> list[bytes]:  # noqa: B008
    logs = Logs(tuple(sources), clocks(sources, zones))
    text = merge_ordered(logs, selection, Here(InProcess(), directory), as_rows=False, chunk_bytes=300)
    return written(text.parts).splitlines(keepends=True)


@pytest.mark.spec("SCL-15X")
@pytest.mark.parametrize(
    ("zone", "local", "utc"),
    [
        (BERLIN, "2026-07-01 12:00:00,123", "2026-07-01 10:00:00,123"),
        (BERLIN, "2026-01-01 00:30:00,000", "2025-12-31 23:30:00,000"),
        ("+05:30", "2026-07-01 12:00:00,123", "2026-07-01 06:30:00,123"),
        ("UTC-3", "2026-07-01 22:00:00,000", "2026-07-02 01:00:00,000"),
        ("UTC", "2026-07-01 22:00:00,000", "2026-07-01 22:00:00,000"),
        (BERLIN, "2026-02-39 22:00:00,000", "2026-02-39 22:00:00,000"),
        (BERLIN, "0001-01-01 00:00:00,000", "0001-01-01 00:00:00,000"),
    ],
)
def test_local_times_become_utc(zone: str, local: str, utc: str) -> None:
    assert Clock(zone).utc(local.encode(), 0) == utc.encode()


@pytest.mark.spec("SCL-15X")
@pytest.mark.parametrize("name", ["Europe/Nowhere", "", "+99:00", "../etc/passwd"])
def test_an_unknown_zone_is_a_usage_error(name: str) -> None:
    with pytest.raises(UsageError, match="no such time zone"):
        find_zone(name)


@pytest.mark.spec("SCL-15X")
def test_order_and_bounds_go_by_utc_and_the_text_stays(tmp_path: Path) -> None:
    berlin = source(tmp_path / "berlin", record("2026-07-01 12:00:00,000") + record("2026-07-01 12:00:02,000"))
    york = source(
        tmp_path / "york", record("2026-07-01 06:00:01,000") + b"\tat x\n" + record("2026-07-01 06:00:03,000")
    )
    zones = [f"{tmp_path}/berlin={BERLIN}", "America/New_York"]
    lines = merged([berlin, york], zones, tmp_path)
    assert [line[12:21] for line in lines] == [b"12:00:00,", b"06:00:01,", b"", b"12:00:02,", b"06:00:03,"]
    bounded = Selection(start_time="2026-07-01 10:00:01,000", end_time="2026-07-01 10:00:02,000")
    assert [line[12:21] for line in merged([berlin, york], zones, tmp_path, bounded)] == [
        b"06:00:01,",
        b"",
        b"12:00:02,",
    ]
    assert [found.zone for found in clocks([berlin, york], zones[:1]) if found] == [BERLIN, "UTC"]
    nested = [f"{tmp_path}={BERLIN}", f"{tmp_path}/york=+01:00"]
    for given in (nested, nested[::-1]):
        assert [found.zone for found in clocks([berlin, york], given) if found] == [BERLIN, "+01:00"], (
            "the longest path"
        )
    assert clocks([berlin, york], []) == (None, None), "all as one zone"
    with pytest.raises(UsageError, match="not among the logs"):
        clocks([berlin], [f"{tmp_path}/other={BERLIN}"])


@pytest.mark.spec("SCL-15X", "SCL-8")
def test_a_repeated_hour_keeps_the_order_of_the_file(tmp_path: Path) -> None:
    times = [f"2026-10-25 {h}:{m:02d}:00,000" for h in ("01", "02", "02", "03") for m in range(0, 60, 10)]
    log = source(tmp_path / "log", b"".join(record(time) for time in times))
    other = source(tmp_path / "other", b"".join(record(f"2026-10-25 {h:02d}:05:00,000") for h in range(4)))
    found = clock(log, BERLIN)
    ((begin, end, place),) = found.folds
    assert (begin, end) == (b"2026-10-25 02:00", b"2026-10-25 03:00")
    assert place == 12 * len(record(times[0]))
    lines = merged([log, other], [f"{tmp_path}/log={BERLIN}", "UTC"], tmp_path)
    own = [line for line in lines if b":05:00," not in line]
    assert [line[1:24].decode() for line in own] == times
    at = {line: i for i, line in enumerate(lines)}
    assert at[record("2026-10-25 00:05:00,000")] < lines.index(record("2026-10-25 02:10:00,000"))
    first, second = (i for i, line in enumerate(lines) if line == record("2026-10-25 02:10:00,000"))
    assert first < at[record("2026-10-25 01:05:00,000")] < second  # 00:10, 01:05 and 01:10 UTC


@pytest.mark.spec("SCL-15X")
def test_where_the_file_tells_of_one_pass_only_the_first_is_taken(tmp_path: Path) -> None:
    log = source(tmp_path / "log", record("2026-10-25 02:10:00,000") + record("2026-10-25 02:20:00,000"))
    assert clock(log, BERLIN).folds == ()
    assert clock(source(tmp_path / "none", b"no time\n"), BERLIN).folds == ()
