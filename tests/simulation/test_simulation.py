"""The controller against everything that can fail, seed by seed; ``scripts/simulate`` runs more of them."""

import os
import random
import subprocess
import sys
import time

import pytest

from tests.paths import ROOT
from tests.simulation.scenario import explain, run

FIXED = range(1, 51)
DRAWN = int(os.environ.get("KAFKATOOL_SIMULATION_RUNS", "0"))
_ENOUGH_S = 20.0  # a machine that is busy with other things makes fewer new runs, at least one


def check(seed: int) -> None:
    outcome = run(seed)
    if outcome.why is not None:
        pytest.fail(explain(seed), pytrace=False)


@pytest.mark.spec(
    "CTL-14",
    "CTL-15",
    "CTL-17",
    "CTL-19",
    "CTL-26",
    "CTL-35",
    "CTL-98",
    "Z-17",
    "Z-38",
    "Z-40",
    "Z-43",
    "Z-46",
    "Z-19",
    "CTL-10",
    "CTL-94",
)
def test_known_seeds_keep_all_invariants_and_come_to_rest() -> None:
    for seed in FIXED:
        check(seed)


@pytest.mark.spec("CTL-14", "CTL-15", "CTL-17", "CTL-19", "CTL-26", "CTL-35", "CTL-98", "Z-38", "Z-40", "Z-43", "Z-46")
def test_new_seeds_keep_all_invariants_and_come_to_rest() -> None:
    if not DRAWN:
        pytest.skip("KAFKATOOL_SIMULATION_RUNS says how many new seeds to try")
    first = random.SystemRandom().randrange(10**9)
    print(f"scripts/simulate --runs {DRAWN} --seed {first}")
    started = time.monotonic()
    for seed in range(first, first + DRAWN):
        check(seed)
        if time.monotonic() - started > _ENOUGH_S:
            break


@pytest.mark.parametrize(
    "seed", [83, 154, 1206, 20144, 30163, 800574, 5002755, 6004564, 7000898, 7002763, 7002835, 7007447, 8006279]
)
def test_what_once_failed_holds(seed: int) -> None:
    check(seed)


def test_a_seed_replays_exactly_whatever_the_hash_seed_and_with_a_trace() -> None:
    script = (
        "from tests.simulation.scenario import run\n"
        "print([(o.digest, o.steps, o.why) for s in range(1, 6) for o in [run(s)]])"
    )
    root = ROOT
    seen = set()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=root, env=environment, capture_output=True, text=True, check=True
        )
        seen.add(done.stdout.strip())
    seen.add(str([(o.digest, o.steps, o.why) for s in range(1, 6) for o in [run(s, tracing=True)]]))
    assert len(seen) == 1
