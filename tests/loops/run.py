"""Loops of client libraries while brokers and loops are killed, stopped and cut off at random, for as long as wanted.

Each loop copies a topic in transactions that have the offsets of its group: afterwards each record that came has gone out
once, in its order, and the committed offsets are the ends. Run by hand: scripts/loop-run --minutes 10 --seed 7
"""

import argparse
import itertools
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from tests.faults.proxy import Proxy
from tests.faults.schedule import Step
from tests.histories import nemesis
from tests.histories.nemesis import OurStage, Stage
from tests.loops.harm import KINDS, WITHOUT_DOORS, Harmer, harms, speaker_of
from tests.loops.loop import BY_GROUP, BY_PARTITION, PARTITIONS, Loop, fed, loops_of
from tests.loops.mixed_stage import MixedStage
from tests.waiting import eventually

CLIENTS: Final = (*BY_GROUP, *BY_PARTITION)
OPTIONS: Final = {
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
}
_MEMBERS: Final = 2
_ALL_GO_ON: Final = 4
"""After every so many steps all loops are to have copied on; between them faults come upon faults."""


def our_stage(directory: Path) -> OurStage:
    """Return three brokers of ours, at whose doors a loop's process can be told from another's."""
    return OurStage(directory, options=OPTIONS, peer_of=speaker_of)


def loops(stage: Stage, clients: Sequence[str], directory: Path) -> AbstractContextManager[list[Loop]]:
    """Give the loops of those of the clients that can run here; their topics are there."""

    def create(topics: Sequence[str]) -> None:
        for topic in topics:
            nemesis.create_topic(stage, topic, PARTITIONS, {})
        nemesis.settle(stage)

    return loops_of(clients, stage.bootstrap, stage.zk, directory, create, _MEMBERS)


def play(
    stage: Stage, doors: Sequence[Proxy], copying: Sequence[Loop], seed: int, plan: Iterator[Step], until: float
) -> None:
    """Play the plan to its end, or until that ``time.monotonic()``; then look at everything."""
    with fed(stage.bootstrap, copying):
        for loop in copying:
            loop.goes_on()
        _disturb(stage, doors, copying, seed, plan, until)
        nemesis.settle(stage)
    for loop in copying:
        started = sum(copier.started for copier in loop.copiers)
        print(
            f"{loop.client}: {sum(loop.counts)} records copied once by {started} processes; it hung {loop.hung} times"
        )


def _disturb(
    stage: Stage, doors: Sequence[Proxy], copying: Sequence[Loop], seed: int, plan: Iterator[Step], until: float
) -> None:
    copiers = [copier for loop in copying for copier in loop.copiers]
    harmer, begun = Harmer(copiers, doors), time.monotonic()
    harm_beside = harms(seed, len(copiers), KINDS if doors else WITHOUT_DOORS)
    for number, (step, beside) in enumerate(zip(plan, harm_beside, strict=False)):
        if time.monotonic() > until:
            break
        told = ", ".join(map(harmer.told, beside)) or "no loop"
        print(f"[{time.monotonic() - begun:6.1f} s, {_copied(copying)} copied] {number}: {step}; {told}", flush=True)
        for harm in beside:
            harmer.begin(harm)
        stage.begin(step)
        over = time.monotonic() + step.seconds
        eventually(lambda over=over: time.monotonic() > over, "time to pass", step.seconds)  # type: ignore[misc]
        for harm in beside:
            harmer.end(harm)
        stage.end(step)
        if step.settle:
            nemesis.settle(stage)
        if number % _ALL_GO_ON == _ALL_GO_ON - 1:
            for loop in copying:
                loop.goes_on()


def _copied(copying: Sequence[Loop]) -> str:
    return "+".join(str(sum(loop.counts)) for loop in copying)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/loop-run", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="how long faults go on (%(default)s)")
    parser.add_argument("--steps", type=int, help="end after that many steps, too")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="the same seed, the same schedule")
    parser.add_argument("--clients", default=",".join(CLIENTS), help="loops of these (%(default)s)")
    parser.add_argument(
        "--faults", metavar="KINDS", default="", help="of brokers, these alone, as 'kill,isolate+expire'"
    )
    parser.add_argument("--kafka", metavar="VERSION", help="run on real Kafka of that version, as a control")
    parser.add_argument(
        "--beside", metavar="VERSION", help="brokers of ours and of that version, each comes back as either"
    )
    parser.add_argument("--keep", type=Path, help="where to leave everything, clean or not")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    directory = given.keep or Path(tempfile.mkdtemp(prefix="loop-run-"))
    directory.mkdir(parents=True, exist_ok=True)
    stage: Stage
    if given.kafka:
        stage = nemesis.KafkaStage(given.kafka, directory / "cluster", options=OPTIONS)
    elif given.beside:
        stage = MixedStage(given.beside, directory / "cluster")
    else:
        stage = our_stage(directory / "cluster")
    doors = stage.proxies if isinstance(stage, OurStage) else ()
    plan = itertools.islice(stage.plan(given.seed, given.faults.split(",") if given.faults else ()), given.steps)
    try:
        with loops(stage, given.clients.split(","), directory) as copying:
            play(stage, doors, copying, given.seed, plan, time.monotonic() + given.minutes * 60)
        if isinstance(stage, OurStage):
            stage.check_logs()
    except BaseException:
        print(f"seed {given.seed} failed; the logs are kept in {directory}", file=sys.stderr)
        raise
    finally:
        stage.down()
    if not given.keep:
        shutil.rmtree(directory)
    print("all is well")
    return 0


if __name__ == "__main__":
    sys.exit(main())
