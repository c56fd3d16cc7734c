"""``kt logs merge`` beside Kafka's StateChangeLogMerger: whole processes, in turns, on logs grown from real ones.

Kafka's merger keeps a fifth of the lines, ours keeps all; ``sort -m`` (which sorts nothing) is printed as the limit. CPU
is that of the whole tree of processes, so that a figure can be judged on a machine that is not idle. ``kt`` runs as
``python -m kafkatool`` with the archive of Spark's classes made (once without it: the first run).
"""

import argparse
import ctypes
import datetime
import functools
import gzip
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.report import machine
from kafkatool.core.class_data import SWITCH, usable
from kafkatool.core.java import find_java
from kafkatool.core.statelog.spark.archive import archive_path
from kafkatool.core.statelog.spark.archive_maker import make
from tests.compat.real_kafka import libraries

KAFKA_VERSION: Final = "2.8.2"
STORY: Final = Path(__file__).parent.parent / "tests" / "data" / "state-change-logs" / KAFKA_VERSION / "story"
FILES: Final = 8
TOPIC: Final = "orders7"
TIMEOUT_S: Final = 3600
SAMPLE_S: Final = 0.1
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
PR_SET_CHILD_SUBREAPER: Final = 36
_ROUNDS_AT_ONCE: Final = 64
_STAMP: Final = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3})\] ")


class Run(NamedTuple):
    """One process tree from start to end. Memory is the most that one process had: of Java, of Python's tasks, kt itself."""

    wall_s: float
    cpu_s: float
    java_mb: float
    task_mb: float
    driver_mb: float


def grow(directory: Path, lines: int, files: int = FILES) -> list[Path]:
    """Repeats a real story's lines ten minutes later each time, with a topic of another name, in so many files."""
    paths = log_paths(directory, files)
    with ProcessPoolExecutor() as pool:
        for number, path in enumerate(paths):
            whole, rest = divmod(lines // files, len(_story(number)))
            with path.open("w", encoding="latin-1") as log:
                for first in range(0, whole, _ROUNDS_AT_ONCE):
                    rounds = range(first, min(whole, first + _ROUNDS_AT_ONCE))
                    log.writelines(pool.map(_retold, repeat(number), rounds))
                log.write(_retold(number, whole, rest))
    return paths


def log_paths(directory: Path, files: int = FILES) -> list[Path]:
    """Return the paths of so many brokers' logs."""
    return [directory / f"broker-{number + 1}.state-change.log" for number in range(files)]


def run(command: Sequence[str], output: Path, **environment: str) -> Run:
    """Runs a command with its stdout in a file. RuntimeError if it fails."""
    others = children_of(os.getpid())
    peaks = {"java": 0, "python": 0, "root": 0}
    spent: dict[int, float] = {}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    with output.open("wb") as out, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors, env=os.environ | environment)
        watcher = threading.Thread(target=_watch, args=(process.pid, peaks, spent), daemon=True)
        watcher.start()
        code = process.wait(TIMEOUT_S)
        wall_s = time.perf_counter() - started
        watcher.join()
        errors.seek(0)
        told = errors.read().decode(errors="replace")
    for waited_for in _reap(others):
        spent.pop(waited_for, None)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if code:
        raise RuntimeError(f"{' '.join(command)[:200]} ended with {code}: {told[-2000:]}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime + sum(spent.values())
    return Run(wall_s, cpu_s, *(peaks[kind] / 1e6 for kind in ("java", "python", "root")))


def forget(path: Path) -> None:
    """Let the system drop what it keeps in memory of a file; all of it is on the disk."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(lines: int, rounds: int, directory: Path, only: Sequence[str] = (), *, cold: bool = False) -> str:
    """Return the table for logs of that many lines, of the rows that have one of these words (of all without any).

    ``cold``: each run finds the logs on the disk alone, as those of yesterday, not in the page cache.
    """
    logs = directory / "logs"
    kt, from_logs = [sys.executable, "-m", "kafkatool", "logs"], ["--logs", str(logs)]
    to_stdout = [*kt, "merge", *from_logs]
    ours = [*to_stdout, "--out", str(directory / "ours")]
    paths = log_paths(logs)
    named = ["--logs", ",".join(map(str, paths))]
    kafka = [str(find_java().executable), "-cp", f"{libraries(KAFKA_VERSION)}/*", "kafka.tools.StateChangeLogMerger"]
    commands: dict[str, tuple[list[str], dict[str, str]]] = {
        "Kafka's StateChangeLogMerger": ([*kafka, *named], {}),
        "kt logs merge --out": (ours, {}),
        "kt logs merge, without the archive": (ours, {SWITCH: "off"}),
        "kt logs merge > file": (to_stdout, {}),
        "kt logs timeline": ([*kt, "timeline", *from_logs, "--out", str(directory / "ours")], {}),
        "kt logs report": ([*kt, "report", *from_logs], {}),
        "LC_ALL=C sort -m": (["sort", "-m", *map(str, paths)], {"LC_ALL": "C"}),
        "Kafka's merger, one topic": ([*kafka, *named, "--topic", TOPIC], {}),
        "kt logs merge, one topic": ([*to_stdout, "--topic", TOPIC], {}),
    }
    runs: dict[str, list[Run]] = {name: [] for name in commands if not only or any(word in name for word in only)}
    if not runs:
        sys.exit(f"--only: no row has that; there are {', '.join(commands)}")
    logs.mkdir()
    grow(logs, lines)
    size = sum(path.stat().st_size for path in paths)
    print(f"{lines:,} lines, {size / 1e6:,.0f} MB in {FILES} files", file=sys.stderr)
    for number in range(rounds):
        for name in runs:
            command, environment = commands[name]
            for written in ("output", "ours"):
                (directory / written).unlink(missing_ok=True)
            os.sync()  # what the run before has written is not to be waited for in this one
            for path in paths if cold else ():
                forget(path)
            done = run(command, directory / "output", **environment)
            runs[name].append(done)
            print(f"  round {number + 1}, {name}: {done.wall_s:.2f} s, CPU {done.cpu_s:.2f} s", file=sys.stderr)
    return _table(f"{lines:,} lines, {size / 1e6:,.0f} MB", runs)


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.logs", description=__doc__)
    parser.add_argument("--lines", type=int, nargs="+", default=[2_000_000], help="sizes (default 2000000)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--only", nargs="+", default=(), metavar="WORD", help="only the rows with one of these, as sort"
    )
    parser.add_argument("--cold", action="store_true", help="take the logs out of the page cache before each run")
    parser.add_argument("--directory", type=Path, help="where the logs are made (default: TMPDIR; thrice their size)")
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what a killed JVM leaves is ours to wait for
    if not usable(archive_path(find_java())):
        print("making the class-data archive", file=sys.stderr)
        make()
    print(f"{machine()} The load average was {os.getloadavg()[0]:.1f} at the start.\n")
    for lines in options.lines:
        with tempfile.TemporaryDirectory(prefix="kafkatool-logs-", dir=options.directory) as directory:
            print(measure(lines, options.rounds, Path(directory), options.only, cold=options.cold))


def _table(title: str, runs: dict[str, list[Run]]) -> str:
    head = f"| {title} | wall s | CPU s | wall / Kafka's | CPU / Kafka's | peak MB: JVM, largest Python process |\n"
    rows = [head, "|---|---:|---:|---:|---:|---:|\n"]
    kafka = None
    for name, done in runs.items():
        medians = Run(*(statistics.median(column) for column in zip(*done, strict=True)))
        kafka = medians if name.startswith("Kafka") else kafka
        ratios = f"{medians.wall_s / kafka.wall_s:.2f} | {medians.cpu_s / kafka.cpu_s:.2f}" if kafka else " | "
        memory = f"{medians.java_mb:.0f}, {max(medians.task_mb, medians.driver_mb):.0f}"
        rows.append(f"| {name} | {medians.wall_s:.2f} | {medians.cpu_s:.2f} | {ratios} | {memory} |\n")
    return "".join(rows)


@functools.cache
def _story(number: int) -> list[tuple[datetime.datetime | None, str, str]]:
    """Give the lines of a log's story: the second of each, its milliseconds, what it says. No two logs are in step."""
    stories = sorted(STORY.iterdir())
    text = gzip.decompress(stories[number % len(stories)].read_bytes()).decode("latin-1")
    return [_told(line, datetime.timedelta(milliseconds=7 * number)) for line in text.splitlines(keepends=True)]


def _told(line: str, later: datetime.timedelta) -> tuple[datetime.datetime | None, str, str]:
    """Take a line apart; one of a stack trace has no time."""
    stamp = _STAMP.match(line)
    if stamp is None:
        return None, "", line
    at = datetime.datetime.strptime(f"{stamp[1]},{stamp[2]}", "%Y-%m-%d %H:%M:%S,%f") + later
    return at.replace(microsecond=0), f"{at.microsecond // 1000:03d}", line[stamp.end() :]


def _retold(number: int, round_: int, lines: int | None = None) -> str:
    """Return so many lines of a log's story, all unless told, as they are in that round."""
    minutes = datetime.timedelta(minutes=10 * round_)
    seconds: dict[datetime.datetime, str] = {}
    retold = []
    for at, milliseconds, said in _story(number)[:lines]:
        if at is None:
            retold.append(said)
            continue
        if at not in seconds:
            seconds[at] = (at + minutes).strftime("[%Y-%m-%d %H:%M:%S,")
        retold.append(f"{seconds[at]}{milliseconds}] {said}")
    return "".join(retold).replace("orders", f"orders{round_ % 50}")


def _watch(pid: int, peaks: dict[str, int], spent: dict[int, float]) -> None:
    """Until the process has ended. ``spent`` gets the CPU of Spark's workers, whose daemon does not wait for them.

    It reads a few small files of each process: psutil looks at all processes of the machine, and took a tenth of it.
    """
    while Path(f"/proc/{pid}").exists():
        family = [(pid, "")]  # each process with the kind of its parent
        for process, parent in family:
            with suppress(OSError):  # it has ended
                # by its program: until a process that the JVM starts has one of its own, its memory is the JVM's
                kind = "java" if Path(f"/proc/{process}/exe").readlink().name == "java" else "python"
                resident = int(Path(f"/proc/{process}/statm").read_text().split()[1]) * PAGE_BYTES
                of = "root" if process == pid and kind == "python" else kind
                peaks[of] = max(peaks[of], resident)
                if parent == kind == "python":
                    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
                    spent[process] = (int(fields[11]) + int(fields[12])) / TICKS_PER_S
                family += [(child, kind) for child in children_of(process)]
        time.sleep(SAMPLE_S)


def children_of(process: int) -> set[int]:
    """Gives the processes that one has started, and those that were left to it. OSError if it has ended."""
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    return {int(child) for children in tasks for child in children.read_text().split()}


def _reap(others: set[int]) -> list[int]:
    """Waits for what the command left, and gives the processes; killed workers end at once. Others are left alone."""
    reaped = []
    while left := children_of(os.getpid()) - others:
        for process in left:
            with suppress(ChildProcessError):
                reaped.append(os.waitpid(process, 0)[0])
    return reaped


if __name__ == "__main__":
    main()
