"""A plan carried out over its whole life: start, follow, resume after a death, verify, cancel, go back (RSN-8 to RSN-37X).

Each step is noted in the state file before it is taken, so whoever comes next can end the run, however the last one died.
"""

import time
from collections.abc import Callable, Generator, Iterator, Sequence, Set
from dataclasses import replace
from typing import Final

from kafkatool.core.errors import RefusedError, VersionConflictError, ZnodeTooLargeError, ZooKeeperError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.reassignment import events, following, status, throttles
from kafkatool.core.operations.reassignment.copy_progress import to_copy
from kafkatool.core.operations.reassignment.events import Event, Following, LeftUnfinished, ThrottleRemoved, WayBack
from kafkatool.core.operations.reassignment.following import Progress
from kafkatool.core.operations.reassignment.saved_run import RunFiles, RunState, remove
from kafkatool.core.operations.reassignment.status import Move, Status
from kafkatool.core.operations.reassignment.submission import Prepared, prepare, start
from kafkatool.core.planner.plan_files import Moves, PartitionName, plan_json, write_file
from kafkatool.core.zookeeper.session import ZooKeeper

PATIENCE_S: Final = 10.0  # a kt that carries out a plan looks for the mark every second
PAUSE_S: Final = 0.1


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
        self._moves = plan  # what this run is to achieve of the plan
        self._state: RunState | None = None  # what the state file says, once it is this run's

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
            yield events.Unchanged(len(prepared.unchanged))
        yield self._save_way_back(prepared)
        if not followed:
            start(self._zk, prepared, name_of=self._name_of)
            yield events.Started(prepared)
            return
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
        yield from self._follow(prepared.batches, started=True, timeout_s=timeout_s)

    def resume(self, state: RunState, *, force: bool, timeout_s: float | None) -> Iterator[Event]:
        """Go on where a run ended (RSN-22X): set its throttles, let end what is under way, send what is left."""
        self._state = state
        begun = time.monotonic()
        throttles.set_again(self._zk, state.throttles)
        yield Following(to_copy(self._zk, self._plan), "under way")
        if not following.wait(self._zk, self._plan, timeout_s=timeout_s, on_progress=self._on_progress):
            yield from self._end(frozenset(), finished=False)
            return
        left = prepare(
            self._zk,
            self._plan,
            skip_unchanged=True,
            force=force,
            max_bytes=state.max_json_size,
            max_count=state.batch_partitions,
            name_of=self._name_of,
        )
        self._write(state.resumed(left.batches))  # also if it was cancelled: this is to go on
        remaining_s = None if timeout_s is None else max(0.0, timeout_s - (time.monotonic() - begun))
        yield Following(to_copy(self._zk, left.moves))
        yield from self._follow(left.batches, started=False, timeout_s=remaining_s)

    def end_early(self) -> Iterator[Event]:
        """Take off the throttle of a run that was cut short unless something still moves under it (RSN-23X).

        Nothing happens if there is no run to resume.
        """
        if self._state is not None and self._files.state.exists():
            yield from self._leave(self._state)

    def _save_way_back(self, prepared: Prepared) -> WayBack:
        """Write it to the disk before anything else (RSN-21X). Raises RefusedError.

        A plan that was carried out already has no way back of its own: the one that its first run saved stays.
        """
        file = self._files.rollback
        if len(prepared.unchanged) == len(prepared.moves) and file.exists():
            return WayBack(prepared, file, saved=False)
        return WayBack(prepared, file, saved=True, kept=write_file(file, plan_json(prepared.way_back)))

    def _write(self, state: RunState) -> None:
        self._state = state
        state.write(self._files.state)

    def _follow(self, batches: Sequence[Moves], *, started: bool, timeout_s: float | None) -> Iterator[Event]:
        """Follow the batches to their end (RSN-33X)."""
        assert self._state is not None
        first = self._state.finished
        followed = following.follow(
            self._zk,
            batches,
            timeout_s=timeout_s,
            on_progress=self._on_progress,
            on_batch=lambda number, finished: self._note_batch(first + number, finished),
            started=started,
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
        yield events.Ended(moves, completed=found.completed, finished=finished, unsent=len(unsent))
        yield from self._finish(self._state) if finished else self._leave(self._state)

    def _finish(self, state: RunState) -> Iterator[Event]:
        """Make throttles what they were; then nothing is left to resume."""
        yield from self._remove_throttle(state)
        remove(self._files.state)

    def _leave(self, state: RunState) -> Iterator[Event]:
        """Leave the state file for --resume."""
        throttled, moving, unseen = bool(state.throttles), True, None
        try:
            moving = bool(set(status.running(self._zk) or ()).intersection(self._moves))
            if throttled and not moving:
                yield from self._remove_throttle(state)
                throttled = False
        except ZooKeeperError as e:
            unseen = e
        yield LeftUnfinished(moving, throttled, unseen)

    def _remove_throttle(self, state: RunState) -> Iterator[ThrottleRemoved]:
        changed = throttles.restore(self._zk, state.throttles)
        if state.throttles:
            yield ThrottleRemoved(tuple(changed))

    # --- verify -----------------------------------------------------------------------------------------------------

    def wait(self, timeout_s: float | None) -> Iterator[Event]:
        """Wait until nothing of the plan is under way, nor to be sent by a kt that carries it out (RSN-33X)."""
        yield Following(to_copy(self._zk, self._plan))
        seen: RunState | None = None
        found: frozenset[TopicPartition] = frozenset()

        def unsent(sent: Set[TopicPartition]) -> frozenset[TopicPartition]:
            """Return what a run in batches, under way elsewhere, is still to send; ``sent`` is in the znode just now.

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

        following.wait(self._zk, self._plan, timeout_s=timeout_s, on_progress=self._on_progress, unsent=unsent)

    def verify(self, *, preserve_throttles: bool) -> Iterator[Event]:
        """Tell how far the plan is; if all is done take throttles off and end a run that has left its state."""
        run = self._files.unfinished_run(self._plan)
        ends = None if preserve_throttles else run
        found = status.verify(self._zk, self._plan, preserve_throttles=preserve_throttles or ends is not None)
        carried_out = self._files.is_carried_out()
        moves = _with_pending(found.items, _not_sent(found.items, run, carried_out))
        yield events.Verified(replace(found, items=moves), carried_out, resumable=run is not None)
        throttles.apply(self._zk, found.removal)
        if found.removal:
            yield ThrottleRemoved()
        if ends is not None and found.completed:
            yield from self._finish(ends)

    # --- cancel -----------------------------------------------------------------------------------------------------

    def cancel(
        self, before: Moves | None, *, timeout_s: float | None, force: bool, preserve_throttles: bool
    ) -> Iterator[Event]:
        """Send nothing more, let end what is under way, and go back to ``before`` unless that is None (RSN-37X)."""
        try:
            RunState.read(self._files.state, self._plan)
        except RefusedError as e:
            if not isinstance(e.__cause__, FileNotFoundError):
                yield events.NotCancelled(e)
        ended = yield from self._stop(timeout_s)
        if ended and before is not None:
            ended = yield from self._go_back(before, timeout_s=timeout_s, force=force)
        if ended and not preserve_throttles and (run := self._files.unfinished_run(self._plan)) is not None:
            yield from self._finish(run)
        found = status.verify(self._zk, before if before is not None else self._plan, preserve_throttles=True)
        yield events.Cancelled(found, ended)

    def _stop(self, timeout_s: float | None) -> Generator[Event, None, bool]:
        """Wait until no batch of the plan is in the znode, and none will follow; False: the deadline passed first.

        A kt that carries out the plan may write its file at the same moment, over the mark, and send what it was about
        to: only when it has let go of its lock nothing follows. One that does not see the mark, as it is suspended, say,
        is not waited for: it will see it.
        """
        patience_s = PATIENCE_S if timeout_s is None else min(PATIENCE_S, timeout_s)
        ended_at: float | None = None
        yield Following(to_copy(self._zk, self._plan), "under way")
        while True:
            run = self._files.unfinished_run(self._plan)
            if run is not None and not run.cancelled:
                ended_at = None
                run.cancel().write(self._files.state)
            if not following.wait(self._zk, self._plan, timeout_s=timeout_s, on_progress=self._on_progress):
                return False
            ended_at = time.monotonic() if ended_at is None else ended_at
            run = self._files.unfinished_run(self._plan)
            if run is None or run.cancelled:
                if not self._files.is_carried_out():
                    return True
                if time.monotonic() >= ended_at + patience_s:
                    yield events.StillCarriedOut()
                    return True
                time.sleep(PAUSE_S)

    def _go_back(self, before: Moves, *, timeout_s: float | None, force: bool) -> Generator[Event, None, bool]:
        """Submit what differs from ``before`` and follow it; False: the deadline passed first."""
        prepared = prepare(self._zk, before, skip_unchanged=True, force=force, name_of=self._name_of)
        yield Following(to_copy(self._zk, prepared.moves), "back")
        followed = following.follow(
            self._zk, prepared.batches, timeout_s=timeout_s, on_progress=self._on_progress, started=False
        )
        return followed.finished == len(prepared.batches)


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
        replace(m, status=Status.PENDING) if m.partition in unsent and m.status is Status.FAILED else m for m in moves
    )
