"""Every request of two short stories as the one at which something happens, and what clients saw of it judged.

Run by hand: scripts/frame-sweep --seed 7 [--story transaction] [--manner before] [--api EndTxn] [--kafka 2.8.2]
The broker that is asked is killed or stopped before the request is delivered to it, when it is, or when it has answered; or
the answer is lost; or the client's connection ends and the request is delivered all the same, later.
"""

import argparse
import itertools
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.histories.analyser.verdict import CLEAN, Verdict, judge
from tests.histories.clients.client import Cell
from tests.histories.clients.values import PARTITIONS
from tests.histories.final import read_everything
from tests.histories.frames.record import Record
from tests.histories.frames.rules import MOMENTS, NEVER_LATE, Act, Call, Late, Lose, Rule
from tests.histories.frames.stage import BROKERS, Kafkas, Ours, Stage
from tests.histories.frames.stories import ACTORS, STORIES, Tale
from tests.histories.history import read_file
from tests.histories.writer import Header, HistoryWriter

_LATE_S: Final = 0.3
MANNERS: Final = (*MOMENTS, "lost", "late")
_STOPPED: Final = 0.25  # of brokers that end; the others are killed
_STILL_S: Final = 20
_HANGS_S: Final = 120
_BY_CHANCE: Final = frozenset({"OffsetForLeaderEpoch"})  # asked where a leader has just moved, and else not


class Told(NamedTuple):
    """What came of a story.

    ``still``: how often a client got nowhere until it was helped; ``hangs``: one did not return from a call, and was left.
    """

    verdict: Verdict
    asked: Mapping[tuple[str, str], int]  # by API and client
    still: int
    hangs: bool

    @property
    def is_clean(self) -> bool:
        return self.verdict.exit_code == CLEAN

    def __str__(self) -> str:
        said = "clean" if self.is_clean else "\n".join(self.verdict.lines())
        clients = f"; times that a client stood still: {self.still}" if self.still else ""
        return f"{said}{clients}{'; a client hangs' if self.hangs else ''}"


class Point(NamedTuple):
    """One request of a story, and what happens at it; where it does not come, the first one of ``busiest`` instead.

    ``stops``: at a moment the broker is stopped in good order, not killed.
    """

    story: str
    api: str
    manner: str
    client: str
    nth: int
    busiest: str
    stops: bool

    def __str__(self) -> str:
        what = "" if self.manner not in MOMENTS else " stop" if self.stops else " kill"
        return f"{self.story}:{what} {self.manner}, {self.api} {self.nth} of {self.client}"

    def act(self, stage: Stage) -> Act:
        """Return what a rule is to do."""
        for moment in MOMENTS:
            if moment == self.manner:
                return Call(moment, stage.stop if self.stops else stage.crash)
        return Lose() if self.manner == "lost" else Late(_LATE_S)


def header(stage: Stage, cell: Cell, *, late_end_txn: bool = False) -> Header:
    """Return the header of a story's history."""
    return {
        "seed": 0,  # nothing is drawn within a story
        "source": stage.source,
        "version": stage.version,
        "brokers": BROKERS,
        "client": "confluent-kafka",
        "options": {**cell.options, "faults": True, "late_end_txn": late_end_txn},
    }


def tell(stage: Stage, story: str, directory: Path, rules: Sequence[Rule] = ()) -> Told:
    """Tell a story on topics of its own, under these rules; history and frames are left in the directory."""
    actors, cell = STORIES[story]
    directory.mkdir(parents=True)
    record = stage.doors.record = Record(directory / "frames.jsonl")
    with HistoryWriter(directory / "history.jsonl", header(stage, cell)) as writer:
        tale = Tale(next(stage.numbers), stage.bootstrap, cell, writer, record)
        stage.make_topics(*tale.topics, partitions=PARTITIONS)
        armed = [stage.doors.rules.add(rule) for rule in rules]
        troubles: list[BaseException] = []

        def told() -> None:
            try:
                actors(tale)
            except BaseException as e:  # noqa: BLE001  # told below
                troubles.append(e)

        thread = threading.Thread(target=told, daemon=True)
        thread.start()
        hangs = _watch(stage, tale, thread)
        asked = record.count(*ACTORS)
        stage.doors.rules.clear()
        stage.mend()
        for trouble in (*troubles, *(each.error for each in armed)):
            if trouble is not None:
                raise trouble
        read_everything(stage.bootstrap, cell, writer, tale.sources + tale.outputs, [tale.name])
    record.close()
    return Told(judge(read_file(directory / "history.jsonl")), asked, tale.still, hangs)


def _watch(stage: Stage, tale: Tale, thread: threading.Thread) -> bool:
    """Wait for a story's end; tell whether a client hangs for good.

    Where nothing moves the clients' connections are ended: librdkafka's TxnOffsetCommit waits for a broker that it has given
    up until any other connection of its goes (docs/known-faults.md).
    """
    moves, moved, ended = -1, time.monotonic(), 0
    while thread.is_alive():
        thread.join(0.2)
        still_s = time.monotonic() - moved
        if tale.moves != moves:
            moves, moved, ended = tale.moves, time.monotonic(), 0
        elif still_s > _HANGS_S:
            return True
        elif still_s > _STILL_S * (ended + 1):
            ended += 1
            tale.still += 1
            stage.doors.reset()
    return False


def points(story: str, asked: Mapping[tuple[str, str], int], seed: int) -> list[Point]:
    """Return all of a story's APIs in all manners; which request of which client, the seed draws."""
    chance = random.Random(f"{seed}-{story}")
    found = []
    for api, manner in itertools.product(sorted({api for api, _ in asked} - _BY_CHANCE), MANNERS):
        if manner != "late" or api not in NEVER_LATE:
            by_client = {client: count for (asks, client), count in sorted(asked.items()) if asks == api}
            client = chance.choice(list(by_client))
            busiest = max(by_client, key=lambda each: by_client[each])
            nth, stops = chance.randint(1, by_client[client]), chance.random() < _STOPPED
            found.append(Point(story, api, manner, client, nth, busiest, stops))
    return found


def play(stage: Stage, point: Point, directory: Path) -> Told:
    """Tell the point's story with what happens at it."""
    for client, nth in ((point.client, point.nth), (point.busiest, 1)):
        rule = Rule(point.api, point.act(stage), nth, client)
        told = tell(stage, point.story, directory / f"{nth}-of-{client}", [rule])
        if told.asked.get((point.api, client), 0) >= nth or not told.is_clean:
            return told
    raise AssertionError(f"{point}: it did not come, nor did the first one of {point.busiest}")


def sweep(
    stage: Stage, stories: Sequence[str], directory: Path, seed: int, manners: Iterable[str], apis: Sequence[str] = ()
) -> Iterator[tuple[Point, Told]]:
    """Play all points of the stories in these manners; what is clean is removed again."""
    for story in stories:
        plain = tell(stage, story, directory / story / "plain")
        assert plain.is_clean, f"{story}, without any rule: {plain}"
        for point in points(story, plain.asked, seed):
            if point.manner in manners and (not apis or point.api in apis):
                place = directory / story / f"{point.api}-{point.manner}"
                told = play(stage, point, place)
                if told.is_clean:
                    shutil.rmtree(place)
                yield point, told


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/frame-sweep", description=__doc__)
    parser.add_argument(
        "--seed", type=int, default=random.randrange(1 << 32), help="draws which request of which client"
    )
    parser.add_argument("--story", choices=tuple(STORIES), help="of the two")
    parser.add_argument("--manner", action="append", choices=MANNERS, help="these alone")
    parser.add_argument("--api", action="append", default=[], help="these alone")
    parser.add_argument("--kafka", metavar="VERSION", help="on real Kafka of that version, as a control")
    parser.add_argument("--keep", type=Path, help="where to leave everything (a temporary directory)")
    given = parser.parse_args()
    directory = given.keep or Path(tempfile.mkdtemp(prefix="frame-sweep-"))
    print(f"seed {given.seed}, in {directory}", flush=True)
    played = bad = 0
    stage = Kafkas(given.kafka, directory / "kafka") if given.kafka else Ours(directory / "cluster")
    with stage:
        stories = [given.story] if given.story else list(STORIES)
        for point, told in sweep(stage, stories, directory, given.seed, given.manner or MANNERS, given.api):
            played, bad = played + 1, bad + (not told.is_clean)
            print(f"{point}: {told}", flush=True)
    print(f"{played} points, {bad} of them not clean", flush=True)
    if not bad and not given.keep:
        shutil.rmtree(directory)
    sys.stdout.flush()
    os._exit(1 if bad else 0)  # no thread of a client that hangs keeps the answer back


if __name__ == "__main__":
    sys.exit(main())
