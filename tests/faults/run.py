"""Faults at random under load, for as long as wanted; afterwards nothing acknowledged may be lost, moved or altered.

Run by hand: scripts/fault-run --minutes 15 --seed 7
"""

import argparse
import itertools
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.faults.schedule import BEFORE_THEM_IN_SYNC, Step, steps, steps_of
from tests.faults.world import BROKERS, FLUSHED, World
from tests.integration.load import Load, await_in_sync, check_records, check_replicas_equal, make_topic
from tests.waiting import eventually

ONCE, REPEATED = "once", "repeated"  # what an idempotent producer writes, and one that is not
PARTITIONS = 3
_OF_A_FULL_DISK = re.compile(r"CRITICAL Disk error while replicating data for .*\n(?:(?!\[\d{4}-).*\n)+")
"""A follower's line with its stack, as Kafka writes it (BRK-72)."""
_PATIENCE_S = 120
_RECORDS_PER_STEP = 3  # 600 records a second for each of the two


@contextmanager
def _loaded(world: World) -> Iterator[tuple[Load, Load]]:
    bootstrap = world.cluster.bootstrap
    with ExitStack() as running:  # each is stopped, whatever the other's end is
        once = Load(bootstrap, ONCE, idempotent=True, records_per_step=_RECORDS_PER_STEP)
        running.callback(once.stop)
        repeated = Load(bootstrap, REPEATED, records_per_step=_RECORDS_PER_STEP)
        running.callback(repeated.stop)
        yield once, repeated


def play(world: World, plan: Iterator[Step], until: float | None = None) -> None:
    """Play the plan to its end, or until that ``time.monotonic()``; then look at everything."""
    for topic in (ONCE, REPEATED):
        make_topic(world.zk, topic, PARTITIONS)
    await_in_sync(world.zk)
    started = time.monotonic()
    with _loaded(world) as loads:
        for load in loads:
            load.goes_on(100)
        for number, step in enumerate(plan):
            if until is not None and time.monotonic() > until:
                break
            print(f"[{time.monotonic() - started:6.1f} s] step {number}: {step}", flush=True)
            _play_step(world, step, loads)
        await_in_sync(world.zk, seconds=_PATIENCE_S)
        for load in loads:
            load.goes_on(100, _PATIENCE_S)
    await_in_sync(world.zk, seconds=_PATIENCE_S)
    once, repeated = loads
    print(f"{len(once.acknowledged)} and {len(repeated.acknowledged)} records acknowledged; now they are read")
    check_records(world.cluster, ONCE, PARTITIONS, once, once=True)
    check_records(world.cluster, REPEATED, PARTITIONS, repeated)
    check_replicas_equal(world.cluster)
    check_no_tracebacks(world)
    for note in sorted(set(world.notes)):
        print(note)


def _play_step(world: World, step: Step, loads: tuple[Load, Load]) -> None:
    if any(f.kind in BEFORE_THEM_IN_SYNC for f in step.faults):
        await_in_sync(world.zk, seconds=_PATIENCE_S)
    world.begin(step)
    over = time.monotonic() + step.seconds
    eventually(lambda: time.monotonic() > over, "time to pass", step.seconds + 5)
    world.end(step)
    if step.settle:
        await_in_sync(world.zk, seconds=_PATIENCE_S)
        for load in loads:
            load.goes_on(20, _PATIENCE_S)


def check_no_tracebacks(world: World) -> None:
    """Faults are expected: a broker tells of them in a line, not with a stack, but for the disk that a step fills."""
    for broker_id in BROKERS:
        output = world.cluster.files.output(broker_id)
        _, found, text = _OF_A_FULL_DISK.sub("", output.read_text()).partition("Traceback")
        assert not found, f"{output}: {text[:3000]}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/fault-run", description=__doc__)
    parser.add_argument("--minutes", type=float, default=15, help="how long faults go on (%(default)s)")
    parser.add_argument("--steps", type=int, help="end after that many steps, too")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="the same seed, the same schedule")
    parser.add_argument("--faults", metavar="KINDS", help="faults of these kinds alone, as 'power cut,isolate+expire'")
    parser.add_argument(
        "--flushed", action="store_true", help="each batch is synced, so that 'power cut all' spares it"
    )
    given = parser.parse_args()
    print(f"seed {given.seed}")
    directory = Path(tempfile.mkdtemp(prefix="fault-run-"))
    world = World(directory, FLUSHED if given.flushed else {})
    kinds = given.faults.split(",") if given.faults else ()
    drawn = steps_of(given.seed, BROKERS, kinds) if kinds else steps(given.seed, BROKERS)
    world.up()
    try:
        play(world, itertools.islice(drawn, given.steps), time.monotonic() + given.minutes * 60)
    except BaseException:
        print(f"seed {given.seed} failed; the logs are kept in {directory}", file=sys.stderr)
        for broker_id in BROKERS:  # the data goes with the small disks
            shutil.copytree(
                world.cluster.files.data(broker_id),
                directory / f"data-{broker_id}",
                ignore=_fillings,
                dirs_exist_ok=True,
            )
        world.down()
        raise
    world.down()
    shutil.rmtree(directory)
    print("all is well")
    return 0


def _fillings(_: str, names: list[str]) -> list[str]:
    return [name for name in names if name.startswith("filling-")]


if __name__ == "__main__":
    sys.exit(main())
