"""The page of a run that is not clean, in a real browser: who did what when, and what is at odds in red."""

from pathlib import Path

import pytest

from tests.browser import Browser, browser_path
from tests.histories.analyser.notation import lines
from tests.histories.analyser.verdict import judge
from tests.histories.history import read_file
from tests.histories.timeline import write_page


def _page(directory: Path) -> Path:
    file, page = directory / "history.jsonl", directory / "timeline.html"
    file.write_bytes(b"".join(lines("0 s x=a@0 ; 1 s x=b@1 ∥ 2 p x:a@0 ; 2 p x:c@1 ; 0f [s y=d@0] ; 1i s y=e@?")))
    write_page(file, page, judge(read_file(file)))
    return page


@pytest.mark.spec("HIS-48")
def test_the_page_marks_the_operations_at_odds(tmp_path: Path) -> None:
    with Browser(browser_path()) as browser:
        browser.open(_page(tmp_path).as_uri(), width=1500, height=1000)
        odd = browser.value("[...document.querySelectorAll('rect.odd title')].map(t => t.textContent.split('\\n')[0])")
        assert any("send ok" in told for told in odd) and any("poll ok" in told for told in odd)
        heading = browser.value("[...document.querySelectorAll('h2')].map(h => h.textContent)")
        assert any(text.startswith("inconsistent-offsets, 1 times (not allowed)") for text in heading)
        assert browser.value("document.querySelectorAll('svg.offsets circle.odd').length") >= 2
        lanes = browser.value(
            "[...document.querySelector('svg.lanes').querySelectorAll('text')].map(t => t.textContent)"
        )
        assert {"process 0", "process 1", "process 2"} <= set(lanes)


def test_a_run_without_a_verdict_shows_its_last_operations(tmp_path: Path) -> None:
    file, page = tmp_path / "h", tmp_path / "p.html"
    file.write_bytes(b"".join(lines("0 s x=a@0 ; 1 p x:a@0")))
    write_page(file, page, None)
    assert "The run did not end" in page.read_text()
    assert page.read_text().count("<rect class=ok") == 2
