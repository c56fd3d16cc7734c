"""Clients at work on a cluster that suffers faults; what they saw is written down and judged.

Run by hand: scripts/history-run --seed 8 --operations 20000
A run that is not clean is kept: its history, verdict and schedule, what brokers said and stored, and one page to look at.
Of any run a line with its seed and its verdict stays.
"""

import argparse
import dataclasses
import faulthandler
import itertools
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from kafkatool.core.errors import KafkatoolError
from tests.faults.schedule import Step
from tests.faults.world import BROKERS
from tests.histories import nemesis, workload
from tests.histories.analyser.verdict import CLEAN, FOUND, Verdict, judge
from tests.histories.clients import values
from tests.histories.clients.client import LIBRDKAFKA, Cell
from tests.histories.clients.warnings import warnings_in
from tests.histories.crew import LEAVING_S, PROCESSES, Crew, Task
from tests.histories.final import read_everything
from tests.histories.frames.doors import Doors
from tests.histories.frames.record import Record
from tests.histories.history import read_file
from tests.histories.kept import plan as plans
from tests.histories.kept.keeping import HISTORY, leave, register, steps_begun
from tests.histories.kept.plan import WORKERS, Plan
from tests.histories.matrix import CLIENTS, broker_options, cell_of, clients_of, fitted, safe, topic_configs, unsafe
from tests.histories.upkeep import LONGEST_S, Upkeep
from tests.histories.writer import Header, HistoryWriter

_AHEAD: Final = 8  # keys whose topics are there before they are needed
_STALLED_S: Final = 300
_FROZEN_S: Final = 180
_BETWEEN_FRAMES_S: Final = 0.3
_AT_WORK: Final = 6
"""So many lines a worker, and clients have their keys and do operations: before the first fault, and after the last one."""


def header(seed: int, stage: nemesis.Stage, cell: Cell, steps: int) -> Header:
    return {
        "seed": seed,
        "source": stage.source,
        "version": stage.version,
        "brokers": len(BROKERS),
        "client": cell.client,
        "options": {
            **cell.options,
            "faults": steps != 0 or stage.doors is not None,
            "flushed": stage.flushed,
        },
    }


class Run:
    """One run on one stage, into one file."""

    def __init__(
        self,
        stage: nemesis.Stage,
        file: Path,
        seed: int,
        cell: Cell,
        steps: int,
        plan: Sequence[Step] | None = None,
        kinds: Sequence[str] = (),
        least: int = 0,
        workers: Sequence[int] = range(WORKERS),
    ) -> None:
        self._plan = itertools.islice(stage.plan(seed, kinds) if plan is None else iter(plan), steps)
        self._least, self._workers = least, workers
        self._stage, self._seed, self._cell = stage, seed, cell
        self.keys = workload.Keys(compacted=cell.compacted)
        self._file = file
        self._writer = HistoryWriter(file, header(seed, stage, cell, steps))
        self._calm = threading.Event()  # no more faults
        self._stop = threading.Event()
        self._created = 0
        self._troubles: list[BaseException] = []

    def play(self, operations: int, pause_s: float) -> None:
        """Let so many operations be done while faults come and go; then read everything."""
        with self._writer, warnings_in(self._file.with_name("clients.log")):
            self.create_topics()
            if self._cell.transactional:
                self._create_topic(workload.OUTPUTS[0])
            nemesis.settle(self._stage)
            upkeep = Upkeep(self._stage, self._seed, self.keys, self._writer, compacted=self._cell.compacted)
            threads = [
                self._thread("creating topics", self._go_on_creating),
                self._thread("upkeep", upkeep.go_on, self._stop),
            ]
            if self._stage.doors is not None:
                threads.append(self._thread("meddling", self._meddle, self._stage.doors))
            for thread in threads:
                thread.start()
            warned = self._file.with_name("clients.log")
            bootstrap = self._stage.bootstrap
            task = Task(WORKERS, self._seed, bootstrap, self._cell, warned, LEAVING_S, self._workers)
            try:
                with Crew(task, self.keys, self._writer) as crew:
                    try:
                        self._disturb(crew, 2 * operations, pause_s)
                    finally:
                        self._calm.set()
                    # A client that hangs is left: its operation was never answered.
                    if stuck := crew.dismiss():
                        print(f"clients of {stuck} of {PROCESSES} processes stood still, and were ended", flush=True)
            finally:
                self._stop.set()
            await_all(threads, LONGEST_S)
            if self._troubles:
                raise self._troubles[0]
            nemesis.settle(self._stage)
            keys = self.keys.all() + (list(workload.OUTPUTS) if self._cell.transactional else [])
            groups = workload.groups_of(WORKERS, self._cell)
            read_everything(self._stage.bootstrap, self._cell, self._writer, keys, groups)

    def _thread(self, name: str, what: Any, *arguments: Any) -> threading.Thread:
        return threading.Thread(target=self._guarded, args=(what, *arguments), daemon=True, name=name)

    def _guarded(self, what: Any, *arguments: Any) -> None:
        try:
            what(*arguments)
        except BaseException as e:  # noqa: BLE001  # a thread's end is the run's
            self._troubles.append(e)
            self._calm.set()
            self._stop.set()

    def create_topics(self) -> None:
        """Make the topics that are needed next: so they are made through the run, as keys retire."""
        while self._created < (max(self.keys.all()) + 1 + _AHEAD) // values.PARTITIONS:
            self._create_topic(self._created * values.PARTITIONS)
            self._created += 1

    def _create_topic(self, key: int) -> None:
        nemesis.create_topic(self._stage, values.topic_of(key), values.PARTITIONS, topic_configs(self._cell))

    def _go_on_creating(self) -> None:
        while not self._stop.wait(0.1):
            try:
                self.create_topics()
            except (KafkatoolError, AssertionError):
                continue  # ZooKeeper is away

    def _meddle(self, doors: Doors) -> None:
        """Do something to a request, and then to another."""
        chance = random.Random(f"{self._seed}-frames")
        for number in itertools.count():
            if self._calm.wait(_BETWEEN_FRAMES_S):
                return
            nemesis.meddle(doors, chance, number, self._writer, self._calm)

    def _disturb(self, crew: Crew, lines: int, pause_s: float) -> None:
        begun, at_work = time.monotonic(), _AT_WORK * len(self._workers)
        self._await_lines(crew, at_work)
        for number, step in enumerate(self._plan):
            self._stop.wait(pause_s)
            if self._stop.is_set() or crew.failed or (self._writer.count >= lines and number >= self._least):
                break
            print(
                f"[{time.monotonic() - begun:6.1f} s, {self._writer.count // 2} operations] {number}: {step}",
                flush=True,
            )
            nemesis.play(self._stage, step, number, self._writer)
        self._await_lines(crew, max(lines, self._writer.count + at_work))

    def _await_lines(self, crew: Crew, lines: int) -> None:
        """Wait until clients have written so many lines."""
        seen, moved = self._writer.count, time.monotonic()

        def done() -> bool:
            nonlocal seen, moved
            if self._writer.count > seen:
                seen, moved = self._writer.count, time.monotonic()
            assert time.monotonic() - moved < _STALLED_S, "no operation ends any more"
            assert not crew.failed, "a worker failed"
            return seen >= lines

        self._await(done)

    def _await(self, what: Any) -> None:
        while not what() and not self._stop.wait(0.05):
            pass


def run(
    stage: nemesis.Stage,
    file: Path,
    seed: int,
    cell: Cell,
    *,
    operations: int,
    steps: int,
    pause_s: float,
    plan: Sequence[Step] | None = None,
    kinds: Sequence[str] = (),
    least: int = 0,
    workers: Sequence[int] = range(WORKERS),
) -> Verdict:
    """Run the workload, until so many operations are done and the ``least`` steps are over; judge what was seen.

    Steps are those of the ``plan``, else of the seed, of these ``kinds``.
    """
    Run(stage, file, seed, cell, steps, plan, kinds, least, workers).play(operations, pause_s)
    return judge(read_file(file))


def await_all(threads: Sequence[threading.Thread], seconds: float) -> None:
    """Wait until they have ended. RuntimeError if one has not: what it does would be done while all is read."""
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0.0))
        if thread.is_alive():
            raise RuntimeError(f"{thread.name} has not ended in {seconds:g} s")


def end_if_frozen() -> None:
    """Tell what each thread does, and end this process, once no thread of Python has run for _FROZEN_S.

    A client that waits for a lock of librdkafka's inside ``assign`` keeps the interpreter. Workers have processes of their
    own for that; those that read everything at the end are in this one.
    """

    def show_life() -> None:
        while True:
            faulthandler.dump_traceback_later(_FROZEN_S, exit=True)
            time.sleep(1)

    threading.Thread(target=show_life, daemon=True).start()


def chosen_cell(parser: argparse.ArgumentParser, given: argparse.Namespace) -> Cell:
    """Return the seed's cell, with what was given instead. What may lose leaves nothing to choose but isolation and client.

    What was not given is as the client that was given needs it.
    """
    cell = cell_of(given.seed)
    if given.isolation:
        cell = cell._replace(isolation=given.isolation)
    if given.losses == "may":
        return unsafe(cell)._replace(client=given.client or LIBRDKAFKA)
    asked = {part: told for part in ("via", "guarantee", "cleanup", "client") if (told := getattr(given, part))}
    if given.losses or asked:
        cell = safe(cell)._replace(**asked)
    if given.client:
        cell = fitted(cell, given.client)
        if any(getattr(cell, part) != told for part, told in asked.items()):
            parser.error(f"{given.client}'s recorder does not play that; the nearest that it does: {cell}")
    return cell if cell.client in clients_of(cell) else cell._replace(client=LIBRDKAFKA)


def unused(text: str) -> Path:
    """Return a directory that is not there yet, or holds nothing. Raises ArgumentTypeError."""
    directory = Path(text)
    try:
        if not directory.exists() or not any(directory.iterdir()):
            return directory
    except OSError as e:
        raise argparse.ArgumentTypeError(f"{text}: {e.strerror}") from e
    raise argparse.ArgumentTypeError(f"{text} is not empty: a run is kept in a directory of its own")


def arguments() -> argparse.ArgumentParser:
    """Return the command line of ``scripts/history-run``."""
    parser = argparse.ArgumentParser(prog="scripts/history-run", description=__doc__)
    parser.add_argument(
        "--seed", type=int, default=random.randrange(1 << 32), help="decides cell, operations and faults"
    )
    parser.add_argument("--operations", type=int, default=20_000, help="how many are done (%(default)s)")
    parser.add_argument("--steps", type=int, default=1000, help="end faults after that many steps (%(default)s)")
    parser.add_argument("--least", type=int, default=0, help="go on until that many steps are over (%(default)s)")
    parser.add_argument("--faults", metavar="KINDS", help="faults of these kinds alone, as 'power cut,isolate+expire'")
    parser.add_argument("--frames", action="store_true", help="requests are late and answers lost, too; frames.jsonl")
    parser.add_argument("--flushed", action="store_true", help="brokers sync each batch: 'power cut all' spares it")
    parser.add_argument("--pause", type=float, default=3, help="seconds between steps (%(default)s)")
    parser.add_argument("--kafka", metavar="VERSION", help="run on real Kafka of that version, as a control")
    parser.add_argument("--via", choices=("assign", "subscribe"), help="instead of what the seed draws")
    parser.add_argument("--guarantee", choices=("plain", "idempotent", "transactional"), help="likewise")
    parser.add_argument("--isolation", choices=("read_committed", "read_uncommitted"), help="likewise")
    parser.add_argument("--cleanup", choices=("delete", "compact"), help="likewise, of topics")
    parser.add_argument(
        "--losses",
        choices=("never", "may"),
        help="likewise: acks=1, min.insync.replicas=1 and unclean elections, which leaves the isolation to choose, or not",
    )
    parser.add_argument(
        "--client",
        choices=CLIENTS,
        help="likewise, who works: aiokafka's have no groups with transactions, kafka-python's neither, nor compaction",
    )
    parser.add_argument("--keep", type=unused, metavar="DIR", help="where to leave everything, clean or not")
    parser.add_argument("--schedule", type=Path, metavar="FILE", help="play this schedule.json of a run that was kept")
    parser.add_argument("--shrink", action="store_true", help="shrink at once what is not clean")
    return parser


def main() -> int:
    parser = arguments()
    given = parser.parse_args()
    end_if_frozen()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # brokers end with who is told to
    plan = plans.read(given.schedule) if given.schedule else _planned(parser, given)
    print(f"seed {plan.seed}: {plan.cell}", flush=True)
    directory = given.keep or Path(tempfile.mkdtemp(prefix="history-run-"))
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / HISTORY
    verdict: Verdict | None = None
    stage = _stage(plan, directory)
    kinds = given.faults.split(",") if given.faults else ()
    try:
        verdict = run(
            stage,
            file,
            plan.seed,
            plan.cell,
            operations=plan.operations,
            steps=len(plan.steps) if given.schedule else given.steps,
            pause_s=plan.pause_s,
            plan=plan.steps if given.schedule else None,
            kinds=kinds,
            least=len(plan.steps) if given.schedule else given.least,
            workers=plan.workers,
        )
        print("\n".join(verdict.lines()), flush=True)
    finally:
        steps = iter(plan.steps) if given.schedule else stage.plan(plan.seed, kinds)
        played = dataclasses.replace(plan, steps=tuple(itertools.islice(steps, steps_begun(file))))
        everything = given.keep is not None or verdict is None or verdict.exit_code != CLEAN
        leave(directory, stage, played, verdict, everything=everything)
        if everything:
            print(f"seed {plan.seed}: all that there is of it is kept in {directory}", file=sys.stderr)
        print(f"a line in {register()} tells of this run")
    sys.stdout.flush()
    if given.shrink and verdict.exit_code == FOUND:  # in place of this process, which may have clients that hang
        os.execv(sys.executable, [sys.executable, "-m", "tests.histories.kept", str(directory)])
    os._exit(verdict.exit_code)  # no thread of a client that hangs keeps the answer back


def _planned(parser: argparse.ArgumentParser, given: argparse.Namespace) -> Plan:
    """Return what the arguments and the seed decide; its steps are drawn as they come."""
    return Plan(
        given.seed,
        chosen_cell(parser, given),
        given.operations,
        (),
        pause_s=given.pause,
        kafka=given.kafka or "",
        frames=given.frames,
        flushed=given.flushed,
    )


def _stage(plan: Plan, directory: Path) -> nemesis.OurStage | nemesis.KafkaStage:
    doors = Doors(Record(directory / "frames.jsonl")) if plan.frames else None
    options = broker_options(plan.cell)
    if plan.kafka:
        return nemesis.KafkaStage(plan.kafka, directory / "cluster", doors, flushed=plan.flushed, options=options)
    return nemesis.OurStage(directory / "cluster", doors, flushed=plan.flushed, options=options)


if __name__ == "__main__":
    sys.exit(main())
