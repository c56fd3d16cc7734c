"""The example in the docs is what kt writes today: its outputs are made again from the logs beside them.

After a change that is meant: ``KAFKATOOL_RENEW_EXAMPLES=1 pytest tests/commands/logs/test_example.py``, and look at the
difference. The excerpt in docs/logs.md is then copied by hand.
"""

import base64
import hashlib
import os
import re
from pathlib import Path

import pytest

from tests.browser import Browser, browser_path
from tests.commands.logs.tools import EXAMPLE, run, without_spark

GUIDE = EXAMPLE.parent / "logs.md"
RENEW = "KAFKATOOL_RENEW_EXAMPLES" in os.environ
WIDTH, HEIGHT = 1200, 1275  # as far as the leaders' plot
VERSION = re.compile(r"Made by kt logs report [\w.+-]+")


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    without_spark(monkeypatch)
    monkeypatch.chdir(EXAMPLE.parents[1])


def kept(name: str, made: str) -> str:
    """Return the example of that name as it is kept."""
    if RENEW:
        (EXAMPLE / name).write_text(made)
    return (EXAMPLE / name).read_text()


@pytest.mark.spec("SCL-17X", "SCL-18X")
@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("report.txt", ("report", "--skew")),
        ("timeline-payments-2.txt", ("timeline", "--topic", "payments", "--partition", "2")),
    ],
)
def test_texts_of_the_example_are_fresh(name: str, command: tuple[str, ...]) -> None:
    made = run(*command, "--logs", EXAMPLE)
    assert made.exit_code == 0
    assert made.stdout == kept(name, made.stdout)


@pytest.mark.spec("SCL-18X")
def test_the_page_of_the_example_is_fresh(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert run("report", "--logs", EXAMPLE, "--html", page, "--top", 13).exit_code == 0
    made = page.read_text()
    assert VERSION.sub("", made) == VERSION.sub("", kept("report.html", made))  # a release alone does not make it old


def test_the_picture_of_the_page_is_of_this_page() -> None:
    """The picture's last bytes, behind its end, are the page's digest without the version."""
    digest = hashlib.sha256(VERSION.sub("", (EXAMPLE / "report.html").read_text()).encode()).digest()
    if RENEW:
        with Browser(browser_path()) as browser:
            browser.open((EXAMPLE / "report.html").as_uri(), width=WIDTH, height=HEIGHT)
            browser.ask("Emulation.setScrollbarsHidden", hidden=True)
            taken = browser.ask("Page.captureScreenshot", format="png")
        (EXAMPLE / "report.png").write_bytes(base64.b64decode(taken["data"]) + digest)
    assert (EXAMPLE / "report.png").read_bytes().endswith(digest)


@pytest.mark.spec("SCL-17X")
def test_the_guide_quotes_the_example() -> None:
    quoted = [line.strip() for line in GUIDE.read_text().splitlines() if re.match(r"    \d{4}-\d\d-\d\d ", line)]
    assert len(quoted) > 4
    assert quoted == (EXAMPLE / "timeline-payments-2.txt").read_text().splitlines()[: len(quoted)]
