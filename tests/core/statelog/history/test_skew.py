"""Clocks of brokers on one machine are one clock: wherever a log is looked into, nothing proves otherwise."""

from pathlib import Path

import pytest

from kafkatool.core.statelog.history import skew
from kafkatool.core.statelog.sources.files import open_logs
from kafkatool.core.statelog.sources.spool import spool
from tests.core.statelog.logs import VERSIONS, record, source, story


@pytest.mark.spec("SCL-20X")
@pytest.mark.parametrize("version", VERSIONS)
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


@pytest.mark.spec("SCL-20X")
def test_digits_that_are_no_time_do_no_harm(tmp_path: Path) -> None:
    line = record("2016-13-01 10:00:00,000", "[Controller id=1 epoch=1] Changed partition t-0 state from A to B")
    assert skew.skew_at_the_end([source(tmp_path / "log", line * 2000)], (None,)) == []
