"""Clocks of brokers on one machine are one clock: wherever a log is looked into, nothing proves otherwise."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from kafkatool.core.statelog.history import skew
from kafkatool.core.statelog.sources.files import open_logs
from kafkatool.core.statelog.sources.spool import spool
from tests.core.statelog.logs import NEWER, VERSIONS, lines_of, record, source, story


@pytest.mark.spec("SCL-20X", "SCL-24X")
@pytest.mark.parametrize("version", [*VERSIONS, "3.9.1"])
def test_a_request_sent_again_is_not_taken_for_one_that_arrived_too_early(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first sending stands before the place where the look at the controller's log begins."""
    with spool() as own:
        sources = open_logs(story(version), own).sources
        for look_bytes in (8_000, 16_000, 24_000, 50_000, 65_536, 80_000, 100_000, 1_000_000):
            monkeypatch.setattr(skew, "LOOK_BYTES", look_bytes)
            found = skew.skew_at_the_end(sources, (None,) * len(sources))
            assert all(s.behind_at_least_ms == 0 for _, s in found), look_bytes
    assert found


@pytest.mark.spec("SCL-20X", "SCL-24X")
def test_logs_of_several_versions_and_both_modes_prove_no_clock_wrong_together(tmp_path: Path) -> None:
    """One file for each broker, as of a cluster that was upgraded and then moved away from ZooKeeper."""
    for path in (path for version in ("2.8.2", *NEWER) for path in story(version)):
        with (tmp_path / path.stem).open("a", encoding="latin-1") as file:
            file.writelines(f"{line}\n" for line in lines_of(path))
    with spool() as own:
        sources = open_logs(sorted(tmp_path.iterdir()), own).sources
        whole = skew.skew_at_the_end(sources, (None,) * len(sources))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(skew, "LOOK_BYTES", 1 << 30)
            found = skew.skew_at_the_end(sources, (None,) * len(sources))
    assert len(found) > 2, "the requests of 2.8.2 and 3.9.1 make pairs"
    assert {proved.behind_at_least_ms for _, proved in (*whole, *found)} == {0}


@pytest.mark.spec("SCL-20X", "SCL-24X")
@pytest.mark.parametrize("version", [*VERSIONS, "3.9.1"])
def test_a_real_log_with_its_clock_set_back_is_found_and_no_other(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def set_back(line: str) -> str:
        if not line.startswith("["):
            return line
        moment = datetime.strptime(line[1:24], "%Y-%m-%d %H:%M:%S,%f") - timedelta(seconds=3)
        return f"[{moment:%Y-%m-%d %H:%M:%S},{line[21:]}"

    monkeypatch.setattr(skew, "LOOK_BYTES", 1 << 30)
    with spool() as own:
        late = next(s for s in open_logs(story(version), own).sources if s.label == "3")
    for path in story(version):
        lines = lines_of(path)
        text = "".join(f"{set_back(line) if str(path) == late.name else line}\n" for line in lines)
        (tmp_path / path.stem).write_text(text, "latin-1")
    with spool() as own:
        found = skew.skew_at_the_end(open_logs(sorted(tmp_path.iterdir()), own).sources, (None,) * 4)
    behind = {pair: proved.behind_at_least_ms for pair, proved in found}
    assert {pair for pair, by_ms in behind.items() if by_ms} == {pair for pair in behind if pair[1] == 3 != pair[0]}
    assert all(2900 <= by_ms <= 3000 for by_ms in behind.values() if by_ms) and any(behind.values())


@pytest.mark.spec("SCL-20X")
def test_digits_that_are_no_time_do_no_harm(tmp_path: Path) -> None:
    line = record("2016-13-01 10:00:00,000", "[Controller id=1 epoch=1] Changed partition t-0 state from A to B")
    assert skew.skew_at_the_end([source(tmp_path / "log", line * 2000)], (None,)) == []
