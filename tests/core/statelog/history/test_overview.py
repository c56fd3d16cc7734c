"""The overview of a chunk: the same however few kinds of lines are held, and a chunk may be a gzip file of any size."""

from collections import Counter
from dataclasses import asdict, dataclass

import pytest

from kafkatool.core.statelog.history import overview as overviews
from kafkatool.core.statelog.history.observations import Heard
from kafkatool.core.statelog.history.overview import LineKind, Overview, observe_chunk
from kafkatool.core.statelog.lines import shapes
from kafkatool.core.statelog.lines.selection import Selection
from kafkatool.core.statelog.lines.shapes import ByShape
from kafkatool.core.statelog.sources.chunks import Chunk, ChunkAccount, read_records
from tests.core.statelog.logs import all_lines, record

FEW = 7
LONG = 200
"""Characters; a seventh of the captured lines have more."""


def observed(text: bytes, selection: Selection) -> tuple[list[Heard], Overview, Counter[bytes]]:
    """Return what is heard in a chunk of that text, its overview and its minutes."""
    overview, minutes = Overview(), Counter[bytes]()
    records = read_records([text], None, 0, ByShape(LineKind), ChunkAccount())
    heard = list(observe_chunk(records, Chunk(0, 0, 0, len(text)), selection, overview, minutes))
    return heard, overview, minutes


@pytest.fixture(scope="module")
def text() -> bytes:
    """Give all captured logs as one, with lines of unknown form and of another logger between them."""
    lines = [line.encode("latin-1") + b"\n" for line in all_lines()]
    strange = [record("00,000", f"no form {'x' * (n % 400)}") for n in range(1000)]
    foreign = [line.replace(b"state.change.logger", b"kafka.Kafka") for line in strange]
    return b"".join(line for three in zip(lines, strange, foreign, strict=False) for line in three) + b"".join(
        lines[1000:]
    )


@dataclass
class Kinds:
    """How many kinds of lines there are, were at most, and were made."""

    held: int = 0
    most_held: int = 0
    made: int = 0


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> Kinds:
    """Count kinds as they come and go."""
    counted = Kinds()

    class Counted(overviews._Met):  # noqa: SLF001 -- nobody else knows how many there are
        __slots__ = ()

        def __init__(self, kind: LineKind, overview: Overview) -> None:
            counted.made += 1
            counted.held += 1
            counted.most_held = max(counted.most_held, counted.held)
            super().__init__(kind, overview)

        def __del__(self) -> None:
            counted.held -= 1

    monkeypatch.setattr(overviews, "_Met", Counted)
    return counted


@pytest.mark.spec("SCL-18X", "SCL-22X")
@pytest.mark.parametrize(
    "selection", [Selection(), Selection(topic="order", start_time="2026-01-01 00:00:00,000")], ids=["all", "one topic"]
)
def test_it_is_the_same_however_few_kinds_of_lines_are_held(
    text: bytes, selection: Selection, kinds: Kinds, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard, overview, minutes = observed(text, selection)
    assert kinds.most_held > 20 * FEW
    kinds.most_held = 0
    for module in (shapes, overviews):
        monkeypatch.setattr(module, "MOST_SHAPES", FEW)
        monkeypatch.setattr(module, "LONGEST_SHAPE", LONG)
    found = observed(text, selection)
    assert kinds.most_held <= FEW + 1, "those, and the one of a long line"
    assert asdict(found[1]) == asdict(overview)
    assert found == (heard, overview, minutes)
    assert all((overview.events, overview.brokers, overview.controllers, overview.unknown_records, minutes))
    assert overview.near if selection.topic else heard


@pytest.mark.spec("SCL-22X")
def test_lines_too_long_to_be_met_again_are_not_held_and_push_out_nothing(kinds: Kinds) -> None:
    long_lines = [record("00,000", "Broker 1 " + "x" * (shapes.LONGEST_SHAPE + n)) for n in range(100)]
    text = b"".join(line for long in long_lines for line in (record("00,001"), long))
    _, overview, _ = observed(text, Selection())
    assert kinds.made == len(long_lines) + 1
    assert kinds.most_held == 2
    assert overview.brokers[1].lines == 2 * len(long_lines)


@pytest.mark.spec("SCL-22X")
def test_what_lines_say_after_the_end_that_is_asked_for_is_not_held(
    text: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[overviews._Met] = []

    class Kept(overviews._Met):  # noqa: SLF001
        __slots__ = ()

        def __init__(self, kind: LineKind, overview: Overview) -> None:
            super().__init__(kind, overview)
            made.append(self)

    monkeypatch.setattr(overviews, "_Met", Kept)
    heard, overview, _ = observed(text, Selection(end_time="2001-01-01 00:00:00,000"))
    assert not heard
    assert overview.brokers
    assert made
    assert not any(met.said or met.named for met in made)
