"""The site of docs/: every page can be reached from the navigation, and every link within docs leads somewhere."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.paths import ROOT

DOCS = ROOT / "docs"
PAGES = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)#:\s]+)(?:#[^)]*)?\)")


def reached(nav: Any) -> Iterator[str]:
    """Yield the pages of a navigation: a list of titles, each with a page or a list of the same kind."""
    for entry in nav:
        for below in entry.values():
            yield from [below] if isinstance(below, str) else reached(below)


def test_the_navigation_has_every_page_once() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    assert sorted(reached(settings["nav"])) == sorted(PAGES)


@pytest.mark.parametrize("page", sorted(PAGES))
def test_every_link_leads_to_a_file(page: str) -> None:
    file = DOCS / page
    for target in LINK.findall(file.read_text()):
        assert (file.parent / target).is_file(), f"{page} links to {target}"
