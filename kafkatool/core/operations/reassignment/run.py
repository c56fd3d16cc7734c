"""A plan carried out over its whole life: start, follow, resume after a death, verify, cancel, go back (RSN-8 to RSN-37X).

Each step is noted in the state file before it is taken, so whoever comes next can end the run, however the last one died.
"""

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkatool.core.errors import (
    NoNodeError,
    NoPermissionError,
    RefusedError,
    VersionConflictError,
    ZnodeTooLargeError,
    ZooKeeperError,
)
from kafkatool.core.model.moves import Move, Status
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.config_writes import ConfigWrite
from kafkatool.core.operations.reassignment import cancelling, events, following, status, throttles
from kafkatool.core.operations.reassignment.copy_progress import to_copy
from kafkatool.core.operations.reassignment.events import Event, Following, LeftUnfinished, ThrottleRemoved, WayBack
from kafkatool.core.operations.reassignment.following import Progress
from kafkatool.core.operations.reassignment.saved_run import RunFiles, RunState, remove
from kafkatool.core.operations.reassignment.status import Verification
from kafkatool.core.operations.reassignment.submission import (
    Prepared,
    plan_send_back,
    plan_throttle,
    prepare,
    send_back,
    start,
)
from kafkatool.core.planner.plan_files import Moves, PartitionName
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import Create, Op, ZooKeeper
from kafkatool.core.zookeeper.znodes import ReassignmentZnode

if TYPE_CHECKING:  # the wire protocol takes as long to import as all else
    from kafkatool.core.client.access import BrokerAccess
    from kafkatool.core.client.cluster import ClusterClient
    from kafkatool.core.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest

PATIENCE_S: Final = 10.0  # a kt that carries out a plan looks for the mark every second
PAUSE_S: Final = 0.1


@dataclass(slots=True)
class _Turning:
    """What a cancel has sent back, and has to tell. ``since``: when it last did, until it was told that nothing came.

    ``client``: the controller is asked; None: the way back is written.
    """

    client: "ClusterClient | None" = None
    sent_back: frozenset[TopicPartition] = frozenset()
    unknown: frozenset[TopicPartition] = frozenset()
    since: float | None = None
    news: list[Event] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LeftWaiting:
    """How far a plan is that is no longer waited for; ``found`` is None if that cannot be seen any more.

    ``carried_out``: a kt is still to send the rest. ``throttled``: throttles are set.
    """

    found: Verification | None
    carried_out: bool
    throttled: bool


class PlannedCancel(NamedTuple):
    """What a cancel would ask the controller for, and write; ``gone``: what does not exist any more of the way back."""

    requests: "list[AlterPartitionReassignmentsRequest]"
    ops: list[Op]
    gone: tuple[TopicPartition, ...]


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
        self._rates = self._read_rates()
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
        self._state, self._rates = state, self._read_rates()
        begun = time.monotonic()
        if any(to != self._plan.get(p, to) for p, to in (status.running(self._zk) or {}).items()):
            origin = self._files.known_way_back(self._plan, name_of=self._name_of)
            with cancelling.asking(self._zk, self._plan, access) as client:
                if client is not None:
                    ended = cancelling.end_moves(client, self._zk, self._plan, origin, turned_only=True)
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
            self._throttle_anew(state, left.moves, state.rate)
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
        yield from self._remove_throttle(state)
        remove(self._files.state)
        if brokers := self._find_rates_left(state):
            yield events.RatesLeft(brokers)

    def _read_rates(self) -> Mapping[int, Mapping[str, str]] | None:
        try:
            return throttles.rates_by_broker(self._zk)
        except NoPermissionError:
            return None

    def _find_rates_left(self, state: RunState) -> tuple[int, ...]:
        """Return the brokers with rates that others have set since the run began, as those of a throttle (RSN-10)."""
        now = self._read_rates()
        if self._rates is None or not now:
            return ()
        before = {**self._rates, **{int(t.name): t.before for t in state.throttles if t.entity_type == "brokers"}}
        left = tuple(broker for broker, rates in sorted(now.items()) if rates != before.get(broker))
        return () if left and self._find_others() else left

    def _leave(self, state: RunState) -> Iterator[Event]:
        """Leave the state file for --resume."""
        throttled, moving, unseen = bool(state.throttles), True, None
        try:
            moving = not read_cluster(self._zk, self._topics, states=False).moving.isdisjoint(self._moves)
            if throttled and not moving:
                yield from self._remove_throttle(state)
                throttled = False
        except ZooKeeperError as e:
            unseen = e
        yield LeftUnfinished(moving, throttled, unseen)

    def _remove_throttle(self, state: RunState) -> Iterator[Event]:
        if not state.throttles:
            return
        restored = throttles.restore(self._zk, state.throttles, state.earlier, self._find_others())
        yield events.ThrottleStays() if restored.rates_stay else ThrottleRemoved(restored.changed)

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
            throttled = bool(throttles.plan_removal(self._zk, self._topics))
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

    # --- cancel -----------------------------------------------------------------------------------------------------

    def cancel(
        self,
        origin: Moves,
        access: "BrokerAccess",
        *,
        rollback: bool,
        timeout_s: float | None,
        force: bool,
        preserve_throttles: bool,
        throttle: int | None = None,
        batch_partitions: int = 0,
    ) -> Iterator[Event]:
        """Send nothing more, and send what is under way back to ``origin``, as far as that is known (RSN-37X).

        The controller is asked to, where it takes such a request, else the way back is written. ``rollback``: what has
        ended too goes back there, in batches of so many partitions (0: all), under ``throttle``, in bytes per second and
        broker, or None. ``preserve_throttles``: they stay, that one too. Raises ControllerUnreachableError, with nothing
        written; RefusedError.
        """
        with cancelling.asking(self._zk, self._plan, access) as client:
            yield from self._cancel(
                origin,
                client,
                rollback=rollback,
                timeout_s=timeout_s,
                force=force,
                preserve_throttles=preserve_throttles,
                throttle=throttle,
                batch_partitions=batch_partitions,
            )

    def _cancel(
        self,
        origin: Moves,
        client: "ClusterClient | None",
        *,
        rollback: bool,
        timeout_s: float | None,
        force: bool,
        preserve_throttles: bool,
        throttle: int | None,
        batch_partitions: int,
    ) -> Iterator[Event]:
        try:
            RunState.read(self._files.state, self._plan)
        except RefusedError as e:
            if not isinstance(e.__cause__, FileNotFoundError):
                if rollback and throttle is not None:
                    raise  # there is no place to note the throttle
                yield events.NotCancelled(e)
        if moved := status.find_requested(self._zk, self._plan):
            yield events.MovedByRequest(tuple(sorted(moved)))
        ended = yield from self._stop(origin, timeout_s, client)
        if ended and rollback:
            back = prepare(
                self._zk,
                origin,
                skip_unchanged=True,
                skip_gone=True,
                force=force,
                max_count=batch_partitions,
                name_of=self._name_of,
            )
            if back.gone:
                yield events.Gone(back.gone)
            if throttle is not None or not preserve_throttles:
                self._throttle_way_back(back, throttle)
            ended = yield from self._go_back(back, timeout_s=timeout_s)
        ended = ended and not status.find_requested(self._zk, self._plan)  # which the znode does not reach
        if not ended:
            yield from self.end_cancel(preserve_throttles=preserve_throttles)
        elif not preserve_throttles:
            yield from self._end_throttles()
        found = status.verify(self._zk, origin if rollback else self._plan, preserve_throttles=True)
        yield events.Cancelled(found, ended)

    def rate_begun(self) -> int | None:
        """Read the bytes per second and broker that the plan was begun under, if that stands still; None: it does not.

        Nor is it told where another plan has its state file: there is no place to note what is set anew.
        """
        if (run := self._files.unfinished_run(self._plan)) is not None:
            return run.rate
        if self._files.state.exists() or not self._topics.intersection(throttles.listed_topics(self._zk)):
            return None
        rates = throttles.rates_by_broker(self._zk).values()
        return max((int(rate) for keys in rates for rate in keys.values() if rate.isdecimal()), default=None)

    def plan_cancel(
        self,
        origin: Moves,
        client: "ClusterClient | None",
        *,
        rollback: bool,
        preserve_throttles: bool,
        throttle: int | None = None,
    ) -> PlannedCancel:
        """Plan what ``cancel`` would ask the controller for, and write, in its order, if nothing ended meanwhile (COM-6X).

        The way back of what has ended is sent, and throttles come off, when what is under way has arrived.
        """
        asked = [] if client is None else cancelling.plan_requests(client, self._zk, self._plan, origin)
        turned = plan_send_back(self._zk, self._plan, origin)[0] if client is None else None
        ops: list[Op] = [turned] if turned is not None else []
        set_for_it: list[ConfigWrite] = []
        gone: tuple[TopicPartition, ...] = ()
        if rollback:
            moving = status.running(self._zk) or {}
            ended = {p: replicas for p, replicas in origin.items() if p not in moving}
            back = prepare(self._zk, ended, skip_unchanged=True, skip_gone=True, force=True, name_of=self._name_of)
            gone = back.gone
            if throttle is not None and back.moves:
                view = read_cluster(self._zk, {p.topic for p in back.moves}, states=False)
                set_for_it = plan_throttle(self._zk, view, back.moves, throttle)
            ops += [op for write in set_for_it for op in write.ops]
            ops += [Create(ReassignmentZnode.PATH, ReassignmentZnode.encode(batch)) for batch in back.batches]
        if not preserve_throttles:
            run = self._files.unfinished_run(self._plan)
            if run is not None and run.throttles:
                writes = throttles.plan_restoration(self._zk, run.throttles)
            else:
                writes = [] if self._find_others() else throttles.plan_removal(self._zk, self._topics)
            known = {write.path for write in writes}  # what else the way back is throttled on becomes what it is now
            writes += [replace(write, config=write.stored) for write in set_for_it if write.path not in known]
            ops += [op for write in writes for op in write.ops]
        self._zk.check_permitted(ops)
        return PlannedCancel(asked, ops, gone)

    def end_cancel(self, *, preserve_throttles: bool) -> Iterator[Event]:
        """Tell where things stand, and take throttles off unless data is still copied under them (RSN-23X).

        Who cancels and then ends kt does not come back for them.
        """
        moves = {p: to for p, to in (status.running(self._zk) or {}).items() if p in self._plan}
        forward = sum(to == self._plan[p] for p, to in moves.items())
        copying = bool(status.copying(self._zk, self._plan))
        run = self._files.unfinished_run(self._plan)
        if not (preserve_throttles or copying):
            yield from self._end_throttles() if not moves else self._take_throttles_off(run)
        yield events.CancelCutShort(forward, len(moves) - forward, copying, copying or preserve_throttles)

    def _end_throttles(self) -> Iterator[Event]:
        """Take off what a run of this plan has set; one that was not followed has not saved what was there before."""
        run = self._files.unfinished_run(self._plan)
        yield from self._take_throttles_off(run)
        if run is not None:
            remove(self._files.state)

    def _take_throttles_off(self, run: RunState | None) -> Iterator[Event]:
        if run is not None and run.throttles:
            yield from self._remove_throttle(run)
            return
        removal = throttles.plan_removal(self._zk, self._topics)
        if all(write.entity_type == "brokers" for write in removal):
            return  # without lists of its topics the rates are not this plan's
        if self._find_others():
            yield events.ThrottleStays()
        else:
            throttles.apply(self._zk, removal)
            yield ThrottleRemoved()

    def _find_others(self) -> frozenset[TopicPartition]:
        """Read what moves anywhere, by either way, and was not begun by this plan."""
        view = read_cluster(self._zk, states=False)
        return view.moving.difference(set(view.reassignment or ()).intersection(self._plan))

    @property
    def _topics(self) -> set[str]:
        return {p.topic for p in self._plan}

    def _stop(
        self, origin: Moves, timeout_s: float | None, client: "ClusterClient | None"
    ) -> Generator[Event, None, bool]:
        """Send back what is in the znode, and wait until no batch of the plan is there, and none will follow.

        False: the deadline passed first. A kt that carries out the plan may write its file at the same moment, over the
        mark, and send what it was about to: so the mark and the znode are looked at again and again, and only when it has
        let go of its lock nothing follows. One that does not see the mark, as it is suspended, say, is not waited for: it
        will see it.
        """
        begun = time.monotonic()
        patience_s = PATIENCE_S if timeout_s is None else min(PATIENCE_S, timeout_s)
        turning = _Turning(client)

        def on_progress(p: Progress) -> None:
            self._on_progress(replace(p, elapsed_s=time.monotonic() - begun))

        yield Following(to_copy(self._zk, self._plan), "under way")
        ended_at: float | None = None
        while True:
            if self._mark():
                ended_at = None
            left_s = None if timeout_s is None else max(0.0, begun + timeout_s - time.monotonic())
            ended = following.wait(
                self._zk,
                self._plan,
                timeout_s=left_s,
                on_progress=on_progress,
                interrupted=lambda: self._turn_round(origin, turning),
            )
            if turning.news:
                yield from turning.news
                turning.news.clear()
                yield Following(to_copy(self._zk, self._plan), "under way")
                continue
            if not ended:
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

    def _mark(self) -> bool:
        """Mark the state file of a run of this plan as cancelled. Return whether it was not."""
        run = self._files.unfinished_run(self._plan)
        if run is None or run.cancelled:
            return False
        run.cancel().write(self._files.state)
        return True

    def _turn_round(self, origin: Moves, turning: "_Turning") -> bool:
        """Mark the run, and send back what is under way. Return whether there is something new to tell."""
        self._mark()
        by_znode = self._plan
        if turning.client is not None:
            unknown = self._ask_to_cancel(origin, turning, turning.client)
            by_znode = {p: self._plan[p] for p in unknown}
        try:
            sent = send_back(self._zk, by_znode, origin)
        except (VersionConflictError, NoNodeError):  # somebody else wrote it: the next look tries again
            return bool(turning.news)
        if sent.back:
            turning.sent_back |= sent.back
            turning.since = time.monotonic()
            turning.news.append(events.SentBack(len(sent.back)))
        if unknown := sent.unknown - turning.unknown:
            turning.unknown |= unknown
            turning.news.append(events.NotSentBack(tuple(sorted(unknown))))
        if turning.since is not None and time.monotonic() >= turning.since + PATIENCE_S:
            turning.since = None
            if still := turning.sent_back.intersection(status.running(self._zk) or ()):
                view = read_cluster(self._zk, [], states=False)
                turning.news.append(events.NotTurnedRound(len(still), view.controller_id))
        return bool(turning.news)

    def _ask_to_cancel(self, origin: Moves, turning: "_Turning", client: "ClusterClient") -> frozenset[TopicPartition]:
        """Have the controller end what is under way. Return what it cannot, and has to be told by the znode."""
        ended = cancelling.end_moves(client, self._zk, self._plan, origin)
        if new := ended.cancelled - turning.sent_back:
            turning.news.append(events.SentBack(len(new)))
        if left := ended.released - turning.sent_back:
            turning.news.append(events.Released(len(left)))
        turning.sent_back |= ended.cancelled | ended.released
        return ended.unknown

    def _throttle_way_back(self, back: Prepared, throttle: int | None) -> None:
        """Set the throttle of the way back in place of the run's own; None: take that off."""
        run = self._files.unfinished_run(self._plan)
        if throttle is None:
            if run is not None and run.throttles:
                throttles.restore(self._zk, run.throttles, run.earlier, self._find_others())
            return
        if run is None:
            if self._topics.intersection(throttles.listed_topics(self._zk)):
                list(self._take_throttles_off(run))  # of a run that was not followed
            run = RunState.of_ended(self._plan, back.max_bytes, back.max_count)
            run = replace(run, earlier=tuple(throttles.listed_topics(self._zk)))
        self._throttle_anew(run, back.moves, throttle)

    def _throttle_anew(self, run: RunState, moves: Moves, rate: int) -> None:
        """Set the throttle that fits those moves in place of that of ``run``, and note in the state file what to undo.

        Lists are put back first: so at any moment they are what stood there before, or what the file says.
        """
        throttles.restore_lists(self._zk, run.throttles)
        if not moves:
            return
        view = read_cluster(self._zk, {p.topic for p in moves}, states=False)
        writes = plan_throttle(self._zk, view, moves, rate)
        self._zk.check_permitted([op for write in writes for op in write.ops])
        self._write(replace(run, throttles=throttles.merged(run.throttles, throttles.saved(writes))))
        throttles.apply(self._zk, writes)

    def _go_back(self, prepared: Prepared, *, timeout_s: float | None) -> Generator[Event, None, bool]:
        """Submit the way back and follow it; False: the deadline passed first."""
        yield Following(to_copy(self._zk, prepared.moves), "back")
        followed = following.follow(
            self._zk,
            prepared.batches,
            timeout_s=timeout_s,
            on_progress=self._on_progress,
            started=False,
            replacing=prepared.replacing,
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
        m._replace(status=Status.PENDING) if m.partition in unsent and m.status is Status.FAILED else m for m in moves
    )
