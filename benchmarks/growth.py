"""``kt logs report`` as logs grow: time for each GB, and how much memory each process had, here and on a cluster.

The logs are a real story's, repeated with the clock moved on (``benchmarks.logs``). Each size is counted from files read
directly (``local[1]``, ``local[2]``), and by a Spark standalone cluster of one and of two workers of a core each, whose
files are named by URI: everything goes by Spark's connectors and shuffle, nothing is installed on the workers, and they
see no directory of the driver's. Told are, too, how much faster two are than one, and CPU against files read directly.
Each run reads its logs from the disk, the small ones too: those of tens of GB do not stay in memory.
"""

import argparse
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from benchmarks.logs import FILES, PAGE_BYTES, SAMPLE_S, TICKS_PER_S, children_of, forget, grow, run
from benchmarks.report import machine
from tests.core.statelog.there.cluster import SparkCluster

LINE_BYTES: Final = 265
"""Of the story, about; sizes are printed as they came out."""

WORKERS: Final = (1, 2)
CARRIERS: Final = ("files", "cluster")
COLUMNS: Final = (
    *("GB", "carrier", "workers", "wall s", "wall s/GB", "times one", "CPU s", "CPU s/GB", "times files"),
    *("peak MB: kt", "its JVM", "executor", "largest task"),
)


class Outside:
    """What the cluster's processes took for one run: all that its workers have started. CPU is known to SAMPLE_S."""

    def __init__(self, workers: Sequence[int]) -> None:
        self._workers = workers
        self._spent: dict[int, float] = {}
        self.executor_mb = self.task_mb = 0.0

    @property
    def cpu_s(self) -> float:
        return sum(self._spent.values())

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look again and again until the block ends."""
        ended = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(ended,), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()

    def _watch(self, ended: threading.Event) -> None:
        while not ended.wait(SAMPLE_S):
            family = list(self._workers)
            for process in family:
                with suppress(OSError):  # it has ended
                    family += children_of(process)
                    if process not in self._workers:
                        self._look_at(process)

    def _look_at(self, process: int) -> None:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        self._spent[process] = (int(fields[11]) + int(fields[12])) / TICKS_PER_S
        resident_mb = int(Path(f"/proc/{process}/statm").read_text().split()[1]) * PAGE_BYTES / 1e6
        if Path(f"/proc/{process}/exe").readlink().name == "java":
            self.executor_mb = max(self.executor_mb, resident_mb)
        else:
            self.task_mb = max(self.task_mb, resident_mb)


class Growth:
    """Measures in ``directory``; kt's own files are in a directory that the cluster's workers do not see."""

    def __init__(self, directory: Path, cluster: SparkCluster) -> None:
        self._directory = directory
        self._cluster = cluster

    def measure(self, size_gb: float, files: int, carriers: Sequence[str], workers_tried: Sequence[int]) -> None:
        """Make logs of about that size; print a row for each carrier and number of workers."""
        (logs := self._directory / "logs").mkdir()
        size = sum(path.stat().st_size for path in grow(logs, int(size_gb * 1e9 / LINE_BYTES), files)) / 1e9
        files_cpu_s = 0.0
        for carrier in carriers:
            one_s = 0.0
            for workers in workers_tried:
                wall_s, cpu_s, *memory_mb = self._run(logs, workers, on_cluster=carrier == "cluster")
                one_s = wall_s if workers == 1 else one_s
                if carrier == "files":
                    files_cpu_s = files_cpu_s or cpu_s
                times_files = f"{cpu_s / files_cpu_s:.2f}" if files_cpu_s else ""
                times_one = f"{one_s / wall_s:.2f}" if one_s else ""
                times = f"{wall_s:.0f} | {wall_s / size:.1f} | {times_one}"
                cpu = f"{cpu_s:.0f} | {cpu_s / size:.1f} | {times_files}"
                memory = " | ".join(f"{mb:.0f}" if mb else "" for mb in memory_mb)
                print(f"| {size:.2f} | {carrier} | {workers} | {times} | {cpu} | {memory} |", flush=True)
        shutil.rmtree(logs)

    def _run(self, logs: Path, workers: int, *, on_cluster: bool) -> tuple[float, ...]:
        """Return wall, CPU, and the most memory of kt, its JVM, an executor (0: it is its JVM), a task."""
        command = [sys.executable, "-m", "kafkatool", "logs", "report"]
        if on_cluster:
            settings = {**self._cluster.settings, "spark.cores.max": str(workers)}
            command += ["--logs", logs.as_uri(), "--master", self._cluster.url]
            command += [word for key, value in settings.items() for word in ("--spark-conf", f"{key}={value}")]
        else:
            command += ["--logs", str(logs), "--master", f"local[{workers}]"]
        outside = Outside(self._cluster.worker_processes)
        os.sync()  # what was written before is not to be waited for in this run
        for path in logs.iterdir():
            forget(path)
        with tempfile.TemporaryDirectory(dir=own(self._directory)) as temporary, outside.watched():
            done = run(command, self._directory / "output", TMPDIR=temporary)
        cpu_s, task_mb = done.cpu_s + outside.cpu_s, max(done.task_mb, outside.task_mb)
        return done.wall_s, cpu_s, done.driver_mb, done.java_mb, outside.executor_mb, task_mb


def own(directory: Path) -> Path:
    """Return where kt has its files."""
    (path := directory / "kt").mkdir(exist_ok=True)
    return path


def main() -> None:
    """Parse, measure each size in turn, print."""
    parser = argparse.ArgumentParser(prog="scripts/benchmark growth", description=__doc__)
    parser.add_argument("--gb", type=float, nargs="+", default=[0.5, 1, 2], metavar="GB", help="(default 0.5 1 2)")
    parser.add_argument("--files", type=int, default=FILES, help="in so many, of as many brokers (default %(default)s)")
    parser.add_argument("--carriers", choices=CARRIERS, nargs="+", default=CARRIERS, help="(default: both)")
    parser.add_argument("--one-up-to", type=float, metavar="GB", help="above it two workers alone (default: never)")
    parser.add_argument("--directory", type=Path, help="where the logs are made (default: TMPDIR; twice their size)")
    options = parser.parse_args()
    print(f"{machine()} The load average was {os.getloadavg()[0]:.1f} at the start; files: {options.files}.\n")
    print(f"| {' | '.join(COLUMNS)} |\n|---:|---|{'---:|' * (len(COLUMNS) - 2)}")
    with tempfile.TemporaryDirectory(prefix="kafkatool-growth-", dir=options.directory) as name:
        directory = Path(name)
        with SparkCluster(directory / "cluster", hidden=own(directory)) as cluster:
            growth = Growth(directory, cluster)
            for size_gb in options.gb:
                both = options.one_up_to is None or size_gb <= options.one_up_to
                growth.measure(size_gb, options.files, options.carriers, WORKERS if both else WORKERS[1:])


if __name__ == "__main__":
    main()
