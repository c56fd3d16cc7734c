"""The recipes of docs/testing.md: each block of Python there is run as it stands, on open and on secured clusters."""

import re

import pytest

from tests.paths import ROOT

pytest_plugins = ["pytester"]

PAGE = ROOT / "docs" / "testing.md"
MOST_LINES = 9  # of a recipe, its head and its client among them; the fault is one or two


def _blocks() -> list[tuple[int, str]]:
    """Return each block, with the number of lines before it."""
    text = PAGE.read_text()
    return [
        (text[: m.start(1)].count("\n"), m[1])
        for m in re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    ]


for _above, _code in _blocks():
    exec(compile("\n" * _above + _code, PAGE, "exec"))  # line numbers are those of the page

for _waits in ("test_frozen_broker", "test_cut_off_broker", "test_lost_broker"):
    pytest.mark.slow(globals()[_waits])


def test_the_page_has_ten_recipes_or_more_and_they_are_short() -> None:
    recipes = [code for _, code in _blocks() if "def test_" in code]
    assert len(recipes) >= 10
    for recipe in recipes:
        lines = [line for line in recipe.splitlines() if line and not line.startswith(("@", "def "))]
        assert len(lines) <= MOST_LINES, recipe
        assert sum(".faults." in line for line in lines) <= 5


@pytest.mark.slow
@pytest.mark.slowest
def test_they_run_on_secured_clusters_too(pytester: pytest.Pytester, pytestconfig: pytest.Config) -> None:
    """The values are taken in any case."""
    blocks = [code for _, code in _blocks()]
    pytester.makepyfile("\n".join(blocks))
    options = "\n".join(pytestconfig.getini("kafka_cluster_options"))
    result = pytester.runpytest_subprocess(
        "-p", "no:randomly", "--kafka-security", "SASL_SSL", "-o", f"kafka_cluster_options={options}"
    )
    tests = sum(code.count("def test_") for code in blocks)
    result.assert_outcomes(passed=tests + 1)  # one has two cases
