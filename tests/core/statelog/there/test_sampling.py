"""Places are looked up at the cost of one look through a stretch without records, however many of them are in it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatool.core.statelog.jobs.cuts import places_to_sample
from kafkatool.core.statelog.jobs.here import Here
from kafkatool.core.statelog.sources.source import Source
from kafkatool.core.statelog.there import carrier
from kafkatool.core.statelog.there.carrier import There
from kafkatool.core.statelog.there.files import RemoteExtent, RemoteFile
from kafkatool.core.statelog.there.ranges import Listed
from kafkatool.core.statelog.there.surveys import Survey
from tests.core.statelog.logs import InProcess, record

LOG_BYTES = 1_000_000
RANGES = 40
JSON_LINE = b'{"time": "2016-01-01 10:00:00,000", "message": "no time begins this line"}\n'

RECORDS = record("00,001") * 20
STRETCH = JSON_LINE * (LOG_BYTES // len(JSON_LINE))
LOGS = {
    "no record": STRETCH,
    "one record, at the beginning": RECORDS[: len(RECORDS) // 20] + STRETCH,
    "none in a long last stretch": RECORDS + STRETCH,
    "none in a long first stretch": STRETCH + RECORDS,
    "none in the middle": RECORDS + STRETCH + RECORDS,
}


@dataclass
class Read:
    """What was asked for, in bytes."""

    asked: int = 0


@dataclass(frozen=True)
class CountedExtent:
    """Bytes that lie here, and how many of them were read."""

    data: bytes
    read_so_far: Read
    whole: bool = False
    start: int = 0

    @property
    def end(self) -> int:
        return len(self.data)

    def read(self, start: int, end: int) -> bytes:
        self.read_so_far.asked += end - start
        return self.data[start:end]

    def between(self, start: int, end: int) -> "CountedExtent":
        raise NotImplementedError


@dataclass
class CountedWorkers:
    """Does at once what workers do with ranges of these files. ``jobs`` that were run."""

    files: Sequence[bytes]
    read_so_far: Read = field(default_factory=Read)
    jobs: int = 0

    def run(self, function: Callable[[Iterator[bytes]], Iterable[Any]], groups: Sequence[Sequence[str]]) -> list[Any]:
        self.jobs += 1
        return [found for group in groups for found in function(map(self._frame, group))]

    def _frame(self, request: str) -> bytes:
        header, start, length, *_, name = request.split("\t")
        self.read_so_far.asked += int(length)
        return header.encode() + b"\n" + self.files[int(name)][int(start) : int(start) + int(length)]

    def sources(self) -> list[Source]:
        found = []
        for number, data in enumerate(self.files):
            survey = Survey(len(data), b"", b"")
            file = RemoteFile(Listed(str(number), len(data), 0, 0), survey, self)  # type: ignore[arg-type]
            found.append(Source(str(number), "", (RemoteExtent(file, 0, len(data)),)))
        return found


def sampled_here(logs: Sequence[bytes], places: Sequence[tuple[int, int]], read: Read) -> list[tuple[int, int, bytes]]:
    sources = [Source("", "", (CountedExtent(data, read),)) for data in logs]
    return Here(InProcess(), Path()).sample(sources, places)


def one_by_one(logs: Sequence[bytes], places: Sequence[tuple[int, int]]) -> list[tuple[int, int, bytes]]:
    """Look up every place by itself."""
    sources = [Source("", "", (CountedExtent(data, Read()),)) for data in logs]
    found = [(number, *sources[number].next_record(offset)) for number, offset in places]
    return [(number, offset, time) for number, offset, time in found if time is not None]


@pytest.mark.spec("SCL-22X")
@pytest.mark.parametrize("log", LOGS.values(), ids=LOGS)
def test_here_a_stretch_without_records_is_searched_once(log: bytes) -> None:
    read = Read()
    logs = [log, RECORDS]
    places = places_to_sample([len(data) for data in logs], RANGES)
    assert len(places) > 500
    assert sampled_here(logs, places, read) == one_by_one(logs, places)
    assert read.asked < 3 * len(log), "more is asked for each time, what was read before with it"


@pytest.mark.spec("SCL-22X")
@pytest.mark.parametrize("log", LOGS.values(), ids=LOGS)
def test_elsewhere_a_stretch_without_records_is_searched_once_and_then_by_all_places_in_it(
    log: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrier, "LOOK_BYTES", 2048)  # as far from place to place as 64 KB are in a log of 300 MB
    workers = CountedWorkers([log, RECORDS])
    places = places_to_sample([len(data) for data in workers.files], RANGES)
    found = There(workers).sample(workers.sources(), places)  # type: ignore[arg-type]
    assert {*found} == {*one_by_one(workers.files, places)}
    assert workers.read_so_far.asked < 3 * len(log)
    assert workers.jobs <= 4


@pytest.mark.spec("SCL-22X")
def test_elsewhere_what_lies_between_two_long_records_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrier, "LOOK_BYTES", 2048)
    long_record = RECORDS[:80] + b"x" * 20_000 + b"\n" + RECORDS
    log = long_record + RECORDS * 1000 + long_record
    workers = CountedWorkers([log])
    places = [(0, 100), (0, len(long_record) + len(RECORDS) * 500 + 100)]
    found = There(workers).sample(workers.sources(), places)  # type: ignore[arg-type]
    assert sorted(found) == one_by_one([log], places)
    assert workers.read_so_far.asked < 4 * len(long_record) < len(log) // 10


lines = st.lists(
    st.sampled_from([record("00,001"), record("00,002")[1:], b"x" * 30 + b"\n", b"\n", JSON_LINE * 5, b"y" * 500]),
    max_size=40,
)


@pytest.mark.spec("SCL-10X")
@settings(deadline=None)
@given(
    texts=st.lists(lines, min_size=1, max_size=3), wanted=st.sets(st.tuples(st.integers(0, 2), st.integers(0, 5000)))
)
def test_what_is_found_is_what_a_look_at_each_place_finds(
    texts: list[list[bytes]], wanted: set[tuple[int, int]]
) -> None:
    logs = [b"".join(text) for text in texts]
    places = sorted((log, offset) for log, offset in wanted if log < len(logs) and offset < len(logs[log]))
    expected = one_by_one(logs, places)
    assert sampled_here(logs, places, Read()) == expected
    workers = CountedWorkers(logs)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(carrier, "LOOK_BYTES", 64)
        found = There(workers).sample(workers.sources(), places)  # type: ignore[arg-type]
    assert {*found} == {*expected}
