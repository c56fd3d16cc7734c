"""``kt logs merge`` beside Kafka's StateChangeLogMerger: whole processes, in turns, on logs grown from real ones.

Kafka's merger keeps a fifth of the lines, ours keeps all; ``sort -m`` (which sorts nothing) is printed as the limit. CPU
is that of the whole tree of processes, so that a figure can be judged on a machine that is not idle. ``kt`` runs as
``python -m kafkatool`` with the archive of Spark's classes made (once without it: the first run).
"""

import argparse
import ctypes
import datetime
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
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from benchmarks.report import machine
from kafkatool.core.java import find_java
from kafkatool.core.statelog.archive import SWITCH, archive_path, make, usable
from tests.compat.real_kafka import libraries

KAFKA_VERSION: Final = "2.8.2"
STORY: Final = Path(__file__).parent.parent / "tests" / "data" / "state-change-logs" / KAFKA_VERSION / "story"
FILES: Final = 8
TOPIC: Final = "orders7"
TIMEOUT_S: Final = 3600
SAMPLE_S: Final = 0.1
_PR_SET_CHILD_SUBREAPER: Final = 36
_STAMP: Final = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3})\] ")


class Run(NamedTuple):
    """One process tree from start to end. Memory is what its largest process of Java, and of Python, had at most."""

    wall_s: float
    cpu_s: float
    java_mb: float
    python_mb: float


def grow(directory: Path, lines: int) -> list[Path]:
    """Repeats a real story's lines ten minutes later each time, with a topic of another name, in FILES files."""
    stories = [gzip.decompress(path.read_bytes()).decode("latin-1") for path in sorted(STORY.iterdir())]
    paths = [directory / f"broker-{number + 1}.state-change.log" for number in range(FILES)]
    for number, path in enumerate(paths):
        text = stories[number % len(stories)].splitlines(keepends=True)
        left, round_ = lines // FILES, 0
        with path.open("w", encoding="latin-1") as log:
            while left > 0:
                shift = datetime.timedelta(minutes=10 * round_, milliseconds=7 * number)
                moved = [_moved(line, shift, f"orders{round_ % 50}") for line in text[:left]]
                log.writelines(moved)
                left, round_ = left - len(moved), round_ + 1
    return paths


def run(command: Sequence[str], output: Path, **environment: str) -> Run:
    """Runs a command with its stdout in a file. RuntimeError if it fails."""
    peaks = {"java": 0, "python": 0}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    with output.open("wb") as out, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors, env=os.environ | environment)
        watcher = threading.Thread(target=_watch, args=(process.pid, peaks), daemon=True)
        watcher.start()
        code = process.wait(TIMEOUT_S)
        wall_s = time.perf_counter() - started
        watcher.join()
        errors.seek(0)
        told = errors.read().decode(errors="replace")
    _reap()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if code:
        raise RuntimeError(f"{' '.join(command)[:200]} ended with {code}: {told[-2000:]}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(wall_s, cpu_s, peaks["java"] / 1e6, peaks["python"] / 1e6)


def measure(lines: int, rounds: int, directory: Path) -> str:
    """The table for logs of that many lines."""
    logs = directory / "logs"
    logs.mkdir()
    paths = grow(logs, lines)
    size = sum(path.stat().st_size for path in paths)
    print(f"{lines:,} lines, {size / 1e6:,.0f} MB in {FILES} files", file=sys.stderr)
    ours = [sys.executable, "-m", "kafkatool", "logs", "merge", "--logs", str(logs), "--out", str(directory / "ours")]
    to_stdout = ours[:-2]
    named = ["--logs", ",".join(map(str, paths))]
    kafka = [str(find_java().executable), "-cp", f"{libraries(KAFKA_VERSION)}/*", "kafka.tools.StateChangeLogMerger"]
    commands: dict[str, tuple[list[str], dict[str, str]]] = {
        "Kafka's StateChangeLogMerger": ([*kafka, *named], {}),
        "kt logs merge --out": (ours, {}),
        "kt logs merge, without the archive": (ours, {SWITCH: "off"}),
        "kt logs merge > file": (to_stdout, {}),
        "LC_ALL=C sort -m": (["sort", "-m", *map(str, paths)], {"LC_ALL": "C"}),
        "Kafka's merger, one topic": ([*kafka, *named, "--topic", TOPIC], {}),
        "kt logs merge, one topic": ([*to_stdout, "--topic", TOPIC], {}),
    }
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    for number in range(rounds):
        for name, (command, environment) in commands.items():
            done = run(command, directory / "output", **environment)
            runs[name].append(done)
            print(f"  round {number + 1}, {name}: {done.wall_s:.2f} s, CPU {done.cpu_s:.2f} s", file=sys.stderr)
    return _table(f"{lines:,} lines, {size / 1e6:,.0f} MB", runs)


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.logs", description=__doc__)
    parser.add_argument("--lines", type=int, nargs="+", default=[2_000_000], help="sizes (default 2000000)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="where the logs are made (default: TMPDIR; thrice their size)")
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what a killed JVM leaves is ours to wait for
    if not usable(archive_path(find_java())):
        print("making the class-data archive", file=sys.stderr)
        make()
    print(f"{machine()} The load average was {os.getloadavg()[0]:.1f} at the start.\n")
    for lines in options.lines:
        with tempfile.TemporaryDirectory(prefix="kafkatool-logs-", dir=options.directory) as directory:
            print(measure(lines, options.rounds, Path(directory)))


def _table(title: str, runs: dict[str, list[Run]]) -> str:
    head = f"| {title} | wall s | CPU s | wall / Kafka's | CPU / Kafka's | peak MB: JVM, largest Python process |\n"
    rows = [head, "|---|---:|---:|---:|---:|---:|\n"]
    kafka = None
    for name, done in runs.items():
        medians = Run(*(statistics.median(column) for column in zip(*done, strict=True)))
        kafka = medians if name.startswith("Kafka") or kafka is None else kafka
        ratios = f"{medians.wall_s / kafka.wall_s:.2f} | {medians.cpu_s / kafka.cpu_s:.2f}"
        memory = f"{medians.java_mb:.0f}, {medians.python_mb:.0f}"
        rows.append(f"| {name} | {medians.wall_s:.2f} | {medians.cpu_s:.2f} | {ratios} | {memory} |\n")
    return "".join(rows)


def _moved(line: str, shift: datetime.timedelta, topic: str) -> str:
    if stamp := _STAMP.match(line):
        at = datetime.datetime.strptime(stamp[1], "%Y-%m-%d %H:%M:%S") + shift
        at += datetime.timedelta(milliseconds=int(stamp[2]))
        line = f"[{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03d}] {line[stamp.end() :]}"
    return line.replace("orders", topic)


def _watch(pid: int, peaks: dict[str, int]) -> None:
    root = psutil.Process(pid)
    while True:
        try:
            if root.status() == psutil.STATUS_ZOMBIE:
                return
            processes = [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                kind = "java" if "java" in process.name() else "python"
                peaks[kind] = max(peaks[kind], process.memory_info().rss)
        time.sleep(SAMPLE_S)


def _reap() -> None:
    """Waits for what the command left; killed workers end at once."""
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


if __name__ == "__main__":
    main()
