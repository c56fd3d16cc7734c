"""The page of a run: who did what when, what befell whom, what lay where; in a real browser, without network."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from tests.browser import Browser, browser_path
from tests.histories.analyser.notation import lines
from tests.histories.analyser.verdict import judge
from tests.histories.history import read_file
from tests.histories.timeline import write_page

_MS: Final = 1_000_000
SHOWN: Final = "0 s x=a@0 ; 1 s x=b@1 ∥ 2 p x:a@0 ; 2 p x:c@1 ; 0f [s y=d@0] ; 1i s y=e@?"
OVERLAPS: Final = """
(() => { const found = [];
  for (const picture of document.querySelectorAll('.picture')) {
    const boxes = [...picture.querySelectorAll('.ticks span, .scale span, .name:not(.scale), .marks text')]
      .map(e => [e.getBoundingClientRect(), e.textContent]).filter(([b]) => b.width);
    boxes.forEach(([a, one], n) => boxes.slice(n + 1).forEach(([b, other]) => {
      if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1)
        found.push([one, other]); }));
  } return found; })()
"""
CONTRAST: Final = """
(() => {
  const linear = v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(linear); return .2126 * r + .7152 * g + .0722 * b; };
  const ground = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
                        if (!/, 0\\)|transparent/.test(c)) return c; } return 'rgb(255, 255, 255)'; };
  return [...document.querySelectorAll('p, li, h1, h2, h3, .name, .ticks span, .scale span, .fault, figcaption')].map(e => {
    const [a, b] = [light(getComputedStyle(e).color), light(ground(e))].sort((x, y) => y - x);
    return [(a + .05) / (b + .05), e.className + ' ' + e.textContent.slice(0, 20)]; }).sort((x, y) => x[0] - y[0])[0];
})()
"""
LANES: Final = """
[...document.querySelector('figure.lanes').querySelectorAll('.row')].map(row => [row.querySelector('.name').textContent,
  [...row.querySelectorAll('i')].map(i => [i.className, i.title, i.style.left, i.style.width])])
"""


def _fault(step: object, begins: bool, *faults: str, **more: object) -> Mapping[str, Any]:
    value = {"step": step, "begins": begins, "faults": list(faults), **more}
    return {"process": "nemesis", "type": "info", "f": "fault", "value": value}


def _with_faults(written: Sequence[bytes], faults: Mapping[int, Mapping[str, Any]]) -> Iterator[bytes]:
    """Put faults before the nth lines of a history whose lines are a ms apart."""
    yield written[0]
    entries = [orjson.loads(line) for line in written[1:]]
    at = sorted(faults)
    for place in reversed(at):
        entries.insert(place, dict(faults[place]))
    for index, entry in enumerate(entries):
        yield orjson.dumps({**entry, "index": index, "time": index * _MS}) + b"\n"


def _page(directory: Path, text: str = SHOWN, faults: Mapping[int, Mapping[str, Any]] | None = None) -> Path:
    file, page = directory / "history.jsonl", directory / "timeline.html"
    file.write_bytes(b"".join(_with_faults(lines(text), faults or {})))
    write_page(file, page, judge(read_file(file)))
    return page


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """Give the page of two values at one offset, while brokers suffered one thing and another."""
    first = _fault(0, True, "kill 2", "link 1-3")
    chore = _fault("upkeep of history-0", True, "reassign history-0")
    late = _fault("frame 0", True, "Lose() at Produce 1 of rdkafka")
    faults = {2: first, 4: _fault(0, False, "kill 2", "link 1-3"), 5: chore, 6: late, 7: _fault(1, True, "zookeeper 2")}
    return _page(tmp_path, faults=faults)


@pytest.mark.spec("HIS-48")
def test_a_page_asks_for_nothing_from_outside(page: Path) -> None:
    text = page.read_text()
    assert not re.search(r"//|url\(|@import|<script|<link|<img|<iframe|\bsrc=|javascript:", text)
    assert set(re.findall(r'href="(.)', text)) == {"#"}


@pytest.mark.slow
@pytest.mark.spec("HIS-48")
def test_a_page_works_without_network_wide_and_narrow_light_and_dark(page: Path, tmp_path: Path) -> None:
    with Browser(browser_path()) as browser:
        browser.ask(
            "Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0
        )
        for width, dark in ((1500, False), (1500, True), (390, False), (390, True)):
            browser.open(page.as_uri(), width=width, height=1000, mobile=width < 500, dark=dark)
            asked = {
                e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"
            }
            assert asked == {page.as_uri()}
            assert [e for e in browser.events if e["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")] == []
            assert browser.value("document.documentElement.scrollWidth <= innerWidth")
            assert browser.value(OVERLAPS) == []
            assert browser.value("[...document.querySelectorAll('.legend li')].length") == 10
            contrast, where = browser.value(CONTRAST)
            assert contrast >= 4.5, (width, dark, where)
            browser.screenshot(tmp_path / f"page-{width}-{dark}.png")


@pytest.mark.slow
@pytest.mark.spec("HIS-48")
def test_each_process_and_each_broker_has_a_lane_and_faults_are_on_those_of_whom_they_befell(page: Path) -> None:
    with Browser(browser_path()) as browser:
        browser.open(page.as_uri(), width=1500, height=1000)
        lanes = dict(browser.value(LANES))
        brokers = ["broker 1", "broker 2", "broker 3"]
        processes = ["process 0", "process 1", "process 2", "process 900"]
        assert list(lanes) == ["seconds", *brokers, "ZooKeeper", "topics", "requests", *processes]
        told = {lane: [title.partition(",")[0] for _, title, *_ in lanes[lane]] for lane in lanes}
        assert [told[lane] for lane in brokers] == [["link 1-3"], ["kill 2"], ["link 1-3"]]
        assert told["ZooKeeper"] == ["zookeeper 2"]
        assert told["topics"] == ["reassign history-0"]
        assert told["requests"] == ["Lose() at Produce 1 of rdkafka"]
        for lane in (*brokers, "ZooKeeper", "topics", "requests"):
            assert {kind for kind, *_ in lanes[lane]} == {"fault"}
        # What is shaded over all lanes is as wide as on the lane of whom it befell, and covers the lanes of processes.
        on_lanes = {(left, width) for lane in (*brokers, "ZooKeeper") for _, _, left, width in lanes[lane]}
        shaded = browser.value(
            "[...document.querySelectorAll('figure.lanes .shade')].map(i => [i.style.left, i.style.width])"
        )
        assert {tuple(each) for each in shaded} == on_lanes
        over, last = browser.value(
            "['.shade', '.row:nth-last-child(2)'].map(s => document.querySelector('figure.lanes .picture').querySelector(s))"
            ".map(e => e.getBoundingClientRect()).map(b => [b.top, b.bottom])"
        )
        assert over[0] < last[0] and over[1] >= last[1] - 3


@pytest.mark.slow
@pytest.mark.spec("HIS-48")
def test_operations_and_values_at_odds_have_a_colour_each_and_all_else_is_grey(page: Path) -> None:
    with Browser(browser_path()) as browser:
        browser.open(page.as_uri(), width=1500, height=1000)
        kind = "document.querySelector('[data-kind=inconsistent-offsets]')"
        lanes = f"{kind}.querySelector('figure.lanes')"
        chart = f"[...{kind}.querySelectorAll('figure.offsets .picture')].at(-1)"
        heading = browser.value(f"{kind}.querySelector('h2').textContent")
        assert heading == "inconsistent-offsets, 1 times (not allowed)"
        odd = browser.value(f"[...{lanes}.querySelectorAll('.odd')].map(i => [i.className, i.title])")
        assert {title.partition(",")[0] for _, title in odd} == {"send ok", "send info", "poll ok"}
        assert len({kind for kind, _ in odd}) == len(odd) == 3, "a colour each"
        listed = browser.value(f"[...{lanes}.querySelectorAll('.odds i')].map(i => i.className)")
        assert {f"op odd {kind}" for kind in listed} == {kind for kind, _ in odd}
        marks = browser.value(
            f"[...{chart}.querySelectorAll('.mark')].map(m => [m.getAttribute('class'), m.textContent,"
            " getComputedStyle(m).fill])"
        )
        assert {told.partition(" by ")[0] for _, told, _ in marks} == {"98 sent at 1", "99 polled at 1"}
        assert {f"op odd {kind.removeprefix('mark ')}" for kind, *_ in marks} <= {kind for kind, _ in odd}
        assert len({fill for *_, fill in marks}) == 2
        unplaced = browser.value(f"{chart}.querySelector('.row:nth-last-child(2)').innerHTML")
        assert "place not told" in unplaced and "99 sent by process 900" in unplaced
        rings = f"[...{chart}.querySelectorAll('.ring')].length"
        assert browser.value(rings) == 2
        texts = browser.value(f"[...{chart}.querySelectorAll('.marks text')].map(t => t.textContent)")
        assert set(texts) <= {"98", "99"} and texts
        grey = browser.value(
            f"[...{chart}.querySelectorAll('.dots path')].map(p => [p.getAttribute('class'),"
            " getComputedStyle(p).stroke, p.getAttribute('d').split('M').length - 1])"
        )
        assert {kind for kind, *_ in grey} == {"polled", "sent"} and all(dots for *_, dots in grey)
        assert not {stroke for _, stroke, _ in grey} & {fill for *_, fill in marks}


@pytest.mark.spec("HIS-48")
def test_a_fault_that_is_not_mended_goes_on_and_faults_at_one_time_are_below_each_other(tmp_path: Path) -> None:
    faults = {2: _fault(0, True, "freeze 1", "clock 1"), 3: _fault(1, True, "power cut all 2")}
    text = _page(tmp_path, faults=faults).read_text()
    overview, _, _ = text.partition("</figure>")
    bars = re.findall(
        r'<i class="fault" style="left:([\d.]+)%;width:([\d.]+)%;top:(\d+)px[^>]*title="([^"]*)"', overview
    )
    assert [told.partition(",")[0] for *_, told in bars] == ["freeze 1", "clock 1", *["power cut all 2"] * 3]
    assert [top for *_, top, _ in bars] == ["0", "18", "36", "0", "0"]
    assert all(abs(float(left) + float(width) - 100) < 0.1 for left, width, *_ in bars)


def test_a_run_without_a_verdict_shows_its_last_operations(tmp_path: Path) -> None:
    file, page = tmp_path / "h", tmp_path / "p.html"
    file.write_bytes(b"".join(lines("0 s x=a@0 ; 1 p x:a@0")))
    write_page(file, page, None)
    assert "The run did not end" in page.read_text()
    assert page.read_text().count('<i class="op ok" style') == 2


def test_a_run_of_which_nothing_was_written_has_a_page(tmp_path: Path) -> None:
    (tmp_path / "h").write_bytes(lines("0 s x=a@0")[0])
    write_page(tmp_path / "h", tmp_path / "p.html", None)
    assert "Nothing was done" in (tmp_path / "p.html").read_text()
