"""Records that are found as a log goes by are those that are found by looking into it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkatool.core.statelog.sources.source import first_records
from tests.core.statelog.logs import record, source

lines = st.lists(
    st.sampled_from([record("00,001"), record("00,002")[1:], b"\tat x\n", b"\n", b"x [2016-01-01 10:00:00,000]\n"]),
    max_size=30,
)


@pytest.mark.spec("SCL-10X")
@given(text=lines, size=st.integers(1, 9), offsets=st.sets(st.integers(0, 2000)), behind=st.booleans())
def test_each_is_the_one_that_a_look_at_the_offset_finds(
    text: list[bytes], size: int, offsets: set[int], behind: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = b"".join(text)
    log = source(Path(tmp_path_factory.getbasetemp()) / "log", whole)
    rising = sorted(offset for offset in offsets if offset < len(whole))
    start = max(rising[0] - 1, 0) if behind and rising else 0  # as where only some of a log is looked through
    pieces = [b"".join(group) for group in _grouped(whole[start:].splitlines(keepends=True), size)]
    found = list(first_records(pieces, start, rising))
    expected = dict(log.next_record(offset) for offset in rising)
    assert found == [(place, time) for place, time in expected.items() if time is not None]


def _grouped(given: list[bytes], size: int) -> list[list[bytes]]:
    return [given[at : at + size] for at in range(0, len(given), size)]
