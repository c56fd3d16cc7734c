"""``kt logs`` on logs that are lopsided: time, and how much memory kt, Spark's JVM and the largest task had.

One partition with millions of changes, one second with a million lines, a hundred thousand small files; each by both
carriers: files read directly, and the same named by URI, which go by Spark's connectors and shuffle. One JVM is driver
and executor here, so its memory is that of both. Nothing is compared with anything.
"""

import argparse
import ctypes
import datetime
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from benchmarks.logs import PR_SET_CHILD_SUBREAPER, run
from benchmarks.report import machine

FILES: Final = 3
LINES_OF_SMALL_FILES: Final = 20
MASTER: Final = "local[2]"
_START: Final = datetime.datetime(2026, 1, 1)
_LINE: Final = (
    "[%s,%03d] TRACE [Broker id=%d] Cached leader info UpdateMetadataPartitionState(topicName='%s', partitionIndex=%d, "
    "controllerEpoch=1, leader=1, leaderEpoch=%d, isr=[%s], zkVersion=%d, replicas=[1, 2], offlineReplicas=[]) for "
    "partition %s-%d in response to UpdateMetadata request sent by controller 2 epoch 1 with correlation id 3 "
    "(state.change.logger)\n"
)
"""Of Kafka 2.8."""


def line(moment_ms: int, broker: int, topic: str, partition: int, change: int) -> str:
    """Return a broker's line about a partition's so many-th state; broker 2 leaves the ISR and comes back in turns."""
    at = _START + datetime.timedelta(milliseconds=moment_ms)
    isr = "1" if change % 2 else "1, 2"
    stamp = f"{at:%Y-%m-%d %H:%M:%S}", at.microsecond // 1000
    return _LINE % (*stamp, broker, topic, partition, change // 10, isr, change, topic, partition)


def one_partition(directory: Path, facts: int) -> None:
    """Write one broker's log in which one partition changes so many times."""
    with (directory / "broker-1.state-change.log").open("w") as log:
        log.writelines(line(change * 10, 1, "orders", 0, change) for change in range(facts))


def one_second(directory: Path, lines: int) -> None:
    """Write the logs of some brokers, with so many lines of one second in all."""
    each = lines // FILES
    for broker in range(1, FILES + 1):
        with (directory / f"broker-{broker}.state-change.log").open("w") as log:
            log.writelines(line(n * 1000 // each, broker, "orders", n, 0) for n in range(each))


def small_files(directory: Path, files: int) -> None:
    """Write so many logs of some lines each, a thousand in a directory."""
    for number in range(files):
        where = directory / f"{number // 1000:04d}"
        where.mkdir(exist_ok=True)
        lines = (line(number * 7 + n, 1 + n % 3, f"t{number % 50}", n, number) for n in range(LINES_OF_SMALL_FILES))
        (where / f"{number}.state-change.log").write_text("".join(lines))


def measure(directory: Path, commands: Mapping[str, list[str]], what: str) -> None:
    """Print a row for each command and carrier, on the logs in ``directory``."""
    logs = directory / "logs"
    size = sum(path.stat().st_size for path in logs.rglob("*") if path.is_file())
    for name, arguments in commands.items():
        for carrier, place in (("files", str(logs)), ("URIs", logs.as_uri())):
            command = [sys.executable, "-m", "kafkatool", "logs", *arguments, "--logs", place, "--master", MASTER]
            (own := directory / "own").mkdir()
            done = run(command, directory / "output", TMPDIR=str(own))
            shutil.rmtree(own)
            figures = (
                f"{done.wall_s:.0f} | {done.cpu_s:.0f} | {done.driver_mb:.0f} | {done.java_mb:.0f} | {done.task_mb:.0f}"
            )
            print(f"| {what}, {size / 1e6:,.0f} MB | `{name}` | {carrier} | {figures} |", flush=True)


def main() -> None:
    """Parse, make the logs of each case in turn, measure, print."""
    parser = argparse.ArgumentParser(prog="scripts/benchmark extremes", description=__doc__)
    parser.add_argument(
        "--facts", type=int, nargs="*", default=[100_000, 300_000], metavar="N", help="of one partition"
    )
    parser.add_argument("--lines", type=int, nargs="*", default=[1_000_000], metavar="N", help="of one second")
    parser.add_argument("--files", type=int, nargs="*", default=[100_000], metavar="N")
    parser.add_argument("--only", default="", metavar="WORD", help="only the commands with that word, as report")
    parser.add_argument("--directory", type=Path, help="where the logs are made (default: TMPDIR)")
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what a killed JVM leaves is ours to wait for
    merge, rows = ["merge"], ["merge", "--format", "jsonl"]
    timeline, report = ["timeline"], ["report"]
    cases: list[tuple[str, Callable[[Path, int], None], list[int], dict[str, list[str]]]] = [
        ("%s facts of one partition", one_partition, options.facts, {"timeline": timeline, "report": report}),
        (
            "%s lines of one second",
            one_second,
            options.lines,
            {"merge": merge, "--format jsonl": rows, "report": report},
        ),
        ("%s files", small_files, options.files, {"merge": merge, "report": report}),
    ]
    print(f"{machine()} The load average was {os.getloadavg()[0]:.1f} at the start.\n")
    print("| logs | command | carrier | wall s | CPU s | peak MB: kt | JVM | largest task |")
    print("|---|---|---|---:|---:|---:|---:|---:|")
    for title, make, sizes, commands in cases:
        for size in sizes:
            with tempfile.TemporaryDirectory(prefix="kafkatool-extremes-", dir=options.directory) as name:
                (logs := Path(name) / "logs").mkdir()
                make(logs, size)
                wanted = {command: rest for command, rest in commands.items() if options.only in command}
                measure(Path(name), wanted, title % f"{size:,}")


if __name__ == "__main__":
    main()
