"""Faults put into the broker's own code, one at a time: what the histories of a run have to show (HIS-49).

A mutant replaces a piece of one file's text, in a copy of the package that a run of its own uses. A text that is not there
any more is an error, so the table cannot outlive the code it is about.

    python -m tests.histories.mutants --numbers 1,7 --operations 3000
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.paths import ROOT

_MOST_SEEDS: Final = 3
_LIMIT_S: Final = 1500


class Mutant(NamedTuple):
    """``file`` below kafkatool/broker; ``shows``: one of these must be found; the rest says which run opens its window."""

    number: int
    name: str
    file: str
    old: str
    new: str
    shows: frozenset[str]
    guarantee: str = "idempotent"
    via: str = "assign"
    faults: str = "kill"
    operations: int = 2500


def _kinds(text: str) -> frozenset[str]:
    return frozenset(text.split())


MUTANTS: Final[tuple[Mutant, ...]] = (
    Mutant(1, "acks=all is answered at once", "replication/leading/delayed_produce.py",
           "enough, error = partition.acknowledged(result.next_offset)", "enough, error = True, ErrorCode.NONE",
           _kinds("lost-write inconsistent-offsets unseen"), faults="starve"),
    Mutant(3, "a follower's position is what was sent to it", "replication/partition/replica.py",
           "        self.end = start\n", "        self.end = LogOffset(max(start.offset, leader_end))\n",
           _kinds("lost-write inconsistent-offsets unseen"), faults="starve"),
    Mutant(5, "consumers read to the log's end", "replication/partition/partition_reads.py",
           "upper = end.offset if reader.is_follower else stable if reader.committed else high_watermark",
           "upper = end.offset", _kinds("inconsistent-offsets G1a early-read precommitted-read"), faults="starve"),
    Mutant(7, "a new follower does not truncate", "replication/following/follow.py",
           "followed.fetch_offset = partition.truncate(followed.leader_epoch, offset)",
           "followed.fetch_offset = partition.log.log_end_offset",
           _kinds("inconsistent-offsets duplicate lost-write unseen"), faults="freeze"),
    Mutant(12, "a replica that is not in sync is elected", "controller/deciding/leader_selection.py",
           "        if broker in in_sync:\n            return Choice(broker, in_sync)",
           "        if broker in live:\n            return Choice(broker, (broker, *(b for b in in_sync if b != broker)))",
           _kinds("lost-write unseen inconsistent-offsets"), faults="outrun"),
    Mutant(16, "a repeat is appended again", "storage/producers/producer_state.py",
           "        if duplicate := entry.duplicate_of(header):\n            return duplicate",
           "        if entry.duplicate_of(header):\n            return None",
           _kinds("duplicate"), faults="freeze"),
    Mutant(17, "gaps in a producer's sequence are taken", "storage/producers/producer_state.py",
           "        elif sequence != (entry", "        elif False and sequence != (entry",
           _kinds("nonmonotonic-send int-nonmonotonic-send duplicate"), faults="freeze"),
    Mutant(31, "commits are acknowledged by the leader alone", "groups/writer.py",
           "acks=self._config.offsets_commit_required_acks if acks is None else acks,", "acks=1,",
           _kinds("commit-lost commit-backwards"), via="subscribe", faults="starve"),
    Mutant(32, "of two commits the earlier one wins when they are loaded", "groups/loader.py",
           "            offsets.apply(partition, commit)",
           "            if partition not in offsets.in_force:\n                offsets.apply(partition, commit)",
           _kinds("commit-lost commit-backwards"), via="subscribe"),
    Mutant(35, "read_committed reads to the high watermark", "replication/partition/partition_reads.py",
           "upper = end.offset if reader.is_follower else stable if reader.committed else high_watermark",
           "upper = end.offset if reader.is_follower else high_watermark",
           _kinds("early-read precommitted-read G1a"), guarantee="transactional", faults=""),
    Mutant(36, "aborted ranges are not told to readers", "replication/partition/partition_reads.py",
           "for one in log.aborted_transactions(found, upper)", "for one in ()",
           _kinds("G1a"), guarantee="transactional", faults=""),
    Mutant(39, "a new coordinator does not finish what was prepared", "transactions/coordinator.py",
           "            if value is not None and value.state in PREPARED:", "            if False:",
           _kinds("stuck torn-transaction"), guarantee="transactional"),
    Mutant(42, "offsets of a transaction count before its marker", "groups/offsets.py",
           "            elif producer_id is None:\n                self.apply(partition, commit)",
           "            elif True:\n                self.apply(partition, commit)",
           _kinds("commit-backwards eos-loss eos-duplicate resume-skip torn-transaction"),
           guarantee="transactional", via="subscribe"),
)  # fmt: skip


class StaleMutantError(Exception):
    """The text to be replaced is not in the file any more, or is there twice."""


def mutated(mutant: Mutant) -> str:
    """Return the file's text with the mutant in it."""
    text = (ROOT / "kafkatool" / "broker" / mutant.file).read_text()
    if text.count(mutant.old) != 1:
        raise StaleMutantError(f"{mutant.number}: {mutant.file} has not {mutant.old!r} once")
    return text.replace(mutant.old, mutant.new)


@contextmanager
def planted(mutant: Mutant) -> Iterator[Path]:
    """Give a directory from which the mutated package is run instead."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        root = Path(name)
        shutil.copytree(ROOT / "kafkatool", root / "kafkatool", ignore=shutil.ignore_patterns("__pycache__"))
        (root / "tests").symlink_to(ROOT / "tests")
        (root / "kafkatool" / "broker" / mutant.file).write_text(mutated(mutant))
        yield root


def run(root: Path, mutant: Mutant, seed: int, operations: int) -> str:
    """Return what a run of the mutated package said."""
    command = [sys.executable, "-m", "tests.histories.run", "--seed", str(seed), "--operations", str(operations)]
    command += ["--guarantee", mutant.guarantee, "--via", mutant.via, "--isolation", "read_committed", "--pause", "2"]
    command += [
        "--keep",
        str(root / f"run-{seed}"),
        *(["--faults", mutant.faults, "--least", "4"] if mutant.faults else ["--steps", "0"]),
    ]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, timeout=_LIMIT_S, check=False
    )
    return done.stdout + done.stderr[-2000:]


def found_in(said: str) -> set[str]:
    """Return the kinds that are not allowed."""
    return set(re.findall(r"^ANOMALY: (\S+) ", said, re.MULTILINE))


def row(mutant: Mutant, seeds: int, found: set[str]) -> str:
    """Return the table's row of docs/histories.md."""
    told = ", ".join(sorted(found)) or "nothing"
    caught = "yes" if found & mutant.shows else "**no**"
    return f"| {mutant.number} | {mutant.name} | {mutant.faults or 'none'} | {caught} | {seeds} | {told} |"


def hunt(mutant: Mutant, operations: int | None) -> tuple[int, set[str]]:
    """Run seed after seed until the mutant shows itself; return how many it took, and what was found last."""
    found: set[str] = set()
    with planted(mutant) as root:
        for seed in range(1, _MOST_SEEDS + 1):
            said = run(root, mutant, seed, operations or mutant.operations)
            found = found_in(said)
            if not found:
                print(said, file=sys.stderr)
            if found & mutant.shows:
                return seed, found
    return _MOST_SEEDS, found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/history-mutants", description=__doc__)
    parser.add_argument("--numbers", help="only these rows, as 1,7")
    parser.add_argument("--operations", type=int, help="of each run, instead of the row's own")
    given = parser.parse_args(arguments)
    wanted = {int(n) for n in given.numbers.split(",")} if given.numbers else {m.number for m in MUTANTS}
    missed = 0
    print("| # | mutant | fault | caught | seeds | what was found |\n|---|---|---|---|---|---|", flush=True)
    for mutant in MUTANTS:
        if mutant.number in wanted:
            seeds, found = hunt(mutant, given.operations)
            missed += not found & mutant.shows
            print(row(mutant, seeds, found), flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
