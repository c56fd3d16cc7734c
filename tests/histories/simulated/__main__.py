"""Histories of the simulated cluster, judged: scripts/history-simulate --seeds 1-100 --jobs 2

A line for each seed. Ends with 0: in none is anything that is not allowed; 1: there is, and the first such schedule is
played once more for a directory that is kept, with its history, one page and the brokers' log, and shrunk; 3: a history
could not be judged.
"""

import argparse
import logging
import shutil
import sys
import tempfile
import time
import traceback
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Final, NamedTuple

from tests.histories.analyser.verdict import TOO_LITTLE
from tests.histories.simulated.faults import KINDS
from tests.histories.simulated.kept import keep, told
from tests.histories.simulated.ruled.troubles import OWN_ASKED_FOR, OWN_KINDS
from tests.histories.simulated.shrinking import shrunk
from tests.histories.simulated.simulation import PROCESSES, Schedule, StalledError, drawn, run

_KEPT: Final = "history-simulate-failed-"


class Judged(NamedTuple):
    """What became of one schedule. ``unjudged``: why nothing can be said, if so; ``lines``: the verdict, if it is one."""

    seed: int
    unallowed: frozenset[str]
    unjudged: str | None
    lines: tuple[str, ...]
    cpu_s: float

    def __str__(self) -> str:
        if self.unallowed:
            return "\n".join((f"seed {self.seed}:", *self.lines))
        said = f"not judged: {self.unjudged}" if self.unjudged else f"clean; {self.lines[0]}"
        return f"seed {self.seed}: {said} ({self.cpu_s:.1f} s of CPU)"


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/history-simulate", description=__doc__)
    parser.add_argument("--seeds", default="1-20", help="as 7 or 1-100 (%(default)s)")
    parser.add_argument("--operations", type=int, default=2000, help="of each history (%(default)s)")
    parser.add_argument(
        "--controller", choices=("written", "real"), default="written", help="who rules the brokers (%(default)s)"
    )
    own = ",".join((*OWN_KINDS, *OWN_ASKED_FOR))
    kinds_told = f"kinds of faults to draw from (all of {','.join(KINDS)}; under a real controller also {own})"
    parser.add_argument("--faults", help=kinds_told)
    parser.add_argument("--compacted", action="store_true", help="keys are compacted")
    parser.add_argument("--jobs", type=int, default=1, help="histories at a time (%(default)s)")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="of each history (%(default)s)")
    parser.add_argument("--no-shrink", action="store_true", help="leave the schedule that fails as it is")
    parser.add_argument("--keep", type=Path, help="where to leave the history of each seed")
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    kinds = given.faults.split(",") if given.faults else None
    seeds = range(int(first), int(last or first) + 1)
    schedules = [
        drawn(
            seed,
            given.operations,
            kinds,
            compacted=given.compacted,
            processes=given.processes,
            is_ruled=given.controller == "real",
        )
        for seed in seeds
    ]
    unjudged, cpu_s = 0, 0.0
    with tempfile.TemporaryDirectory(prefix="history-simulate-") as name:
        directory = given.keep or Path(name)
        with ProcessPoolExecutor(given.jobs) as pool:
            pending = {
                pool.submit(_judged_in, directory, schedule, keep=given.keep is not None): schedule
                for schedule in schedules
            }
            for done in as_completed(pending):
                found = _outcome(done, pending[done].seed)
                print(found, flush=True)
                unjudged += found.unjudged is not None
                cpu_s += found.cpu_s
                if found.unallowed:
                    pool.shutdown(cancel_futures=True)
                    kept = given.keep / str(found.seed) if given.keep else Path(tempfile.mkdtemp(prefix=_KEPT))
                    keep(kept, pending[done])
                    print(f"seed {found.seed}: history, timeline.html and brokers.log are kept in {kept}", flush=True)
                    if not given.no_shrink:
                        least = _shrunk(Path(name) / "shrinking", pending[done], found.unallowed)
                        print(*keep(kept / "shrunk", least).lines(), sep="\n", flush=True)
                    return 1
    print(f"{len(schedules)} histories, nothing that is not allowed, {unjudged} not judged; {cpu_s:.1f} s of CPU")
    return TOO_LITTLE if unjudged else 0


def _outcome(done: Future[Judged], seed: int) -> Judged:
    """Return how it was judged. Of a history that fell over nothing can be said; the others go on."""
    if error := done.exception():
        return Judged(seed, frozenset(), "".join(traceback.format_exception(error)), (), 0.0)
    return done.result()


def _judged_in(directory: Path, schedule: Schedule, *, keep: bool) -> Judged:
    own = directory / str(schedule.seed)
    found = judged(own, schedule)
    if not keep:
        shutil.rmtree(own, ignore_errors=True)
    return found


def judged(directory: Path, schedule: Schedule) -> Judged:
    """Play a schedule and judge it."""
    logging.disable()  # what brokers say under faults is no news
    begun = time.process_time()
    try:
        verdict = run(directory, schedule)
    except StalledError as e:
        return Judged(schedule.seed, frozenset(), str(e), (), time.process_time() - begun)
    unallowed = frozenset(anomaly.kind for anomaly in verdict.unallowed)
    return Judged(schedule.seed, unallowed, verdict.too_little, tuple(verdict.lines()), time.process_time() - begun)


def _shrunk(directory: Path, schedule: Schedule, kinds: frozenset[str]) -> Schedule:
    """Find the least of a schedule that shows one of these kinds, and print it."""
    tried = 0

    def still_fails(candidate: Schedule) -> bool:
        nonlocal tried
        tried += 1
        return bool(kinds & judged(directory, candidate).unallowed)

    least = shrunk(schedule, still_fails)
    print(f"shrunk in {tried} runs:", *told(least), sep="\n", flush=True)
    return least


if __name__ == "__main__":
    sys.exit(main())
