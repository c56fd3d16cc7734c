"""The figures section of docs/performance.md: what was measured, by which command, on what machine."""

import datetime
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import psutil

from benchmarks.figures import Figure, table
from kafkatool.core.java import find_java

PAGE: Final = Path(__file__).parent.parent / "docs" / "performance.md"
_BEGIN: Final = "<!-- figures: written by scripts/benchmark -->\n"
_END: Final = "<!-- end of figures -->\n"


def write(figures: Sequence[Figure], rounds: int, load_before: float) -> None:
    """Put the figures in the place of the last ones; ``load_before`` is the load average at the start of the run.

    Raises ValueError where the page has lost its marks.
    """
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not end:
        raise ValueError(f"{PAGE} has no section between {_BEGIN!r} and {_END!r}")
    text = (
        f"`scripts/benchmark --rounds {rounds}` of {datetime.date.today().isoformat()} at commit {_commit()}; the load "
        f"average was {load_before:.1f} when it began.\n\n{machine()}\n\n{table(figures)}"
    )
    PAGE.write_text(f"{before}{_BEGIN}\n{text}\n{_END}{after}")


def machine() -> str:
    """Cores, memory and versions; nothing that names the machine."""
    memory_gb = psutil.virtual_memory().total / 1e9
    return (
        f"Machine: {os.cpu_count()} cores ({platform.machine()}), {memory_gb:.0f} GB of memory, "
        f"{platform.system()}; Python {platform.python_version()}, Java {find_java().version}. "
        "Clients, brokers and ZooKeeper share it."
    )


def _commit() -> str:
    command = ["git", "-C", str(PAGE.parent), "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "unknown"
