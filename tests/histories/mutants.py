"""Faults put into the broker's own code, one at a time: what histories have to show of each (HIS-49).

A mutant replaces a piece of one file's text, in a copy of the package that a run of its own uses. A text that is not there
any more is an error, so the table cannot outlive the code it is about.

Where the simulation has the code in question it is asked first, since that costs seconds; else, or if it shows nothing,
a run of real processes with the faults that open the mutant's window.

    python -m tests.histories.mutants --numbers 1,7 --write docs/histories.md
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

from tests.histories.simulated.faults import ASKED_FOR, KINDS
from tests.paths import ROOT

_MOST_SEEDS: Final = 3
_SIMULATED_SEEDS: Final = 20
_SIMULATED_OPERATIONS: Final = 2000
_IN_SIMULATION: Final = frozenset(range(1, 49))
_LIMIT_S: Final = 1500
TABLE: Final = "| # | mutant | where | caught | seeds | what was found |\n|---|---|---|---|---|---|\n"


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
    compacted: bool = False
    favoured: str = ""  # faults of the simulation, if others; one named more often comes more often


_COMMITS_TOO: Final = frozenset({"commit-lost", "commit-backwards"})


def _kinds(text: str) -> frozenset[str]:
    """Return the kinds named; what loses records loses those of committed offsets, too."""
    kinds = frozenset(text.split())
    return kinds | _COMMITS_TOO if "lost-write" in kinds else kinds


MUTANTS: Final[tuple[Mutant, ...]] = (
    Mutant(1, "acks=all is answered at once", "replication/leading/delayed_produce.py",
           "enough, error = partition.acknowledged(result.next_offset, result.leader_epoch)",
           "enough, error = True, ErrorCode.NONE",
           _kinds("lost-write inconsistent-offsets unseen"), faults="starve"),
    Mutant(2, "the high watermark is one too high", "replication/partition/partition.py",
           "        self._set_high_watermark(lowest)\n        return True",
           "        self._set_high_watermark(LogOffset(min(lowest.offset + 1, log.log_end_offset)))\n        return True",
           _kinds("inconsistent-offsets lost-write unseen"), faults="starve"),
    Mutant(3, "a follower's position is what was sent to it", "replication/partition/replica.py",
           "        self.end = start\n", "        self.end = LogOffset(max(start.offset, leader_end))\n",
           _kinds("lost-write inconsistent-offsets unseen"), faults="starve"),
    Mutant(4, "a smaller in-sync set counts before it is written", "replication/partition/in_sync.py",
           "frozenset(self.members).union(self._pending or (), *self._unconfirmed)",
           "frozenset(self._pending or self.members)",
           _kinds("lost-write unseen inconsistent-offsets"), faults="isolate+expire"),
    Mutant(5, "consumers read to the log's end", "replication/partition/partition_reads.py",
           "upper = end.offset if reader.is_follower else stable if reader.committed else high_watermark",
           "upper = end.offset", _kinds("inconsistent-offsets G1a early-read precommitted-read"), faults="starve"),
    Mutant(6, "min.insync.replicas is not heeded", "storage/log_config.py",
           '"min.insync.replicas": _number(1, _INT_MAX)', '"min.insync.replicas": lambda _: 1',
           _kinds("lost-write unseen inconsistent-offsets"), faults="isolate", favoured="alone"),
    Mutant(7, "a new follower does not truncate", "replication/following/follow.py",
           "followed.fetch_offset = partition.truncate(followed.leader_epoch, offset)",
           "followed.fetch_offset = partition.log.log_end_offset",
           _kinds("inconsistent-offsets duplicate lost-write unseen"), faults="freeze"),
    Mutant(8, "a new follower cuts at its high watermark", "replication/following/truncation.py",
           "    if reply_end < 0:\n", "    if True:\n",
           _kinds("lost-write unseen inconsistent-offsets"), faults="kill all,kill", favoured="chase"),
    Mutant(9, "the epochs of a log are forgotten at a restart", "storage/log/leader_epochs.py",
           "        entries = read_entries(path, 2)\n", "        entries: list[tuple[str, str]] = []\n",
           _kinds("lost-write unseen inconsistent-offsets"), faults="stop,freeze", favoured="away,away,away"),
    Mutant(10, "a replica joins the in-sync set wherever its log ends", "replication/partition/partition.py",
           "return end >= self.high_watermark.offset and end >= self.epoch_start", "return True",
           _kinds("lost-write unseen inconsistent-offsets"), faults="freeze,kill"),
    Mutant(11, "a replica joins the in-sync set below the epoch's start", "replication/partition/partition.py",
           "return end >= self.high_watermark.offset and end >= self.epoch_start",
           "return end >= self.high_watermark.offset",
           _kinds("lost-write unseen inconsistent-offsets"), faults="kill", favoured="behind"),
    Mutant(12, "a replica that is not in sync is elected", "controller/deciding/leader_selection.py",
           "        if broker in in_sync:\n            return Choice(broker, in_sync)",
           "        if broker in live:\n            return Choice(broker, (broker, *(b for b in in_sync if b != broker)))",
           _kinds("lost-write unseen inconsistent-offsets"), faults="outrun"),
    Mutant(13, "a deposed leader writes its in-sync set over its successor's", "replication/partition/isr_writer.py",
           "PartitionStateZnode.encode(change.state), change.version)", "PartitionStateZnode.encode(change.state), -1)",
           _kinds("lost-write unseen inconsistent-offsets G0-realtime"),
           faults="isolate+expire", favoured="unheard,sever"),
    Mutant(14, "the leader epoch of a fetch is not looked at", "replication/partition/partition_reads.py",
           "    if current_leader_epoch != _NOT_CHECKED:\n", "    if False:\n",
           _kinds("lost-write unseen inconsistent-offsets"), faults="isolate+expire", favoured="misled"),
    Mutant(15, "followers keep nothing of producers", "storage/log/log_writer.py",
           "                if batches:\n                    self._append(records, batches)\n",
           "                if batches:\n                    self._append(records, batches)\n"
           "                    state.producers.entries.clear()\n",
           _kinds("duplicate nonmonotonic-send int-nonmonotonic-send"), faults="freeze"),
    Mutant(16, "a repeat is appended again", "storage/producers/producer_state.py",
           "        if duplicate := entry.duplicate_of(header):\n            return duplicate",
           "        if entry.duplicate_of(header):\n            return None",
           _kinds("duplicate"), faults="freeze"),
    Mutant(17, "gaps in a producer's sequence are taken", "storage/producers/producer_state.py",
           "        elif sequence != (entry", "        elif False and sequence != (entry",
           _kinds("nonmonotonic-send int-nonmonotonic-send duplicate"), faults="freeze"),
    Mutant(18, "a snapshot of producers beyond the recovered log is used", "storage/producers/producer_reload.py",
           "        if offset_of(path) <= end_offset:\n", "        if True:\n",
           _kinds("lost-write unseen inconsistent-offsets"), faults="tear", favoured="twice,twice,twice"),
    Mutant(19, "compaction drops an idle producer's last batch", "storage/compaction/compaction_round.py",
           "if kept is None and tells_sequence:", "if False:",
           _kinds("duplicate"), faults="", compacted=True, favoured="repeat"),
    Mutant(20, "the checksums of a log's tail are not looked at", "storage/batches/batch_scan.py",
           "        if not check_crc(batch):\n", "        if False:\n",
           _kinds("phantom inconsistent-offsets"), faults="tear,kill", favoured="garbled,garbled,garbled"),
    Mutant(21, "a checkpoint is renamed before its data is synced", "storage/checkpoint.py",
           "        os.fsync(file.fileno())\n    beside",
           "        if path.parent.name != 't-0':\n            os.fsync(file.fileno())\n    beside",
           _kinds("start-backwards lost-write unseen inconsistent-offsets"), faults="power cut", favoured="away,away,away"),
    Mutant(22, "a fetch session takes a consumer's offset for one more", "replication/leading/fetch_session.py",
           "                        told.wanted = wanted\n",
           "                        told.wanted = wanted if self.privileged else __import__('dataclasses').replace(\n"
           "                            wanted, fetch_offset=wanted.fetch_offset + 1)\n",
           _kinds("poll-skip int-poll-skip nonmonotonic-poll stuck"), faults=""),
    Mutant(23, "ends are told before the high watermark is in the epoch", "replication/partition/partition_reads.py",
           "reader.replica_id == CONSUMER and high_watermark < partition.epoch_start", "False",
           _kinds("end-backwards"), faults="kill", favoured="move"),
    Mutant(24, "the log start of deleted records is forgotten at a restart", "storage/log/log_opening.py",
           "    start = max(log_start_offset, segments[0].base_offset if segments else 0)\n",
           "    start = segments[0].base_offset if segments else log_start_offset\n",
           _kinds("start-backwards"), faults="kill all", favoured="alone,delete"),
    Mutant(25, "retention removes what is not replicated", "storage/segment/retention.py",
           "if segment_end > high_watermark or (is_last", "if (is_last",
           _kinds("poll-skip lost-write nonmonotonic-poll"), faults="", favoured="early,early,early"),
    Mutant(26, "compaction keeps the older values of a key", "storage/compaction/compaction_round.py",
           "return offset >= self._offsets.newest(key) and", "return offset != self._offsets.newest(key) and",
           _kinds("compacted-lost"), faults="", compacted=True),
    Mutant(27, "compaction drops a tombstone at once", "storage/compaction/compaction_round.py",
           "return clean[-1].modified_ms - self._log.config.delete_retention_ms if clean else 0.0",
           "return float('inf')",
           _kinds("tombstone-skip"), faults="", compacted=True),
    Mutant(28, "a commit's generation is not looked at", "groups/group.py",
           "        if generation is not None and generation != self.generation:\n", "        if False:\n",
           _kinds("zombie-commit commit-backwards commit-lost"), via="subscribe", faults="freeze"),
    Mutant(29, "a group's generation does not rise", "groups/group.py",
           "        self.generation += 1\n", "        self.generation = max(self.generation, 1)\n",
           _kinds("owner-overlap"), via="subscribe", faults=""),
    Mutant(30, "an assignment is told before it is stored", "groups/group.py",
           "            effects.append(partial(self.store, StoreGroup(self.to_value(chosen), done)))\n",
           "            effects.append(partial(self.store, StoreGroup(self.to_value(chosen), lambda *_: [])))\n"
           "            effects += done(ErrorCode.NONE, now_ms)\n",
           _kinds("owner-overlap zombie-commit commit-lost"), via="subscribe", faults="starve"),
    Mutant(31, "commits are acknowledged by the leader alone", "groups/writer.py",
           "acks=self._config.offsets_commit_required_acks if acks is None else acks,", "acks=1,",
           _kinds("commit-lost commit-backwards"), via="subscribe", faults="starve"),
    Mutant(32, "of two commits the earlier one wins when they are loaded", "groups/loader.py",
           "            offsets.apply(partition, commit)",
           "            if partition not in offsets.in_force:\n                offsets.apply(partition, commit)",
           _kinds("commit-lost commit-backwards"), via="subscribe"),
    Mutant(33, "a group that is being loaded has no offsets", "groups/owned.py",
           "        error = self.refusal(group)\n        if error is not ErrorCode.NONE:\n",
           "        error = self.refusal(group)\n"
           "        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:\n            return ErrorCode.NONE, None\n"
           "        if error is not ErrorCode.NONE:\n",
           _kinds("commit-lost commit-backwards"), via="subscribe"),
    Mutant(34, "a commit is told before it is replicated", "groups/coordinator.py",
           "            begun = owned.group.offsets.begin(stored) if error is ErrorCode.NONE else 0\n",
           "            begun = 0\n"
           "            if error is ErrorCode.NONE:\n"
           "                owned.group.offsets.in_force.update({p: Commit(v, -1) for p, v in stored.items()})\n",
           _kinds("commit-backwards resume-skip"), via="subscribe", faults="starve", favoured="starve,starve,starve,starve"),
    Mutant(35, "read_committed reads to the high watermark", "replication/partition/partition_reads.py",
           "upper = end.offset if reader.is_follower else stable if reader.committed else high_watermark",
           "upper = end.offset if reader.is_follower else high_watermark",
           _kinds("early-read precommitted-read G1a"), guarantee="transactional", faults=""),
    Mutant(36, "aborted ranges are not told to readers", "replication/partition/partition_reads.py",
           "for one in log.aborted_transactions(found, upper)", "for one in ()",
           _kinds("G1a"), guarantee="transactional", faults=""),
    Mutant(37, "aborted ranges stay when a log is cut", "storage/segment/segment.py",
           "            cut.transaction_index.truncate(offset)\n", "",
           _kinds("lost-write unseen torn-transaction poll-skip int-poll-skip"), guarantee="transactional", faults="freeze",
           favoured="aborted,aborted,aborted"),
    Mutant(38, "a marker whose partition has moved counts as written", "transactions/endings.py",
           "            if code in _DONE:\n",
           "            if code in _DONE or code == ErrorCode.NOT_LEADER_FOR_PARTITION:\n",
           _kinds("stuck G1a torn-transaction"), guarantee="transactional"),
    Mutant(39, "a new coordinator does not finish what was prepared", "transactions/coordinator.py",
           "            if value is not None and value.state in PREPARED:", "            if False:",
           _kinds("stuck torn-transaction"), guarantee="transactional"),
    Mutant(40, "markers go out before the decision is stored", "transactions/coordinator.py",
           "                self._store(entry, outcome, lambda code: self._answer(request, code, outcome.to))\n",
           "                if outcome.to.state in PREPARED:\n                    self._send_markers(entry, outcome.to)\n"
           "                self._store(entry, outcome, lambda code: self._answer(request, code, outcome.to))\n",
           _kinds("torn-transaction G1a"), guarantee="transactional", faults="starve"),
    Mutant(41, "a producer that takes over gets no higher epoch", "transactions/decisions.py",
           "known.moved(_S.EMPTY, epoch=known.epoch + 1,", "known.moved(_S.EMPTY, epoch=known.epoch,",
           _kinds("G1a torn-transaction duplicate lost-write"), guarantee="transactional", faults=""),
    Mutant(42, "offsets of a transaction count before its marker", "groups/offsets.py",
           "            elif producer_id is None:\n                self.apply(partition, commit)",
           "            elif True:\n                self.apply(partition, commit)",
           _kinds("commit-backwards eos-loss eos-duplicate resume-skip torn-transaction"),
           guarantee="transactional", via="subscribe"),
    Mutant(43, "offsets of open transactions are not loaded", "groups/loader.py",
           "            offsets.transactional.setdefault(producer_id, {})[partition] = commit\n", "            pass\n",
           _kinds("eos-duplicate commit-lost commit-backwards torn-transaction"),
           guarantee="transactional", via="subscribe"),
    Mutant(44, "an EndTxn of an earlier epoch ends the transaction under way", "transactions/decisions.py",
           "    if refused := _stranger(known, identity):\n        return refused\n"
           "    assert known is not None\n    if busy or known.state in PREPARED or",
           "    if (refused := _stranger(known, identity)) not in (None, _FENCED):\n        return refused\n"
           "    assert known is not None\n    if busy or known.state in PREPARED or",
           _kinds("G1a torn-transaction lost-write early-read"), guarantee="transactional", faults="freeze"),
    Mutant(45, "whoever asks late may open a transaction", "storage/producers/producer_state.py",
           "        if verification is UNVERIFIED:\n", "        if True:\n",
           _kinds("stuck G1a torn-transaction"), guarantee="transactional", faults="freeze"),
    Mutant(46, "what was aborted is not synced with the log", "storage/segment/segment.py",
           "has_aborted = sync_aborted(self.transaction_index_path)", "has_aborted = False",
           _kinds("G1a torn-transaction lost-write"), guarantee="transactional", faults="power cut", favoured="power"),
    Mutant(47, "what was aborted is not synced where a start finds it again", "storage/log/log_opening.py",
           "if sync_aborted(segment.transaction_index_path):", "if False:",
           _kinds("G1a torn-transaction lost-write"), guarantee="transactional", faults="power cut", favoured="power,kill"),
    Mutant(48, "a marker that comes late is written", "transactions/late_markers.py",
           "return self._newest.get(sender.client_id, sender.accepted_ms) > sender.accepted_ms", "return False",
           _kinds("G1a torn-transaction eos-duplicate lost-write"), guarantee="transactional", faults="freeze"),
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
    command += ["--losses", "never", "--cleanup", "compact" if mutant.compacted else "delete"]
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


def simulate(root: Path, mutant: Mutant) -> tuple[int, set[str]]:
    """Play the mutated package's histories in the simulation until it shows what it has to, its own faults favoured.

    Return the last seed that was played, and all that was found.
    """
    found: set[str] = set()
    seed = 0
    while seed < _SIMULATED_SEEDS:
        done = _simulated(root, mutant, seed + 1, _SIMULATED_SEEDS)
        found |= found_in(done.stdout)
        shown = re.search(r"^seed (\d+):$", done.stdout, re.MULTILINE)
        if shown is None:
            print(done.stdout + done.stderr[-2000:], file=sys.stderr)
        seed = int(shown[1]) if shown else _SIMULATED_SEEDS
        if found & mutant.shows:
            break
    return seed, found


def found_without(mutant: Mutant, seeds: int) -> set[str]:
    """Return what the broker as it is shows in those of the mutant's seeds, under the same faults: it has to be nothing."""
    with tempfile.TemporaryDirectory(prefix="no-mutant-") as kept:
        done = _simulated(ROOT, mutant, 1, seeds, kept)
    assert "nothing that is not allowed" in done.stdout or found_in(done.stdout), done.stdout + done.stderr[-2000:]
    return found_in(done.stdout)


def _simulated(
    root: Path, mutant: Mutant, first: int, last: int, kept: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Play these seeds of the package below ``root`` with the mutant's faults, until one shows something."""
    favoured = [kind for kind in re.split(r"[,+ ]", mutant.favoured or mutant.faults) if kind in (*KINDS, *ASKED_FOR)]
    faults = ",".join([*KINDS, *favoured * len(KINDS)])
    command = [sys.executable, "-m", "tests.histories.simulated", "--no-shrink", "--seeds", f"{first}-{last}"]
    command += ["--operations", str(_SIMULATED_OPERATIONS), "--faults", faults]
    command += ["--compacted"] * mutant.compacted
    environment = {**os.environ, "PYTHONPATH": str(root), "TMPDIR": kept or str(root)}  # what is kept of it goes, too
    return subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, timeout=_LIMIT_S, check=False
    )


def found_in(said: str) -> set[str]:
    """Return the kinds that are not allowed."""
    return set(re.findall(r"^ANOMALY: (\S+) ", said, re.MULTILINE))


class Outcome(NamedTuple):
    """``where``: the simulation, or the faults of real processes; ``seeds``: how many it took, or all that were tried."""

    where: str
    seeds: int
    found: set[str]

    def is_caught(self, mutant: Mutant) -> bool:
        """Tell whether what was found is what the mutant has to show; another anomaly is told but does not count."""
        return bool(self.found & mutant.shows)


def row(mutant: Mutant, outcome: Outcome) -> str:
    """Return the table's row of docs/histories.md."""
    told = ", ".join(sorted(outcome.found)) or "nothing"
    caught = "yes" if outcome.is_caught(mutant) else "**no**"
    return f"| {mutant.number} | {mutant.name} | {outcome.where} | {caught} | {outcome.seeds} | {told} |"


def written(page: str, new: Sequence[str]) -> str:
    """Return the page with these rows in its table, in the order of their numbers; the others stay."""
    before, header, after = page.partition(TABLE)
    lines = after.splitlines(keepends=True)
    count = next((n for n, line in enumerate(lines) if not line.startswith("|")), len(lines))
    rows = {_number_of(line): line for line in (*lines[:count], *(f"{one}\n" for one in new))}
    return before + header + "".join(rows[n] for n in sorted(rows)) + "".join(lines[count:])


def _number_of(line: str) -> int:
    return int(line.split("|")[1])


def hunt(mutant: Mutant, operations: int | None) -> Outcome:
    """Try seed after seed until the mutant shows itself, or it is enough."""
    outcome = Outcome("simulated", 0, set())
    with planted(mutant) as root:
        if mutant.number in _IN_SIMULATION:
            outcome = Outcome("simulated", *simulate(root, mutant))
            if outcome.is_caught(mutant) or operations == 0:
                return outcome
        for seed in range(1, _MOST_SEEDS + 1):
            try:
                said = run(root, mutant, seed, operations or mutant.operations)
            except subprocess.TimeoutExpired as e:
                said = f"after {e.timeout} s it had not ended"
            outcome = Outcome(mutant.faults or "none", seed, found_in(said))
            if outcome.is_caught(mutant):
                break
            print(f"{mutant.number}, seed {seed}: {said}", file=sys.stderr)
    return outcome


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/history-mutants", description=__doc__)
    parser.add_argument("--numbers", help="only these rows, as 1,7")
    parser.add_argument("--operations", type=int, help="of each run, instead of the row's own; 0: simulate alone")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the rows into that page's table")
    given = parser.parse_args(arguments)
    wanted = {int(n) for n in given.numbers.split(",")} if given.numbers else {m.number for m in MUTANTS}
    missed = 0
    print(TABLE, end="", flush=True)
    for mutant in MUTANTS:
        if mutant.number in wanted and (given.operations != 0 or mutant.number in _IN_SIMULATION):
            outcome = hunt(mutant, given.operations)
            missed += not outcome.is_caught(mutant)
            print(row(mutant, outcome), flush=True)
            if given.write:
                given.write.write_text(written(given.write.read_text(), [row(mutant, outcome)]))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
