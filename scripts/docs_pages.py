"""Writes docs/commands/: pages of prose (scripts/docs_story.py) with what its commands really print, and each --help.

One cluster plays all pages, in their order. Ports are those of this run; the pages show 2181 and 9092 on. What is seen
on a terminal is captured from a real one (tmux), as text and as SVG.
"""

import io
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import click
from docs_story import PAGES, Capture, Help, Page, Quiet, Run
from rich.console import Console
from rich.text import Text

from kafkatool.commands.main import kt

ROOT = Path(__file__).parents[1]
PAGES_DIRECTORY = ROOT / "docs" / "commands"
BROKERS = 4
WIDTH, HEIGHT = 80, 24
WIDTHS = {"terminal_width": 100, "max_content_width": 100}  # of --help


class StoryError(Exception):
    """A command did not end as the story says."""


class Place:
    """Where the story is played: a directory, ports, and how both are named in the pages."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        base = _free_ports(BROKERS + 1)
        self._ports = {2181: base, **{9092 + i: base + 1 + i for i in range(BROKERS)}}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        callers = {n: v for n, v in os.environ.items() if not n.startswith(("KAFKATOOL_", "XDG_")) and n != "NO_COLOR"}
        ours = {"KAFKATOOL_CLUSTER_DIR": "cluster", "KAFKATOOL_CLASS_DATA": "off"}
        self.environment = {**callers, "PATH": path, "HOME": str(directory), **ours}

    def real(self, text: str) -> str:
        """Return the text with the ports of this run."""
        return re.sub(r"\b(2181|909[2-5])\b", lambda m: str(self._ports[int(m[0])]), text)

    def shown(self, text: str) -> str:
        """Return the text with the ports of the pages."""
        named = {str(real): str(page) for page, real in self._ports.items()}
        text = re.sub(rf"\b({'|'.join(named)})\b", lambda m: named[m[0]], text)
        return text.replace(str(self.directory), "/home/you").replace(str(ROOT), "/home/you/kafkatool")

    def run(self, command: str, codes: tuple[int, ...] = (0,)) -> str:
        """stdout and stderr as they come. Raises StoryError on an exit code not among ``codes``."""
        done = subprocess.run(
            ["bash", "-c", self.real(command)], cwd=self.directory, env=self.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=180, check=False,
        )  # fmt: skip
        if done.returncode not in codes:
            raise StoryError(f"{command}\nexited with {done.returncode}:\n{done.stdout}")
        return self.shown(done.stdout)


def _free_ports(count: int) -> int:
    """Return the first of so many free ports in a row."""
    for base in range(21_000, 30_000, 50):
        try:
            for port in range(base, base + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return base
    raise StoryError("no free ports")


def write(page: Page, place: Place) -> None:
    """Play the page and write it."""
    parts = [f"# {page.title}\n"]
    for block in page.blocks:
        match block:
            case str():
                parts.append(_wrapped(block))
            case Quiet(command):
                place.run(command, codes=(0, 1))
            case Run(command, codes):
                parts.append(_fenced(f"$ {command}\n{place.run(command, codes)}"))
            case Capture():
                parts += _capture(block, place)
            case Help(words):
                parts.append(f"## {' '.join(('kt', *words))} --help\n")
                parts.append(_fenced(help_of(words)))
    (PAGES_DIRECTORY / f"{page.name}.md").write_text("\n".join(parts))
    print(f"docs/commands/{page.name}.md", flush=True)


def _wrapped(prose: str) -> str:
    """Paragraphs of at most 118 columns; headings and indented lines stay as they are."""
    fill = textwrap.TextWrapper(118, break_long_words=False, break_on_hyphens=False).fill
    paragraphs = prose.strip().split("\n\n")
    return "\n\n".join(p if p.startswith(("#", "    ")) else fill(p) for p in paragraphs) + "\n"


def _fenced(text: str) -> str:
    return f"```\n{text.rstrip()}\n```\n"


def help_of(words: tuple[str, ...]) -> str:
    """Return the help text at a width of 100, as on any terminal that wide."""
    command: click.Command = kt
    ctx = click.Context(kt, info_name="kt", **{**kt.context_settings, **WIDTHS})
    for word in words:
        assert isinstance(command, click.Group)
        found = command.get_command(ctx, word)
        assert found is not None, word
        command, ctx = found, click.Context(found, info_name=word, parent=ctx)
    return command.get_help(ctx)


def _capture(what: Capture, place: Place) -> Iterator[str]:
    """Run it in a terminal of 80 x 24, show the screen when it looks as wanted, then after Ctrl-C or the end."""
    tmux = ["tmux", "-S", str(place.directory / "tmux.socket")]

    def screen(*flags: str) -> str:
        return subprocess.run(
            [*tmux, "capture-pane", "-p", *flags, "-t", "docs"], capture_output=True, text=True, check=True
        ).stdout.rstrip()

    def wait(pattern: str) -> None:
        deadline = time.monotonic() + 120
        while not re.search(pattern, screen()):
            if time.monotonic() > deadline:
                raise StoryError(f"{what.command}: the terminal never showed {pattern}:\n{screen()}")
            time.sleep(0.1)

    subprocess.run(
        [*tmux, "new-session", "-d", "-s", "docs", "-x", str(WIDTH), "-y", str(HEIGHT), "env", "PS1=$ ", "bash", "--norc"],
        cwd=place.directory, env={**place.environment, "TERM": "xterm-256color"}, check=True,
    )  # fmt: skip
    try:
        wait(r"\$")
        subprocess.run([*tmux, "send-keys", "-t", "docs", f"clear; {place.real(what.command)}", "Enter"], check=True)
        wait(what.until)
        seen, coloured = screen(), screen("-e")
        yield _fenced(f"$ {what.command}\n{place.shown(_last(seen, what.lines))}")
        if what.svg:
            _write_svg(PAGES_DIRECTORY / f"{what.svg}.svg", place.shown(_last(coloured, what.lines)), what.command)
            yield f"![the same in colour]({what.svg}.svg)\n"
        if what.interrupted is not None:
            subprocess.run([*tmux, "send-keys", "-t", "docs", "C-c"], check=True)
            wait("interrupted")
            yield _wrapped(what.interrupted)
            yield _fenced(place.shown(_after(screen("-J"), what.after)))
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)


def _last(screen: str, lines: int) -> str:
    return "\n".join(screen.splitlines()[-lines:])


def _after(screen: str, pattern: str) -> str:
    """Return the lines from the one that matches to the last before the prompt."""
    lines = screen.splitlines()
    first = max(i for i, line in enumerate(lines) if re.search(pattern, line))
    return "\n".join(line for line in lines[first:] if line.strip() not in ("", "$"))


def _write_svg(path: Path, ansi: str, title: str) -> None:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(ansi))
    svg = console.export_svg(title=f"{title[:70]} …", unique_id="kt")
    path.write_text(re.sub(r"\s*@font-face \{[^}]*\}", "", svg))  # no font from the network: any monospace will do


def refresh_help() -> None:
    """Only the --help of each command, in the pages there are."""
    for page in PAGES:
        file = PAGES_DIRECTORY / f"{page.name}.md"
        text = file.read_text()
        for block in page.blocks:
            if isinstance(block, Help):
                before, heading, rest = text.partition(f"## {' '.join(('kt', *block.words))} --help\n")
                _, _, after = rest.partition("```\n")[2].partition("```\n")
                text = before + heading + "\n" + _fenced(help_of(block.words)) + after
        file.write_text(text)


def main() -> None:
    if sys.argv[1:] == ["--help-only"]:
        refresh_help()
        return
    if shutil.which("tmux") is None:  # before the first page is rewritten
        raise StoryError("a terminal is captured with tmux, which is not installed")
    PAGES_DIRECTORY.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kt-docs-") as name:
        place = Place(Path(name))
        shutil.copytree(ROOT / "docs" / "logs-example", place.directory / "collected")
        shutil.copy(ROOT / "scripts" / "docs_produce.py", place.directory / "produce.py")
        place.environment["PYTHON"] = sys.executable
        try:
            for page in PAGES:
                write(page, place)
        finally:
            place.run("kt cluster down", codes=(0, 1))


if __name__ == "__main__":
    main()
