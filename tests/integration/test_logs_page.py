"""The report's page in a real browser: wide and narrow, light and dark, with the keyboard alone."""

import json
from pathlib import Path

import pytest

from tests.browser import Browser, browser_path
from tests.commands.logs.tools import EXAMPLE, run, without_spark

TAB, ENTER = ("Tab", 9), ("Enter", 13)
WIDER_THAN_THE_SCREEN = """
[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll') && !e.closest('svg') && !e.closest('.skip')
  && e.getBoundingClientRect().right > document.documentElement.clientWidth + 1).map(e => e.outerHTML.slice(0, 120))
"""
FOCUS = "(e => [e.tagName, e.textContent.slice(0, 30), getComputedStyle(e).outlineStyle])(document.activeElement)"
CONTRAST = """
(() => {
  const linear = v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(linear);
                       return .2126 * r + .7152 * g + .0722 * b; };
  const ground = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
                        if (!/, 0\\)|transparent/.test(c)) return c; } return 'rgb(255, 255, 255)'; };
  const words = 'p, td, th, h1, h2, .name, .card b, .card span, nav a, .ticks span, summary';
  return [...document.querySelectorAll(words)].map(e => {
    const [a, b] = [light(getComputedStyle(e).color), light(ground(e))].sort((x, y) => y - x);
    return [(a + .05) / (b + .05), e.tagName + ' ' + e.className + ' ' + e.textContent.slice(0, 20)]; })
    .sort((x, y) => x[0] - y[0])[0];
})()
"""


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    without_spark(monkeypatch)
    page = tmp_path / "report.html"
    assert run("report", "--logs", EXAMPLE, "--html", page, "--top", 13).exit_code == 0
    return page.as_uri()


@pytest.mark.slow
@pytest.mark.spec("SCL-18X")
def test_the_page_in_a_real_browser(url: str, tmp_path: Path) -> None:
    with Browser(browser_path()) as browser:
        for width, dark in ((1280, False), (1280, True), (390, False), (320, True)):
            browser.open(url, width=width, height=900, mobile=width < 500, dark=dark)
            # It is drawn: every lane has shapes of some size, every plot too.
            boxes = browser.value(
                "[...document.querySelectorAll('figure svg')].map(s => { const b = s.getBoundingClientRect();"
                " return [b.width, b.height, s.querySelectorAll('rect, path').length]; })"
            )
            assert len(boxes) == 13 + 3
            assert all(w > width * 0.4 and h > 15 and shapes > 0 for w, h, shapes in boxes)
            # It fits: nothing but wide tables scrolls sideways, no text is tiny or faint.
            assert browser.value(WIDER_THAN_THE_SCREEN) == []
            assert browser.value("document.documentElement.scrollWidth <= innerWidth")
            smallest = browser.value(
                "Math.min(...[...document.querySelectorAll('body *')].filter(e => e.childElementCount == 0 && "
                "e.textContent.trim()).map(e => parseFloat(getComputedStyle(e).fontSize)))"
            )
            assert smallest >= 11
            contrast, where = browser.value(CONTRAST)
            assert contrast >= 4.5, (width, dark, where)
            browser.screenshot(tmp_path / f"page-{width}-{dark}.png")
            assert (tmp_path / f"page-{width}-{dark}.png").stat().st_size > 20_000
            # It needs nothing else, and nothing is wrong with it.
            asked = {
                e["params"]["request"]["url"] for e in browser.events if e.get("method") == "Network.requestWillBeSent"
            }
            assert asked <= {url}
            assert [e for e in browser.events if e.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown")] == []


@pytest.mark.slow
@pytest.mark.spec("SCL-18X")
def test_the_page_by_keyboard(url: str) -> None:
    with Browser(browser_path()) as browser:
        browser.open(url, width=1280, height=900)
        met = []
        for _ in range(60):
            browser.press(*TAB)
            met.append(browser.value(FOCUS))
        assert met[0][:2] == ["A", "Skip to the report"]
        assert {outline for tag, _, outline in met if tag != "BODY"} == {"solid"}, "the focus is seen"
        links = [text for tag, text, _ in met if tag == "A"]
        assert links[1:4] == ["Leaders", "Partitions led", "In-sync replicas"]
        assert sum(tag == "SUMMARY" for tag, _, _ in met) >= 13 + 2, "lanes and tables of plots can be reached"
        assert any(tag == "DIV" for tag, _, _ in met), "tables can be reached, and so scrolled"
        browser.value("document.querySelector('.lane summary').focus()")
        browser.press(*ENTER)
        opened = browser.value("JSON.stringify(document.querySelector('.lane[open]')?.innerText ?? null)")
        assert "no leader" in opened or "none" in json.loads(opened)
        browser.press(*ENTER)
        assert browser.value("document.querySelectorAll('.lane[open]').length") == 0
