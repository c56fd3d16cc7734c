"""Long runs by hand: ``scripts/simulate --runs 10000 --seed 1``."""

import argparse
import random
import sys
import time

from tests.simulation.scenario import explain, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/simulate", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="how many seeds (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="the first seed; the others follow it (default: drawn, and printed)")
    parser.add_argument("--trace", action="store_true", help="print what happened, also where nothing is wrong")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failing seed")
    options = parser.parse_args()
    first = random.randrange(10**9) if options.seed is None else options.seed
    print(f"seeds {first} to {first + options.runs - 1}")
    started, cpu, steps, failed = time.perf_counter(), time.process_time(), 0, []
    for seed in range(first, first + options.runs):
        outcome = run(seed)
        steps += outcome.steps
        if outcome.why is not None:
            failed.append(seed)
            print(f"seed {seed}: {outcome.why}", flush=True)
        if options.trace or (outcome.why is not None and not options.keep_going):
            print(explain(seed))
        if failed and not options.keep_going:
            break
    done = seed - first + 1
    cpu, wall = time.process_time() - cpu, time.perf_counter() - started
    print(f"{done} runs, {len(failed)} failed; {done / cpu * 60:,.0f} runs a minute of CPU time, "
          f"{steps / done:,.0f} events a run, {wall:.1f} s")  # fmt: skip
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
