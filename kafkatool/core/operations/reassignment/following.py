"""Waiting for a reassignment, and for its further batches, each submitted when the one before has ended (RSN-19X, 33X)."""

import time
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

from kafkatool.core.errors import NodeExistsError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.reassignment import hindrances
from kafkatool.core.operations.reassignment.hindrances import NOTHING, Hindrances
from kafkatool.core.operations.reassignment.status import find_requested
from kafkatool.core.planner.plan_files import Moves
from kafkatool.core.zookeeper.cluster_view import read_states
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.watched_node import WatchedNode
from kafkatool.core.zookeeper.znodes import ReassignmentZnode

POLL_MS: Final = 1000  # how often the progress of a running move is read; the end itself is watched
LOOK_S = 10.0  # of standing still between two looks for what is in the way


@dataclass(frozen=True, slots=True)
class Progress:
    """The partitions that left the znode, and of the replicas the plan wants those in sync (RSN-33X).

    Of the whole plan, ``batch`` of ``batches`` being in the znode; ``left`` are the partitions that have not finished.
    ``still_s``: for how long no replica got in sync; ``hindrances`` are looked for then.
    """

    finished: int
    total: int
    in_sync: int
    wanted: int
    elapsed_s: float
    batch: int = 1
    batches: int = 1
    left: frozenset[TopicPartition] = frozenset()
    still_s: float = 0.0
    hindrances: Hindrances = NOTHING

    @property
    def remaining_s(self) -> float | None:
        """Estimate from the rate of finished partitions so far; None: none has finished yet, or something is in the way."""
        if not self.finished or any(self.hindrances):
            return None
        return self.elapsed_s / self.finished * (self.total - self.finished)


Unsent = Callable[[Set[TopicPartition]], Set[TopicPartition]]
Requested = Callable[[], frozenset[TopicPartition]]


def wait(
    zk: ZooKeeper,
    moves: Moves,
    *,
    timeout_s: float | None,
    on_progress: Callable[[Progress], None],
    poll_ms: int = POLL_MS,
    requested: Requested = frozenset,
    unsent: Unsent = lambda sent: frozenset(),
    interrupted: Callable[[], bool] = lambda: False,
) -> bool:
    """Wait until no partition of ``moves`` is in the znode; False: the deadline passed first, the move goes on.

    ``requested`` tells what of ``moves`` is moved by requests and waited for too, ``unsent`` what somebody else is still
    to send; it is given those that are under way. ``interrupted`` is asked before each look, and ends the wait as the
    deadline does.
    """
    begun = time.monotonic()
    deadline = None if timeout_s is None else begun + timeout_s
    request = WatchedNode(zk, ReassignmentZnode.PATH)
    in_sync, moved_s, looked_s = -1, begun, begun
    found = NOTHING
    while not interrupted():
        node = request.read()
        left = requested().union(p for p in (ReassignmentZnode.decode(node.data) if node else {}) if p in moves)
        later = unsent(left)
        seen = _progress(zk, moves, left, later, time.monotonic() - begun)
        now = time.monotonic()
        if not left or seen.in_sync != in_sync:
            in_sync, moved_s, looked_s, found = seen.in_sync, now, now, NOTHING
        elif now - looked_s >= LOOK_S:  # it stands still: what is in the way?
            looked_s, found = now, hindrances.find(zk, {p: moves[p] for p in left})
        else:
            found = found._replace(awaited=hindrances.find_awaited(zk, {p: moves[p] for p in left}))
        seen = replace(seen, still_s=now - moved_s, hindrances=found)
        on_progress(seen)
        if not left and not later:
            return True
        pause = poll_ms / 1000
        if deadline is not None:
            pause = min(pause, deadline - time.monotonic())
            if pause <= 0:
                break
        request.wait(pause)
    return False


class Followed(NamedTuple):
    """The number of a plan's batches that were submitted, and of those that have finished."""

    sent: int
    finished: int


def follow(
    zk: ZooKeeper,
    batches: Sequence[Moves],
    *,
    timeout_s: float | None,
    on_progress: Callable[[Progress], None],
    poll_ms: int = POLL_MS,
    on_batch: Callable[[int, bool], None] = lambda number, finished: None,
    started: bool = True,
    replacing: bool = False,
) -> Followed:
    """Wait for the first batch, if it was ``started``, and submit and wait for the others, each when the znode is gone.

    ``on_batch`` is told the batch's number, from 0, and False before it is submitted (again after each wait for somebody
    else's reassignment, which may be long), True when it has finished. An error it raises ends the run. ``replacing``:
    what requests are moving of a batch by then is moved by it instead, and not waited for.

    When the deadline passes first no further batch is submitted, and one may still be under way (RSN-19X). While a batch
    waits for others ``on_progress`` names what they move.
    """
    begun = time.monotonic()
    partitions = sum(map(len, batches))
    wanted = sum(len(replicas) for batch in batches for replicas in batch.values())
    done = done_replicas = 0

    def report(p: Progress) -> None:
        elapsed_s = time.monotonic() - begun
        counts = (done + p.finished, partitions, done_replicas + p.in_sync, wanted, elapsed_s)
        left = p.left.union(*batches[number + 1 :])
        on_progress(Progress(*counts, number + 1, len(batches), left, p.still_s, p.hindrances))

    def report_others(moved: Iterable[TopicPartition]) -> None:
        counts = (done, partitions, done_replicas, wanted, time.monotonic() - begun)
        left = frozenset().union(*batches[number:])
        found = Hindrances(others=tuple(sorted(moved)))
        on_progress(Progress(*counts, number + 1, len(batches), left, hindrances=found))

    def remaining_s() -> float | None:
        return None if timeout_s is None else max(0.0, begun + timeout_s - time.monotonic())

    for number, batch in enumerate(batches):
        begins = partial(on_batch, number, False)
        if (number or not started) and not _submit(
            zk, batch, remaining_s, poll_ms, begins, report_others, replacing=replacing
        ):
            return Followed(number, number)
        if not wait(zk, batch, timeout_s=remaining_s(), on_progress=report, poll_ms=poll_ms):
            return Followed(number + 1, number)
        on_batch(number, True)
        done += len(batch)
        done_replicas += sum(map(len, batch.values()))
    return Followed(len(batches), len(batches))


def _submit(
    zk: ZooKeeper,
    batch: Moves,
    remaining_s: Callable[[], float | None],
    poll_ms: int,
    before: Callable[[], None],
    waits: Callable[[Iterable[TopicPartition]], None],
    *,
    replacing: bool,
) -> bool:
    """Create the znode as soon as there is none; somebody else's reassignment is waited for. False: deadline.

    So are requests that move partitions of the batch, unless it is ``replacing`` them: the controller would drop those.

    ``before`` each attempt: whoever wants no more to be sent says so while this waits. ``waits`` is told for what.
    """
    request = WatchedNode(zk, ReassignmentZnode.PATH)
    while True:
        before()
        left = remaining_s()
        if left is not None and left <= 0:
            return False
        pause_s = poll_ms / 1000 if left is None else min(left, poll_ms / 1000)
        if not replacing and (requested := find_requested(zk, batch)):
            waits(requested)
            time.sleep(pause_s)
            continue
        try:
            zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode(batch), make_parents=True)
        except NodeExistsError:
            if (node := request.read()) is not None:
                waits(ReassignmentZnode.decode(node.data))
                request.wait(pause_s)
        else:
            return True


def _progress(
    zk: ZooKeeper, moves: Moves, left: Set[TopicPartition], later: Set[TopicPartition], elapsed_s: float
) -> Progress:
    states = read_states(zk, left)
    wanted = sum(len(replicas) for replicas in moves.values())
    lagging = sum(1 for p in left for b in moves[p] if p not in states or b not in states[p].leader_and_isr.isr)
    lagging += sum(len(moves[p]) for p in later)
    unfinished = frozenset(left | later)
    return Progress(len(moves) - len(unfinished), len(moves), wanted - lagging, wanted, elapsed_s, left=unfinished)
