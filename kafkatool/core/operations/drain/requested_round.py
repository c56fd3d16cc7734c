"""One round of a drain, carried out by requests to the controller, batch after batch (ADM-106).

What it does is in the state file before it is done, as runs by ZooKeeper have it: whoever comes next, by either way, ends
or undoes it.
"""

import time
from collections.abc import Callable, Generator, Iterator, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import Final

from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.errors import KafkatoolError, RefusedError
from kafkatool.core.model.moves import Status
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.drain import requested_throttles
from kafkatool.core.operations.drain.way import Terms
from kafkatool.core.operations.reassignment import events
from kafkatool.core.operations.reassignment import following_by_request as following
from kafkatool.core.operations.reassignment.copy_progress import Replica, ToCopy
from kafkatool.core.operations.reassignment.events import Event
from kafkatool.core.operations.reassignment.following import Progress
from kafkatool.core.operations.reassignment.following_by_request import Waited
from kafkatool.core.operations.reassignment.runs.saved_run import PATIENCE_S, PAUSE_S, RunFiles, RunState, remove
from kafkatool.core.operations.reassignment.status import Verification
from kafkatool.core.operations.reassignment.submission import MAX_BATCH_BYTES, Submission
from kafkatool.core.operations.reassignment.throttles import SavedThrottle, merged
from kafkatool.core.operations.requests import comparing, reassignments, throttles
from kafkatool.core.operations.requests.moving import read_moves
from kafkatool.core.operations.requests.throttles import Throttle
from kafkatool.core.operations.requests.topic_reading import read_topics, replicas_in
from kafkatool.core.planner.plan_files import Moves, split_plan
from kafkatool.core.protocol.messages.error_codes import ErrorCode

SHOWN: Final = 3  # refusals in one line
_GONE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)  # the topic was deleted since it was planned
_ENDED: Final = (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, *_GONE)


class RequestedRound:
    """The run of one plan by one client, of one thread. Its methods do the work while their events are taken.

    ``on_progress`` is told how far the plan is, from each Following to the next other event. Whoever starts or resumes
    holds the lock of ``files``, and calls ``end_early`` if anything, also of its own, cuts the events short.
    """

    def __init__(
        self, client: ClusterClient, plan: Moves, files: RunFiles, *, on_progress: Callable[[Progress], None]
    ) -> None:
        self._client, self._plan, self._files, self._on_progress = client, plan, files, on_progress
        self._moves = plan  # what this run is to achieve of the plan
        self._state: RunState | None = None  # what the state file says, once it is this run's

    # --- start and resume -------------------------------------------------------------------------------------------

    def start(self, prepared: Submission, *, timeout_s: float | None) -> Iterator[Event]:
        """Save the way back, set throttles, begin the first batch, and see all of them to their end.

        Raises RefusedError, BrokerUnreachableError; throttles are then as they were, unless something of it may move.
        """
        kept = self._files.save_way_back(self._plan, prepared.way_back)
        yield events.WayBack(prepared, self._files.rollback, saved=True, kept=kept)
        self._moves = prepared.moves
        self._write(RunState.of(self._plan, prepared).with_batch(0, finished=False))
        lacking = {Replica(p, b) for p, to in prepared.moves.items() for b in to if b not in prepared.current[p]}
        try:
            self._set_throttles(prepared.saved)
            self._send(prepared.batches[0])
        except KafkatoolError:
            self._undo_start()
            raise
        yield events.Started(prepared)
        yield events.Following(ToCopy(frozenset(lacking), dict(self._client.brokers)))
        yield from self._follow(prepared.batches, started=True, timeout_s=timeout_s)

    def resume(self, state: RunState, *, timeout_s: float | None) -> Iterator[Event]:
        """Set the throttles again, let end what is under way, begin what is left. Raises as ``start`` does."""
        self._state = state
        begun = time.monotonic()
        self._client.begin_anew()
        requested_throttles.set_again(self._client, state.throttles)
        yield events.Following(following.read_copying(self._client, self._plan), "under way")
        waited = self._wait(self._plan, timeout_s, self._on_progress)
        if not waited.ended:
            yield from self._end(frozenset(), waited)
            return
        self._client.begin_anew()
        current = replicas_in(read_topics(self._client, sorted({p.topic for p in self._plan})), self._plan)
        cut = split_plan(self._plan, max_bytes=state.max_json_size, max_count=state.batch_partitions)
        left = [{p: to for p, to in batch.items() if p in current and current[p] != to} for batch in cut]
        batches = [batch for batch in left if batch]
        if gone := tuple(p for p in self._plan if p not in current):
            yield events.Gone(gone)
        self._moves = {p: to for batch in batches for p, to in batch.items()}
        if state.cancelled and state.rate is not None:  # its lists may be those of a way back
            self._throttle_anew(state, self._moves, current, state.rate)
        self._write(self._state.resumed(batches))  # also if it was cancelled: this is to go on
        remaining_s = None if timeout_s is None else max(0.0, timeout_s - (time.monotonic() - begun))
        lacking = frozenset(Replica(p, b) for p, to in self._moves.items() for b in to if b not in current[p])
        yield events.Following(ToCopy(lacking, dict(self._client.brokers)))
        yield from self._follow(batches, started=False, timeout_s=remaining_s)

    def end_early(self) -> Iterator[Event]:
        """Put throttles back unless something still moves under them (RSN-23X). Nothing happens without a state file."""
        if self._state is not None and self._files.state.exists():
            yield from self._leave(self._state)

    def _undo_start(self) -> None:
        """Leave nothing of a start that the controller took nothing of; what cannot be undone is left to be resumed."""
        assert self._state is not None
        try:
            self._client.begin_anew()
            if read_moves(self._client, self._plan, needed=True):
                return
            self._put_back(self._state, others_move=False)
        except KafkatoolError:
            return
        remove(self._files.state)

    def _write(self, state: RunState) -> None:
        self._state = state
        state.write(self._files.state)

    def _set_throttles(self, saved: Sequence[SavedThrottle]) -> None:
        throttles.carry_out(self._client, requested_throttles.setting_changes(self._client, saved))

    def _send(self, targets: Moves) -> None:
        """Begin those moves. Raises RefusedError with the controller's reasons for what it refuses."""
        self._client.begin_anew()
        _check(reassignments.send(self._client, reassignments.requests(self._client, targets)), _GONE)

    def _wait(
        self,
        partitions: Moves,
        timeout_s: float | None,
        on_progress: Callable[[Progress], None],
        interrupted: Callable[[], bool] = lambda: False,
    ) -> Waited:
        return following.wait(
            self._client, partitions, timeout_s=timeout_s, on_progress=on_progress, interrupted=interrupted
        )

    def _follow(self, batches: Sequence[Moves], *, started: bool, timeout_s: float | None) -> Iterator[Event]:
        """Follow the batches to their end (RSN-33X)."""
        assert self._state is not None
        first, begun = self._state.finished, time.monotonic()
        for number, batch in enumerate(batches):
            if number or not started:
                self._note_batch(first + number, finished=False)
                self._send(batch)
            left_s = None if timeout_s is None else max(0.0, begun + timeout_s - time.monotonic())
            waited = self._wait(batch, left_s, partial(self._report, batches, number, begun))
            if not waited.ended:
                yield from self._end(frozenset(p for later in batches[number + 1 :] for p in later), waited)
                return
            self._note_batch(first + number, finished=True)
        yield from self._end(frozenset(), Waited(ended=True))

    def _report(self, batches: Sequence[Moves], number: int, begun: float, p: Progress) -> None:
        """Tell how far all batches are, from how far batch ``number`` is."""
        done, total = sum(map(len, batches[:number])), sum(map(len, batches))
        told = replace(p, finished=done + p.finished, total=total, elapsed_s=time.monotonic() - begun)
        left = p.left.union(*batches[number + 1 :])
        self._on_progress(replace(told, left=left, batch=number + 1, batches=len(batches)))

    def _note_batch(self, number: int, *, finished: bool) -> None:
        """Note it in the state file, before anything is built on it. Raises RefusedError: it was cancelled elsewhere."""
        assert self._state is not None
        elsewhere = self._files.unfinished_run(self._plan)
        if elsewhere is None or elsewhere.cancelled:
            raise RefusedError("the run was cancelled: no further batch is sent")
        self._write(self._state.with_batch(number, finished=finished))

    def _end(self, unsent: Set[TopicPartition], waited: Waited) -> Iterator[Event]:
        """Tell how far it is, and leave the throttle and the state file as that asks for."""
        assert self._state is not None
        look = comparing.compare_settled if waited.ended else comparing.compare
        found = look(self._client, self._moves) if self._moves else []
        moves = tuple(m._replace(status=Status.PENDING) if m.partition in unsent else m for m in found)
        completed = all(m.status is Status.COMPLETED for m in found)
        yield events.Ended(moves, completed, waited.ended, unsent=len(unsent), awaited=waited.awaited)
        if not waited.ended:
            yield from self._leave(self._state)
            return
        yield from self._remove_throttle(self._state)
        remove(self._files.state)

    def _leave(self, state: RunState) -> Iterator[Event]:
        """Leave the state file for --resume."""
        throttled, moving, unseen = bool(state.throttles), True, None
        try:
            self._client.begin_anew()
            moving = bool(read_moves(self._client, self._plan, needed=True))
            if throttled and not moving:
                yield from self._remove_throttle(state)
                throttled = False
        except KafkatoolError as e:
            unseen = e
        yield events.LeftUnfinished(moving, throttled, unseen)

    def _remove_throttle(self, state: RunState) -> Iterator[Event]:
        if not state.throttles:
            return
        self._client.begin_anew()
        others_move = bool(read_moves(self._client, needed=True))
        restored = self._put_back(state, others_move=others_move)
        if restored.down:
            yield events.ThrottleLeft(restored.down)
        yield events.ThrottleStays() if others_move else events.ThrottleRemoved(restored.changed)

    def _put_back(self, state: RunState, *, others_move: bool) -> requested_throttles.Restored:
        return requested_throttles.put_back(self._client, state.throttles, others_move=others_move)

    # --- cancel -----------------------------------------------------------------------------------------------------

    def cancel(self, origin: Moves, terms: Terms | None, *, timeout_s: float | None) -> Iterator[Event]:
        """Begin nothing more, and have the controller end what moves; with ``terms`` what has ended goes to ``origin`` too.

        Raises RefusedError: the controller refuses to.
        """
        try:
            RunState.read(self._files.state, self._plan)
        except RefusedError as e:
            if not isinstance(e.__cause__, FileNotFoundError):
                if terms is not None and terms.throttle is not None:
                    raise  # there is no place to note the throttle
                yield events.NotCancelled(e)
        waited = yield from self._stop(origin, timeout_s)
        if waited.ended and terms is not None:
            waited = yield from self._go_back(origin, terms, timeout_s)
        if waited.ended:
            yield from self._end_throttles()
        else:
            yield from self.end_cancel()
        look = comparing.compare_settled if waited.ended and terms is not None else comparing.compare
        found = look(self._client, self._plan if terms is None else origin)
        yield events.Cancelled(Verification(tuple(found), (), waited.awaited), waited.ended)

    def end_cancel(self) -> Iterator[Event]:
        """Tell where things stand, and put throttles back unless something still moves under them (RSN-23X)."""
        self._client.begin_anew()
        moving = read_moves(self._client, self._plan, needed=True)
        forward = sum(sorted(m.target) == sorted(self._plan[p]) for p, m in moving.items())
        if not moving:
            yield from self._end_throttles()
        copying = any(m.adding for m in moving.values())
        run = self._files.unfinished_run(self._plan)
        throttled = bool(moving) and run is not None and bool(run.throttles)
        yield events.CancelCutShort(forward, len(moving) - forward, copying, throttled)

    def _stop(self, origin: Moves, timeout_s: float | None) -> Generator[Event, None, Waited]:
        """Send back what moves, and wait until nothing of the plan does, and none will follow.

        A kt that carries out the plan may begin a batch at the same moment: so the mark and the moves are looked at again,
        and only when it has let go of its lock nothing follows.
        """
        begun = time.monotonic()
        patience_s = PATIENCE_S if timeout_s is None else min(PATIENCE_S, timeout_s)
        yield events.Following(following.read_copying(self._client, self._plan), "under way")
        ended_at: float | None = None
        while True:
            self._mark()
            if sent := self._send_back(origin):
                ended_at = None
                yield events.SentBack(sent)
                yield events.Following(following.read_copying(self._client, self._plan), "under way")
            left_s = None if timeout_s is None else max(0.0, begun + timeout_s - time.monotonic())
            waited = self._wait(self._plan, left_s, self._on_progress, interrupted=lambda: bool(self._forward(origin)))
            if not waited.ended:
                if (left_s is None or left_s > 0) and self._forward(origin):  # begun meanwhile
                    time.sleep(PAUSE_S)
                    continue
                return waited
            ended_at = time.monotonic() if ended_at is None else ended_at
            if not self._files.is_carried_out():
                return waited
            if time.monotonic() >= ended_at + patience_s:
                yield events.StillCarriedOut()
                return waited
            time.sleep(PAUSE_S)

    def _mark(self) -> None:
        """Mark the state file of a run of this plan as cancelled."""
        run = self._files.unfinished_run(self._plan)
        if run is not None and not run.cancelled:
            run.cancel().write(self._files.state)

    def _forward(self, origin: Moves) -> list[TopicPartition]:
        """Return what moves of the plan and is not on its way back."""
        self._client.begin_anew()
        moving = read_moves(self._client, self._plan, needed=True)
        return [p for p, m in moving.items() if not m.is_to(origin.get(p))]

    def _send_back(self, origin: Moves) -> int:
        """Cancel what moves and is not on its way back. Return how many were."""
        wanted = self._forward(origin)
        sent = reassignments.send(self._client, reassignments.requests(self._client, dict.fromkeys(wanted)))
        _check(sent, _ENDED)
        return sum(e is None for e in sent.values())

    def _go_back(self, origin: Moves, terms: Terms, timeout_s: float | None) -> Generator[Event, None, Waited]:
        """Move what has ended back to where it was, batch after batch."""
        self._client.begin_anew()
        current = replicas_in(read_topics(self._client, sorted({p.topic for p in origin})), origin)
        back = {p: to for p, to in origin.items() if p in current and current[p] != to}
        if gone := tuple(p for p in origin if p not in current):
            yield events.Gone(gone)
        self._throttle_way_back(back, current, terms)
        lacking = frozenset(Replica(p, b) for p, to in back.items() for b in to if b not in current[p])
        yield events.Following(ToCopy(lacking, dict(self._client.brokers)), "back")
        batches, begun = split_plan(back, max_bytes=MAX_BATCH_BYTES, max_count=terms.batch_partitions), time.monotonic()
        for number, batch in enumerate(batches):
            self._send(batch)
            left_s = None if timeout_s is None else max(0.0, begun + timeout_s - time.monotonic())
            waited = self._wait(batch, left_s, partial(self._report, batches, number, begun))
            if not waited.ended:
                return waited
        return Waited(ended=True)

    def _throttle_way_back(self, back: Moves, current: Moves, terms: Terms) -> None:
        """Set the throttle of the way back in place of the run's own; without one take that off."""
        run = self._files.unfinished_run(self._plan)
        if terms.throttle is None:
            if run is not None and run.throttles:
                self._put_back(run, others_move=bool(read_moves(self._client, needed=True)))
            return
        if run is None:
            run = RunState.of_ended(self._plan, MAX_BATCH_BYTES, terms.batch_partitions)
        self._throttle_anew(run, back, current, terms.throttle)

    def _throttle_anew(self, run: RunState, moves: Moves, current: Moves, rate: int) -> None:
        """Set the throttle that fits those moves in place of that of ``run``, and note in the state file what to undo.

        Lists are put back first: so at any moment they are what stood there before, or what the file says.
        """
        if run.throttles:
            self._put_back(run, others_move=True)  # the rates stay
        if not moves:
            return
        fitting = requested_throttles.plan(self._client, Throttle.of(moves, current, {}), rate)
        self._write(replace(run, throttles=merged(run.throttles, fitting)))
        self._set_throttles(fitting)

    def _end_throttles(self) -> Iterator[Event]:
        """Put back what a run of this plan has set, and end it."""
        if (run := self._files.unfinished_run(self._plan)) is not None:
            yield from self._remove_throttle(run)
            remove(self._files.state)


def _check(outcome: reassignments.Refusals, harmless: Sequence[int]) -> None:
    """Raise RefusedError with the controller's reasons for what it refuses, but for what is ``harmless``."""
    refused = [(p, e) for p, e in sorted(outcome.items()) if e is not None and e.code not in harmless]
    if refused:
        told = "; ".join(f"{p}: {e}" for p, e in refused[:SHOWN])
        raise RefusedError(f"the controller refuses {len(refused)} of {len(outcome)} partitions: {told}")
