"""docs/commands and docs/coming-from-kafka.md: the pages show today's commands (scripts/docs makes them anew)."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from kafkatool.commands.main import kt
from kafkatool.commands.shared.options import KtCommand
from tests.commands.shared.test_output_contract import commands
from tests.paths import ROOT

DOCS = ROOT / "docs"
PAGES = sorted((DOCS / "commands").glob("*.md"))
SHELL = ("|", ">", "&&", "head")


def help_of(words: tuple[str, ...]) -> str:
    """Return the help text on a terminal of 100 columns."""
    result = CliRunner().invoke(kt, [*words, "--help"], prog_name="kt", terminal_width=100, max_content_width=100)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.spec("COM-4X")
@pytest.mark.parametrize("words", [words for words, _ in commands(kt)] + [()], ids=" ".join)
def test_every_command_has_a_page_with_the_help_it_prints_today(words: tuple[str, ...]) -> None:
    heading = f"## {' '.join(['kt', *words])} --help\n"
    (page,) = [p.read_text() for p in PAGES if heading in p.read_text()]
    shown = page.partition(heading)[2].split("```")[1].strip()
    assert shown == help_of(words).strip(), "scripts/docs --help-only brings it up to date"


def command_lines() -> Iterator[list[str]]:
    """Find every ``kt …`` that a reader could type, of the pages and of the table side by side, without the ``kt``."""
    pages = "\n".join(page.read_text() for page in PAGES)
    lines = re.findall(r"^\$ kt (.*)$", pages, re.MULTILINE)
    lines += re.findall(r"`kt (.*?)`", (DOCS / "coming-from-kafka.md").read_text())
    for line in lines:
        words = shlex.split(line)
        yield words[: next((i for i, word in enumerate(words) if word in SHELL), len(words))]


@pytest.mark.spec("COM-4X")
def test_every_command_line_in_the_documentation_has_flags_that_there_are() -> None:
    flags = {words: {f for p in command.params for f in p.opts} for words, command in commands(kt)}
    lines = [line for line in command_lines() if "kt" not in line]
    assert len(lines) > 60
    for line in lines:
        known = next((flags[words] for words in flags if tuple(line[: len(words)]) == words), None)
        if known is None:
            assert len(line) == 1 or line[0] == "--context" or "--describe" in line, line  # a group; Kafka's spelling
            continue
        assert not {word for word in line if word.startswith("--")} - known, line


def test_the_man_pages_show_todays_commands() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "man"), "--check"],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_help_lists_every_flag_once() -> None:
    for words, command in commands(kt):
        assert isinstance(command, KtCommand)
        ctx = click.Context(command, help_option_names=["-h", "--help"])
        names = [option.name for _, options in command.sections(ctx) for option in options]
        flags = [p.name for p in command.get_params(ctx) if isinstance(p, click.Option)]
        assert sorted(names) == sorted(flags), words
