"""A run of real processes that was kept since it failed, made smaller: scripts/history-shrink DIRECTORY

Each candidate is played up to three times, and fails if it shows one of the same kinds. Ends with 0: nothing more can be
left out; 1: time was over, or it did not show again; 2: there is nothing to shrink. The smallest is kept there, as shrunk.
"""

import argparse
import sys
import time
from pathlib import Path

from tests.histories.kept.keeping import SCHEDULE, VERDICT
from tests.histories.kept.plan import read, told
from tests.histories.kept.player import SHRUNK, Player
from tests.histories.kept.shrinking import REPEATS, Shrinking
from tests.histories.mutants import found_in


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/history-shrink", description=__doc__)
    parser.add_argument("directory", type=Path, help="of a run that was kept")
    parser.add_argument("--minutes", type=float, default=60, help="end after so long with what was found (%(default)g)")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="runs of a candidate (%(default)s)")
    given = parser.parse_args()
    verdict, schedule = given.directory / VERDICT, given.directory / SCHEDULE
    kinds = found_in(verdict.read_text()) if verdict.exists() and schedule.exists() else set()
    if not kinds:
        print(f"{given.directory} has no run that showed what is not allowed", file=sys.stderr)
        return 2
    print(f"looking for {' or '.join(sorted(kinds))}", flush=True)
    player = Player(given.directory, kinds, time.monotonic() + given.minutes * 60)
    shrinking = Shrinking(read(schedule), kinds, player, lambda line: print(line, flush=True), given.repeats)
    try:
        is_least = shrinking.shrink()
    finally:
        player.close()
    print("the smallest that showed it:", *told(shrinking.best), sep="\n")
    if (given.directory / SHRUNK).exists():
        print(f"it is kept in {given.directory / SHRUNK}")
    return 0 if is_least else 1


if __name__ == "__main__":
    sys.exit(main())
