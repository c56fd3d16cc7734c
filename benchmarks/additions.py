"""What one more partition costs the coordinator when a transaction has thousands already (TXN-37).

One coordinator in this process, on a real log: from the request, decoded, to its answer. Nothing is compared with anything.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.report import machine
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.broker.transactions.stage import stage

TOPICS = 10


def place(number: int) -> TopicPartition:
    """Return one of the partitions, which are of several topics."""
    return TopicPartition(f"topic-{number % TOPICS}", number)


def took_ms(do: Callable[[], object]) -> float:
    """Do it, and return how long that took."""
    started = time.perf_counter()
    done = do()
    ended = time.perf_counter()
    assert done is ErrorCode.NONE, done
    return (ended - started) * 1000


def measure(directory: Path, partitions: int, more: int) -> tuple[float, list[float]]:
    """Return how long it took to add so many at once, and then each of so many more."""
    with pytest.MonkeyPatch.context() as patch, stage(directory, patch) as on:
        _, identity = on.init("id")
        many = [place(number) for number in range(partitions)]
        at_once = took_ms(lambda: on.add("id", identity, *many))
        each = [
            took_ms(lambda n=number: on.add("id", identity, place(n)))  # type: ignore[misc]
            for number in range(partitions, partitions + more)
        ]
        return at_once, each


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="scripts/benchmark additions", description=main.__doc__)
    parser.add_argument("--partitions", nargs="+", type=int, default=[100, 1000, 10_000], metavar="N")
    parser.add_argument("--more", type=int, default=200, metavar="N", help="additions of one partition (default 200)")
    options = parser.parse_args()
    print(f"{machine()}\n")
    print("| partitions | added at once, ms | one more, ms: median | longest |")
    print("|---:|---:|---:|---:|")
    for partitions in options.partitions:
        with tempfile.TemporaryDirectory(prefix="kafkatool-additions-") as name:
            at_once, each = measure(Path(name) / "logs", partitions, options.more)
        print(f"| {partitions:,} | {at_once:.1f} | {statistics.median(each):.1f} | {max(each):.1f} |")


if __name__ == "__main__":
    main()
