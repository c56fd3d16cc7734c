"""Start, recognise and end the operating-system processes of an embedded cluster.

The process table is the truth: a process belongs to a cluster directory if it runs what we start there and its
command line names a file inside it. An editor that shows the file does not.
So nothing depends on a pid file that a kill -9 left stale or kept from being written.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

import psutil

from kafkatool.core.errors import KafkatoolError

PYTHON: Final = (sys.executable, "-P")
"""This Python, which takes no module from the directory that its user happens to be in."""

_TAIL_BYTES = 65_536


def spawn(
    command: Sequence[str], output: Path, environment: Mapping[str, str] = MappingProxyType({})
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, so that a Ctrl-C meant for us does not reach it; output is appended.

    ``environment`` is added to this process's.
    """
    with output.open("ab") as sink:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
            env={**own_environment(), **environment},
        )


def own_environment() -> dict[str, str]:
    """Return this process's environment; by it a child finds kafkatool where it is not installed, but checked out."""
    found = dict(os.environ)
    root = Path(__file__).parents[3]
    if (root / "pyproject.toml").is_file():
        found["PYTHONPATH"] = os.pathsep.join(filter(None, (str(root), found.get("PYTHONPATH"))))
    return found


def find(program: str, marker: Path) -> psutil.Process | None:
    """Find the live process with ``program`` and after it ``marker`` (an absolute path) among its arguments."""

    def is_it(arguments: Sequence[str]) -> bool:
        return program in arguments and str(marker) in arguments[arguments.index(program) :]

    return next(_found(is_it, marker), None)


def started_in(directory: Path, words: Sequence[str], file: str) -> list[psutil.Process]:
    """Find all live processes with ``words`` and right behind them a path in a directory, which may be gone by now.

    ``file``: the rest of the path, an expression. What is started in a directory below is another's.
    """
    behind = re.compile(re.escape(f"{directory}{os.sep}") + file)

    def is_one(arguments: Sequence[str]) -> bool:
        last = len(arguments) - len(words)
        starts = (i for i in range(last) if list(arguments[i : i + len(words)]) == list(words))
        return any(behind.fullmatch(arguments[i + len(words)]) for i in starts)

    return list(_found(is_one, directory))


def _found(is_it: Callable[[Sequence[str]], bool], path: Path) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if is_it(process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE and _is_of_here(process, path):
                yield process


def _is_of_here(process: psutil.Process, path: Path) -> bool:
    """Tell whether it is ours to end, and means the same file by that path: not one of a container.

    One that sees other mounts may see this file all the same, as those of a home directory in a toolbox.
    """
    if os.getuid() not in (0, process.uids().real):
        return False
    try:
        if os.readlink(f"/proc/{process.pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt"):  # noqa: PTH115
            return True
    except OSError:  # where there is no such thing
        return True
    with contextlib.suppress(OSError):
        return os.path.samestat(Path(f"/proc/{process.pid}/root{path}").stat(), path.stat())
    return False


def lives(process: psutil.Process) -> bool:
    """Tell whether it runs still; a zombie does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def end(*running: psutil.Process, gentle: bool, timeout_ms: int = 60_000) -> None:
    """Send SIGTERM to all and, past ``timeout_ms``, SIGKILL; or SIGKILL at once. Return when they are gone."""
    for process in running:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGTERM if gentle else signal.SIGKILL)
    for process in running:
        if not _gone(process, timeout_ms):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
            _gone(process, 10_000)


def _gone(process: psutil.Process, timeout_ms: int) -> bool:
    # psutil's wait() would take the exit status from a subprocess.Popen of ours; a zombie is gone for our purpose.
    deadline = time.monotonic() + timeout_ms / 1000
    while time.monotonic() < deadline:
        try:
            # A zombie's other threads may still be ending, and with them its files and listening sockets.
            if not process.is_running() or (process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1):
                with contextlib.suppress(ChildProcessError, OSError):
                    os.waitpid(process.pid, os.WNOHANG)
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.01)
    return False


def tail(output: Path, lines: int = 5, *, since: int = 0) -> str:
    """Read the last lines a process printed, of those past the first ``since`` bytes."""
    try:
        with output.open("rb") as f:
            f.seek(max(since, output.stat().st_size - _TAIL_BYTES))
            return "\n".join(f.read().decode(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return ""


class ProcessEndedError(KafkatoolError):
    """A process we started ended before it was ready: what, its exit code, its last words."""

    def __init__(self, what: str, code: int, output: Path) -> None:
        super().__init__(f"{what} ended with exit code {code} before it was ready; see {output}:\n{tail(output)}")
