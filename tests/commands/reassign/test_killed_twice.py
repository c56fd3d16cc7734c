"""A run of kt reassign that is killed, and what was to end it killed too: a third command still ends it well.

Before each of its writes ``--execute`` dies in one of the stories; where the second dies is dealt out. All pairs in all
stories with ``KAFKATOOL_ALL_PAIRS=1``.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ReassignmentZnode
from tests.commands.reassign.killed_runs import BEFORE, BROKER_1, GOAL, Killed, Writes, reset
from tests.commands.reassign.runner import plan_file, run
from tests.core.operations.reassignment.plans import config
from tests.core.zookeeper import cluster_nodes as nodes

FLAGS: Final = ("--throttle", "5000", "--batch-partitions", "2", "--wait")
ALL_PAIRS: Final = os.environ.get("KAFKATOOL_ALL_PAIRS") == "1"
EXECUTE: Final = ("--execute",)
RESUME: Final = ("--execute", "--resume")
CANCEL: Final = ("--cancel",)
BACK: Final = ("--cancel", "--rollback")
STORIES: Final = (  # what follows a killed --execute: the second is killed, too
    (RESUME, RESUME),
    (RESUME, CANCEL),
    (RESUME, BACK),
    (CANCEL, RESUME),
    (CANCEL, CANCEL),
    (BACK, BACK),
    (BACK, RESUME),
)
NEVER: Final = 1000
NOTHING_BEGUN: Final = ("nothing to resume", "rollback.json: No such file")


class Story:
    """``--execute`` and then ``second`` die, each before one of its writes; ``last`` ends it."""

    def __init__(self, zk: ZooKeeper, zk_connect: str, directory: Path, writes: Writes) -> None:
        self._zk, self._connect, self._directory, self._writes = zk, zk_connect, directory, writes

    def tell(self, second: tuple[str, ...], last: tuple[str, ...], first_at: int, second_at: int) -> tuple[int, int]:
        """Return how many writes the first and the second made, or began; fewer than where they were to die: they ended."""
        directory = self._directory / f"{first_at} {second_at}"
        directory.mkdir(parents=True)
        file = plan_file(directory / "plan.json", GOAL)
        reset(self._zk)
        counts = (self._die(file, (*EXECUTE, *FLAGS), first_at), self._die(file, second, second_at))
        self._end(file, last)
        found = nodes.assignment(self._zk, "t")
        if last == BACK:
            assert found == BEFORE
        elif last == RESUME:
            assert found == GOAL
        else:
            assert all(found[p] in (BEFORE[p], GOAL[p]) for p in GOAL)
        assert self._zk.get(ReassignmentZnode.PATH) is None
        assert config(self._zk, "brokers", "1") == BROKER_1
        assert config(self._zk, "brokers", "2") == {} == config(self._zk, "topics", "t")
        assert sorted(p.name for p in directory.iterdir() if "rollback" not in p.name) == ["plan.json"]
        return counts

    def _die(self, file: Path, flags: tuple[str, ...], at: int) -> int:
        with self._writes.killing(at):
            try:
                run(self._connect, *flags, "--reassignment-json-file", file)
            except Killed:
                pass
        return self._writes.count

    def _end(self, file: Path, flags: tuple[str, ...]) -> None:
        result = run(self._connect, *flags, "--reassignment-json-file", file)
        if result.exit_code and any(text in result.output for text in NOTHING_BEGUN):
            if flags == RESUME:
                result = run(self._connect, *EXECUTE, *FLAGS, "--reassignment-json-file", file)
            else:
                assert nodes.assignment(self._zk, "t") == BEFORE
                return
        assert result.exit_code == 0, result.output


def pairs(first: int, second: int, story: int) -> Iterator[tuple[int, int]]:
    """Yield the writes that the two die before in the story of that number."""
    if ALL_PAIRS:
        yield from ((i, j) for i in range(1, first + 1) for j in range(1, second + 1))
        return
    for n in range(story, first, len(STORIES)):
        yield n + 1, 1 + (second - 1 - n) % second


@pytest.mark.spec("RSN-22X", "RSN-23X", "RSN-37X")
@pytest.mark.timeout(1800 if ALL_PAIRS else 600)
@pytest.mark.slow
def test_a_third_command_ends_what_two_began(zk: ZooKeeper, zk_connect: str, tmp_path: Path, writes: Writes) -> None:
    nodes.make_cluster(zk, topics={"t": BEFORE})
    with nodes.controller(zk_connect, ReassignmentZnode.PATH, nodes.reassign):
        for start, (second, last) in enumerate(STORIES):
            story = Story(zk, zk_connect, tmp_path / str(start), writes)
            if not start:
                total, _ = story.tell(second, last, NEVER, NEVER)
                assert total > 20
            _, following = story.tell(second, last, total // 2, NEVER)
            assert following > 5
            for first_at, second_at in pairs(total, following, start):
                try:
                    story.tell(second, last, first_at, second_at)
                except AssertionError as e:
                    killed = f"{second} killed at {second_at} of {following}, before {last}"
                    raise AssertionError(f"killed at {first_at} of {total}; {killed}") from e
