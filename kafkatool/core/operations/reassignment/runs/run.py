"""A plan carried out over its whole life: start, follow, resume after a death, verify (RSN-8 to RSN-36X).

Each step is noted in the state file before it is taken, so whoever comes next can end the run, however the last one died.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kafkatool.core.errors import (
    RefusedError,
    VersionConflictError,
    ZnodeTooLargeError,
    ZooKeeperError,
)
from kafkatool.core.model.moves import Move, Status
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.reassignment import ending_moves, events, following, status, throttles
from kafkatool.core.operations.reassignment.copy_progress import to_copy
from kafkatool.core.operations.reassignment.events import Event, Following, LeftUnfinished, ThrottleRemoved, WayBack
from kafkatool.core.operations.reassignment.following import Progress
from kafkatool.core.operations.reassignment.runs.run_throttles import RunThrottles
from kafkatool.core.operations.reassignment.runs.saved_run import RunFiles, RunState, remove
from kafkatool.core.operations.reassignment.status import Verification
from kafkatool.core.operations.reassignment.submission import (
    Prepared,
    prepare,
    start,
)
from kafkatool.core.planner.plan_files import Moves, PartitionName
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper

if TYPE_CHECKING:  # the wire protocol takes as long to import as all else
    from kafkatool.core.client.access import BrokerAccess


@dataclass(frozen=True, slots=True)
class LeftWaiting:
    """How far a plan is that is no longer waited for; ``found`` is None if that cannot be seen any more.

    ``carried_out``: a kt is still to send the rest. ``throttled``: throttles are set.
    """

    found: Verification | None
    carried_out: bool
    throttled: bool


class Run:
    """The run of one plan over one session, by one thread. Its methods do the work while their events are taken.

    ``on_progress`` is told how far the plan is, from each Following to the next other event. Whoever starts or resumes
    holds the lock (``RunFiles.alone``), and calls ``end_early`` if anything, also of its own, cuts the events short.
    """

    def __init__(
        self,
        zk: ZooKeeper,
        plan: Moves,
        files: RunFiles,
        *,
        name_of: PartitionName,
        on_progress: Callable[[Progress], None],
    ) -> None:
        self._zk, self._plan, self._files = zk, plan, files
        self._name_of, self._on_progress = name_of, on_progress
        self._own_throttles = RunThrottles(zk, plan)
        self._moves = plan  # what this run is to achieve of the plan
        self._state: RunState | None = None  # what the state file says, once it is this run's
        self._rates: Mapping[int, Mapping[str, str]] | None = None  # that stood on brokers; None: not known

    # --- start and resume -------------------------------------------------------------------------------------------

    def start(self, prepared: Prepared, *, followed: bool, timeout_s: float | None) -> Iterator[Event]:
        """Save the way back, submit the first batch and, if ``followed``, see all of them to their end.

        Raises RefusedError, with nothing written: an earlier run was not finished, the way back cannot be saved.
        """
        if followed and self._files.state.exists():
            raise RefusedError(
                f"{self._files.state} is that of a run that was not finished: continue it with --execute --resume, "
                "or remove the file"
            )
        if prepared.unchanged:
            unchanged = len(prepared.unchanged)
            yield events.Unchanged(unchanged, unchanged == len(prepared.moves))
        if (left := status.left_throttle(self._zk)) is not None and left.topics:  # a rate alone slows nothing
            yield events.ThrottleFound(left)
        yield self._save_way_back(prepared)
        if not followed:
            try:
                start(self._zk, prepared, name_of=self._name_of)
            except throttles.CUT_SHORT:
                if prepared.throttle is not None:
                    yield self._look_at_start(prepared)
                raise
            yield events.Started(prepared)
            return
        self._rates = self._own_throttles.read_rates()
        self._moves = prepared.moves
        copying = to_copy(self._zk, self._moves)  # read before the start, so that what there is to copy is known
        self._write(RunState.of(self._plan, prepared).with_batch(0, finished=False))
        try:
            start(self._zk, prepared, name_of=self._name_of)
        except (RefusedError, ZnodeTooLargeError, VersionConflictError):
            remove(self._files.state)  # nothing was started, and the throttles are back as they were
            raise
        yield events.Started(prepared)
        yield Following(copying)
        yield from self._follow(prepared, started=True, timeout_s=timeout_s)

    def resume(
        self, state: RunState, access: "BrokerAccess", *, force: bool, timeout_s: float | None
    ) -> Iterator[Event]:
        """Go on where a run ended (RSN-22X): set its throttles, let end what is under way, send what is left.

        What is under way may have been asked for by requests, if the run was begun so.
        What a cancel asked by the znode to go back, and the controller did not take up, would never end: it is taken out.
        Raises ControllerUnreachableError, with nothing written: it cannot be.
        """
        self._state, self._rates = state, self._own_throttles.read_rates()
        begun = time.monotonic()
        if any(to != self._plan.get(p, to) for p, to in (status.running(self._zk) or {}).items()):
            origin = self._files.known_way_back(self._plan, name_of=self._name_of)
            with ending_moves.asking(self._zk, self._plan, access) as client:
                if client is not None:
                    ended = ending_moves.end_moves(client, self._zk, self._plan, origin, turned_only=True)
                    if taken_out := len(ended.cancelled | ended.released):
                        yield events.Released(taken_out)
        throttles.set_again(self._zk, state.throttles)
        yield Following(to_copy(self._zk, self._plan), "under way")
        if not following.wait(
            self._zk,
            self._plan,
            timeout_s=timeout_s,
            on_progress=self._on_progress,
            requested=lambda: status.find_requested_as_planned(self._zk, self._plan),
        ):
            yield from self._end(frozenset(), finished=False)
            return
        left = prepare(
            self._zk,
            self._plan,
            skip_unchanged=True,
            skip_gone=True,
            force=force,
            max_bytes=state.max_json_size,
            max_count=state.batch_partitions,
            name_of=self._name_of,
        )
        if left.gone:
            yield events.Gone(left.gone)
        if state.cancelled and state.rate is not None:  # its lists may be those of a way back
            self._own_throttles.set_anew(state, left.moves, state.rate, self._write)
        self._write(self._state.resumed(left.batches))  # also if it was cancelled: this is to go on
        remaining_s = None if timeout_s is None else max(0.0, timeout_s - (time.monotonic() - begun))
        yield Following(to_copy(self._zk, left.moves))
        yield from self._follow(left, started=False, timeout_s=remaining_s)

    def _look_at_start(self, prepared: Prepared) -> events.StartCutShort:
        """Look what became of a start that was cut short; it has left no state file for others to go by."""
        try:
            asked = status.running(self._zk) or {}
            begun = any(asked.get(p) == to for p, to in prepared.batches[0].items())
            return events.StartCutShort(begun, bool(throttles.not_restored(self._zk, prepared.saved)))
        except ZooKeeperError as e:
            return events.StartCutShort(begun=False, throttled=True, unseen=e)

    def end_early(self) -> Iterator[Event]:
        """Take off the throttle of a run that was cut short unless something still moves under it (RSN-23X).

        Nothing happens if there is no run to resume.
        """
        if self._state is not None and self._files.state.exists():
            yield from self._leave(self._state)

    def _save_way_back(self, prepared: Prepared) -> WayBack:
        """Write it to the disk before anything else (RSN-21X). Raises RefusedError.

        What was carried out already has no way back of its own: the one that its first run saved stays.
        """
        file = self._files.rollback
        if len(prepared.unchanged) == len(prepared.moves) and self._files.has_way_back(self._plan):
            return WayBack(prepared, file, saved=False)
        moved = self._files.moved_from_way_back(
            self._plan, prepared.way_back, now=prepared.current, moving=prepared.replaced, name_of=self._name_of
        )
        if moved:
            return WayBack(prepared, file, saved=False, moved=len(moved))
        return WayBack(prepared, file, saved=True, kept=self._files.save_way_back(self._plan, prepared.way_back))

    def _write(self, state: RunState) -> None:
        self._state = state
        state.write(self._files.state)

    def _follow(self, prepared: Prepared, *, started: bool, timeout_s: float | None) -> Iterator[Event]:
        """Follow the batches to their end (RSN-33X)."""
        assert self._state is not None
        first, batches = self._state.finished, prepared.batches
        followed = following.follow(
            self._zk,
            batches,
            timeout_s=timeout_s,
            on_progress=self._on_progress,
            on_batch=lambda number, finished: self._note_batch(first + number, finished),
            started=started,
            replacing=prepared.replacing,
        )
        unsent = frozenset(p for batch in batches[followed.sent :] for p in batch)
        yield from self._end(unsent, finished=followed.finished == len(batches))

    def _note_batch(self, number: int, finished: bool) -> None:
        """Note it in the state file, before anything is built on it. Raises RefusedError: it was cancelled elsewhere.

        The file may have gone because a --verify found all completed before this run looked: then this run has ended.
        """
        assert self._state is not None
        elsewhere = self._files.unfinished_run(self._plan)
        done = elsewhere is None and status.verify(self._zk, self._moves, preserve_throttles=True).completed
        if not done and (elsewhere is None or elsewhere.cancelled):
            raise RefusedError("the run was cancelled: no further batch is sent")
        self._state = self._state.with_batch(number, finished=finished)
        if not done and self._state != elsewhere:
            self._state.write(self._files.state)

    def _end(self, unsent: Set[TopicPartition], *, finished: bool) -> Iterator[Event]:
        """Tell how far it is, and leave the throttle and the state file as that asks for."""
        assert self._state is not None
        found = status.verify(self._zk, self._moves, preserve_throttles=True)
        moves = _with_pending(found.items, unsent)
        yield events.Ended(moves, found.completed, finished, unsent=len(unsent), awaited=found.awaited)
        if finished and not status.find_requested(self._zk, self._moves):  # by one that took its place, say
            yield from self._finish(self._state)
        else:
            yield from self._leave(self._state)

    def _finish(self, state: RunState) -> Iterator[Event]:
        """Make throttles what they were; then nothing is left to resume."""
        yield from self._own_throttles.restore(state)
        remove(self._files.state)
        if brokers := self._own_throttles.find_rates_left(state, self._rates):
            yield events.RatesLeft(brokers)

    def _leave(self, state: RunState) -> Iterator[Event]:
        """Leave the state file for --resume."""
        throttled, moving, unseen = bool(state.throttles), True, None
        try:
            moving = not read_cluster(self._zk, self._own_throttles.topics, states=False).moving.isdisjoint(self._moves)
            if throttled and not moving:
                yield from self._own_throttles.restore(state)
                throttled = False
        except ZooKeeperError as e:
            unseen = e
        yield LeftUnfinished(moving, throttled, unseen)

    # --- verify -----------------------------------------------------------------------------------------------------

    def wait(self, timeout_s: float | None) -> Iterator[Event]:
        """Wait until nothing of the plan is under way, nor to be sent by a kt that carries it out (RSN-33X).

        Also what a request moves, wherever to: it is told as in progress.
        """
        yield Following(to_copy(self._zk, self._plan))
        seen: RunState | None = None
        found: frozenset[TopicPartition] = frozenset()

        def unsent(sent: Set[TopicPartition]) -> frozenset[TopicPartition]:
            """Return what a run in batches, under way elsewhere, is still to send; ``sent`` is under way just now.

            Empty if there is no such run, if it was cancelled, or if it ended early and nothing of it is left to end. A
            run notes a batch as sent before it sends it, so what counts is what was noted as finished.
            """
            nonlocal seen, found
            run = self._files.unfinished_run(self._plan)
            if run is None or run.cancelled or run.finished == len(run.batches):
                seen = None
                return frozenset()
            if run != seen or not sent:  # else what was sent is all that can have changed
                moves = status.verify(self._zk, self._plan, preserve_throttles=True).items
                found = frozenset(m.partition for m in moves if m.status is not Status.COMPLETED)
            if not sent and not self._files.is_carried_out():
                return frozenset()
            seen = run
            found -= sent
            return found

        following.wait(
            self._zk,
            self._plan,
            timeout_s=timeout_s,
            on_progress=self._on_progress,
            requested=lambda: status.find_requested(self._zk, self._plan),
            unsent=unsent,
        )

    def left_waiting(self) -> LeftWaiting:
        """Look where the plan stands when the wait for it was cut short, which changes nothing."""
        run = self._files.unfinished_run(self._plan)
        try:
            found, carried_out = self._look(run, preserve_throttles=True)
            throttled = bool(throttles.plan_removal(self._zk, self._own_throttles.topics))
        except ZooKeeperError:
            return LeftWaiting(None, self._files.is_carried_out(), throttled=False)
        return LeftWaiting(found, carried_out, throttled)

    def verify(self, *, preserve_throttles: bool) -> Iterator[Event]:
        """Tell how far the plan is; if all is done take throttles off and end a run that has left its state."""
        run = self._files.unfinished_run(self._plan)
        ends = None if preserve_throttles else run
        found, carried_out = self._look(run, preserve_throttles=preserve_throttles or ends is not None)
        yield events.Verified(found, carried_out, resumable=run is not None)
        throttles.apply(self._zk, found.removal)
        if found.removal:
            yield ThrottleRemoved()
        if found.throttle_stays:
            yield events.ThrottleStays()
        if ends is not None and found.completed:
            yield from self._finish(ends)

    def _look(self, run: RunState | None, *, preserve_throttles: bool) -> tuple[Verification, bool]:
        """Compare the plan with the cluster, what ``run`` is still to send being pending; tell if a kt carries it out."""
        found = status.verify(self._zk, self._plan, preserve_throttles=preserve_throttles)
        carried_out = self._files.is_carried_out()
        moves = _with_pending(found.items, _not_sent(found.items, run, carried_out))
        return replace(found, items=moves), carried_out


def _not_sent(moves: Sequence[Move], run: RunState | None, carried_out: bool) -> Set[TopicPartition]:
    """Return what looks failed and was not sent: batches are sent in the plan's order, so those are the last ones.

    A batch is noted as sent before it is: of a run that is under way one that has not finished may be about to be.
    """
    batches = run.batches if run is not None else ()
    unsent = sum(batch.partitions for batch in batches if not (batch.finished if carried_out else batch.sent))
    failed = [m.partition for m in moves if m.status is Status.FAILED]
    return set(failed[max(0, len(failed) - unsent) :])


def _with_pending(moves: Sequence[Move], unsent: Set[TopicPartition]) -> tuple[Move, ...]:
    """Return ``moves`` in which what was not sent is pending, where it looked failed."""
    return tuple(
        m._replace(status=Status.PENDING) if m.partition in unsent and m.status is Status.FAILED else m for m in moves
    )
