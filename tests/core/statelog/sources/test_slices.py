"""Whatever the slices, the result is that of one plain stable sort: properties over made-up, disorderly logs."""

import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatool.core.statelog.jobs.merge import Merged, merge_slices, replacing
from kafkatool.core.statelog.lines.selection import Counts, Selection
from kafkatool.core.statelog.merging.merge_slice import SliceMerger
from kafkatool.core.statelog.sources.slices import Plan, plan_slices
from kafkatool.core.statelog.sources.source import Source
from tests.core.statelog.logs import InProcess, record, source

TIME = re.compile(rb"\[?(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})")

moments = st.integers(0, 40).map(lambda n: f"{n // 4:02d},{n % 4:03d}")
tails = st.lists(st.sampled_from([b"\tat kafka.X\n", b"\n", b"[t,1] more\r\n", b"\xff\xfe\n"]), max_size=2).map(
    b"".join
)
texts = st.sampled_from(["Broker 1 a", "Controller 1 epoch 2 started leader election for partition [t,1]", "x" * 90])
records = st.builds(lambda at, text, tail: record(at, text) + tail, moments, texts, tails)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Draw a log: perhaps lines before its first record, perhaps in order, perhaps without its last line's end."""
    body = draw(st.lists(records, max_size=25))
    if draw(st.booleans()):
        body.sort(key=lambda text: text[:25])
    content = draw(tails) + b"".join(body)
    return content.removesuffix(b"\n") if draw(st.booleans()) else content


def plainly_sorted(contents: list[bytes]) -> tuple[bytes, int]:
    """Return all records in the order SCL-10X asks for, and the number of lines before a log's first record."""
    found: list[tuple[bytes, list[bytes]]] = []
    orphans = 0
    for content in contents:
        lines = content.split(b"\n")
        if not lines[-1]:
            lines.pop()
        began = False
        for line in lines:
            if time := TIME.match(line):
                began = True
                found.append((time[1], [line]))
            elif began:
                found[-1][1].append(line)
            else:
                orphans += 1
    found.sort(key=lambda entry: entry[0])
    return b"".join(line + b"\n" for _, entry in found for line in entry), orphans


def text_of(merged: Merged) -> bytes:
    return b"".join(part.read_bytes() for part in merged.parts)


def check(contents: list[bytes], merged: Merged) -> None:
    check_text(contents, text_of(merged), merged.counts)


def check_text(contents: list[bytes], text: bytes, counts: Counts) -> None:
    expected, orphans = plainly_sorted(contents)
    assert text == expected
    assert counts.orphan_lines == orphans
    assert counts.lines_written + orphans == counts.lines == sum(len(c.splitlines()) for c in contents)


@pytest.mark.spec("SCL-6", "SCL-8", "SCL-9X", "SCL-10X")
@settings(max_examples=150, deadline=None)
@given(
    st.lists(logs(), min_size=1, max_size=4),
    st.integers(1, 7),
    st.integers(40, 400),
    st.integers(1, 300),
    st.integers(0, 300),
)
def test_planned_slices_give_what_one_sort_gives(
    contents: list[bytes], slices: int, sample_bytes: int, precision_bytes: int, margin_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        sources = _sources(Path(name), contents)
        plan = plan_slices(
            sources, slices, sample_bytes=sample_bytes, precision_bytes=precision_bytes, margin_bytes=margin_bytes
        )
        assert plan.slices <= slices
        check(contents, merge_slices(plan, Selection(), InProcess(), Path(name)))


@pytest.mark.spec("SCL-8", "SCL-10X")
@settings(max_examples=150, deadline=None)
@given(st.lists(logs(), min_size=1, max_size=3), st.lists(moments, max_size=5), st.integers(0, 300), st.randoms())
def test_even_a_plan_made_by_chance_gives_what_one_sort_gives(
    contents: list[bytes], cut_moments: list[str], margin_bytes: int, chance: object
) -> None:
    cuts = tuple(sorted({f"2016-01-01 10:00:{moment}".encode() for moment in cut_moments}))
    with tempfile.TemporaryDirectory() as name:
        sources = _sources(Path(name), contents)
        bounds = tuple((0, *_any_bounds(log, len(cuts), chance), log.size) for log in sources)
        plan = Plan(tuple(sources), cuts, bounds, margin_bytes)
        with replacing(Path(name, "merged")) as output:  # slices are written where they are thought to belong
            merged = merge_slices(plan, Selection(), InProcess(), Path(name), output=output)
            merged.write_to(output)
        assert merged.parts == ()
        check_text(contents, Path(name, "merged").read_bytes(), merged.counts)


@pytest.mark.spec("SCL-8", "SCL-10X", "SCL-22X")
@settings(max_examples=100, deadline=None)
@given(st.lists(logs(), min_size=1, max_size=4), st.integers(1, 3), st.integers(1, 400), st.integers(0, 300))
def test_blocks_of_any_size_give_what_one_sort_gives(
    contents: list[bytes], slices: int, block_bytes: int, margin_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        sources = _sources(Path(name), contents)
        plan = plan_slices(sources, slices, sample_bytes=100, precision_bytes=50, margin_bytes=margin_bytes)
        merger = SliceMerger(plan, Selection(), Path(name), block_bytes=block_bytes)
        results = [merger.merge(index) for index in range(plan.slices)]
        if not any(result.strays for result in results):
            counts = Counts()
            for result in results:
                counts.add(result.counts)
            check_text(contents, b"".join(result.part.path.read_bytes() for result in results), counts)


@pytest.mark.spec("SCL-10X")
def test_a_clock_set_back_an_hour_is_sorted_and_counted(tmp_path: Path) -> None:
    hour = [record(f"2016-10-30 02:{minute:02d}:00,000", f"Broker 1 {'x' * 400}") for minute in range(60)]
    content = b"".join(hour + hour)
    plan = plan_slices([source(tmp_path / "a", content)], 4, sample_bytes=500, precision_bytes=100, margin_bytes=500)
    merged = merge_slices(plan, Selection(), InProcess(), tmp_path)
    assert plan.slices == 4
    check([content], merged)
    assert merged.counts.out_of_order == 1


@pytest.mark.spec("SCL-8")
def test_cuts_share_out_the_work(tmp_path: Path) -> None:
    contents = [b"".join(record(f"{second:02d},{milli:03d}") for second in range(60) for milli in range(0, 900, n))
                for n in (100, 50, 300)]  # fmt: skip
    plan = plan_slices(_sources(tmp_path, contents), 3, sample_bytes=200, precision_bytes=100)
    sizes = [sum(bounds[k + 1] - bounds[k] for bounds in plan.bounds) for k in range(3)]
    assert max(sizes) < 1.2 * min(sizes)


def _sources(directory: Path, contents: list[bytes]) -> list[Source]:
    return [source(directory / f"log-{number}", content) for number, content in enumerate(contents)]


def _any_bounds(log: Source, count: int, chance: object) -> list[int]:
    randint = chance.randint  # type: ignore[attr-defined]
    return sorted(log.next_record(randint(0, log.size))[0] for _ in range(count))
