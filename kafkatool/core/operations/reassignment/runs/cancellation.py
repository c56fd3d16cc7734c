"""A plan that is no longer wanted: nothing more is sent, what is under way goes back, or all that was moved (RSN-37X).

A kt that carries the plan out elsewhere learns of it by a mark in the state file.
"""

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from kafkatool.core.errors import NoNodeError, RefusedError, VersionConflictError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.config_writes import ConfigWrite
from kafkatool.core.operations.reassignment import ending_moves, events, following, status, throttles
from kafkatool.core.operations.reassignment.copy_progress import to_copy
from kafkatool.core.operations.reassignment.events import Event, Following
from kafkatool.core.operations.reassignment.following import Progress
from kafkatool.core.operations.reassignment.runs.run_throttles import RunThrottles
from kafkatool.core.operations.reassignment.runs.saved_run import PATIENCE_S, PAUSE_S, RunFiles, RunState, remove
from kafkatool.core.operations.reassignment.submission import (
    Prepared,
    plan_send_back,
    plan_throttle,
    prepare,
    send_back,
)
from kafkatool.core.planner.plan_files import Moves, PartitionName
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import Create, Op, ZooKeeper
from kafkatool.core.zookeeper.znodes import ReassignmentZnode

if TYPE_CHECKING:  # the wire protocol takes as long to import as all else
    from kafkatool.core.client.access import BrokerAccess
    from kafkatool.core.client.cluster import ClusterClient
    from kafkatool.core.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelTerms:
    """How a plan is cancelled.

    ``rollback``: what has ended, too, goes back, in batches of so many partitions (0: all), under ``throttle``, in bytes
    per second and broker, or None. ``force``: also to what looks unfit. ``preserve_throttles``: they stay, that one too.
    """

    rollback: bool = False
    throttle: int | None = None
    batch_partitions: int = 0
    force: bool = False
    preserve_throttles: bool = False


class PlannedCancel(NamedTuple):
    """What a cancel would ask the controller for, and write; ``gone``: what does not exist any more of the way back."""

    requests: "list[AlterPartitionReassignmentsRequest]"
    ops: list[Op]
    gone: tuple[TopicPartition, ...]


@dataclass(slots=True)
class _Turning:
    """What a cancel has sent back, and has to tell. ``since``: when it last did, until it was told that nothing came.

    ``client``: the controller is asked; None: the way back is written.
    """

    client: "ClusterClient | None"
    sent_back: frozenset[TopicPartition] = frozenset()
    unknown: frozenset[TopicPartition] = frozenset()
    since: float | None = None
    news: list[Event] = field(default_factory=list)


class Cancellation:
    """The cancel of one plan over one session, by one thread. Its methods do the work while their events are taken.

    ``origin``: the replicas from before, as far as they are known. ``on_progress`` is told how far it is, from each
    Following to the next other event. Call ``end_early`` if anything, also of its own, cuts the events short: of a cancel
    that was refused before it touched anything that does nothing.
    """

    def __init__(
        self,
        zk: ZooKeeper,
        plan: Moves,
        files: RunFiles,
        origin: Moves,
        terms: CancelTerms,
        *,
        name_of: PartitionName,
        on_progress: Callable[[Progress], None],
    ) -> None:
        self._zk, self._plan, self._files, self._origin, self._terms = zk, plan, files, origin, terms
        self._name_of, self._on_progress = name_of, on_progress
        self._own_throttles = RunThrottles(zk, plan)
        self._begun = False

    def carry_out(self, access: "BrokerAccess", *, timeout_s: float | None) -> Iterator[Event]:
        """Send nothing more, send back what is under way, and with ``rollback`` what has ended too.

        The controller is asked to, where it takes such a request, else the way back is written. Raises
        ControllerUnreachableError, with nothing written; RefusedError.
        """
        with ending_moves.asking(self._zk, self._plan, access) as client:
            yield from self._carry_out(client, timeout_s)

    def _carry_out(self, client: "ClusterClient | None", timeout_s: float | None) -> Iterator[Event]:
        terms = self._terms
        unread: RefusedError | None = None
        try:
            RunState.read(self._files.state, self._plan)
        except RefusedError as e:
            if not isinstance(e.__cause__, FileNotFoundError):
                if terms.rollback and terms.throttle is not None:
                    raise  # there is no place to note the throttle
                unread = e
        self._begun = True
        if unread is not None:
            yield events.NotCancelled(unread)
        if moved := status.find_requested(self._zk, self._plan):
            yield events.MovedByRequest(tuple(sorted(moved)))
        ended = yield from self._stop(timeout_s, client)
        if ended and terms.rollback:
            ended = yield from self._roll_back(timeout_s)
        ended = ended and not status.find_requested(self._zk, self._plan)  # which the znode does not reach
        if not ended:
            yield from self.end_early()
        elif not terms.preserve_throttles:
            yield from self._end_throttles()
        found = status.verify(self._zk, self._origin if terms.rollback else self._plan, preserve_throttles=True)
        yield events.Cancelled(found, ended)

    def plan(self, client: "ClusterClient | None") -> PlannedCancel:
        """Plan what ``carry_out`` would ask the controller for, and write, in its order, if nothing ended since (COM-6X).

        The way back of what has ended is sent, and throttles come off, when what is under way has arrived.
        """
        terms = self._terms
        asked = [] if client is None else ending_moves.plan_requests(client, self._zk, self._plan, self._origin)
        turned = plan_send_back(self._zk, self._plan, self._origin)[0] if client is None else None
        ops: list[Op] = [turned] if turned is not None else []
        set_for_it: list[ConfigWrite] = []
        gone: tuple[TopicPartition, ...] = ()
        if terms.rollback:
            moving = status.running(self._zk) or {}
            ended = {p: replicas for p, replicas in self._origin.items() if p not in moving}
            # What is under way now is not in the way then: so nothing is refused for it.
            back = prepare(
                self._zk,
                ended,
                skip_unchanged=True,
                skip_gone=True,
                force=True,
                max_count=terms.batch_partitions,
                name_of=self._name_of,
            )
            gone = back.gone
            if terms.throttle is not None and back.moves:
                view = read_cluster(self._zk, {p.topic for p in back.moves}, states=False)
                set_for_it = plan_throttle(self._zk, view, back.moves, terms.throttle)
            ops += [op for write in set_for_it for op in write.ops]
            ops += [Create(ReassignmentZnode.PATH, ReassignmentZnode.encode(batch)) for batch in back.batches]
        if not terms.preserve_throttles:
            writes = self._own_throttles.plan_taking_off(self._files.unfinished_run(self._plan))
            known = {write.path for write in writes}  # what else the way back is throttled on becomes what it is now
            writes += [replace(write, config=write.stored) for write in set_for_it if write.path not in known]
            ops += [op for write in writes for op in write.ops]
        self._zk.check_permitted(ops)
        return PlannedCancel(asked, ops, gone)

    def end_early(self) -> Iterator[Event]:
        """Tell where things stand, and take throttles off unless data is still copied under them (RSN-23X).

        Who cancels and then ends kt does not come back for them. Nothing happens if nothing was begun.
        """
        if not self._begun:
            return
        moves = {p: to for p, to in (status.running(self._zk) or {}).items() if p in self._plan}
        forward = sum(to == self._plan[p] for p, to in moves.items())
        copying = bool(status.copying(self._zk, self._plan))
        run = self._files.unfinished_run(self._plan)
        if not (self._terms.preserve_throttles or copying):
            yield from self._end_throttles() if not moves else self._own_throttles.take_off(run)
        yield events.CancelCutShort(forward, len(moves) - forward, copying, copying or self._terms.preserve_throttles)

    def _stop(self, timeout_s: float | None, client: "ClusterClient | None") -> Generator[Event, None, bool]:
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
                interrupted=lambda: self._turn_round(turning),
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

    def _turn_round(self, turning: _Turning) -> bool:
        """Mark the run, and send back what is under way. Return whether there is something new to tell."""
        self._mark()
        by_znode = self._plan
        if turning.client is not None:
            unknown = self._ask_to_cancel(turning, turning.client)
            by_znode = {p: self._plan[p] for p in unknown}
        try:
            sent = send_back(self._zk, by_znode, self._origin)
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

    def _ask_to_cancel(self, turning: _Turning, client: "ClusterClient") -> frozenset[TopicPartition]:
        """Have the controller end what is under way. Return what it cannot, and has to be told by the znode."""
        ended = ending_moves.end_moves(client, self._zk, self._plan, self._origin)
        if new := ended.cancelled - turning.sent_back:
            turning.news.append(events.SentBack(len(new)))
        if left := ended.released - turning.sent_back:
            turning.news.append(events.Released(len(left)))
        turning.sent_back |= ended.cancelled | ended.released
        return ended.unknown

    def _roll_back(self, timeout_s: float | None) -> Generator[Event, None, bool]:
        """Submit the way back of what has ended and follow it; False: the deadline passed first."""
        terms = self._terms
        back = prepare(
            self._zk,
            self._origin,
            skip_unchanged=True,
            skip_gone=True,
            force=terms.force,
            max_count=terms.batch_partitions,
            name_of=self._name_of,
        )
        if back.gone:
            yield events.Gone(back.gone)
        if terms.throttle is not None or not terms.preserve_throttles:
            self._throttle_way_back(back)
        yield Following(to_copy(self._zk, back.moves), "back")
        followed = following.follow(
            self._zk,
            back.batches,
            timeout_s=timeout_s,
            on_progress=self._on_progress,
            started=False,
            replacing=back.replacing,
        )
        return followed.finished == len(back.batches)

    def _throttle_way_back(self, back: Prepared) -> None:
        """Set the throttle of the way back in place of the run's own; without one take that off."""
        run = self._files.unfinished_run(self._plan)
        if self._terms.throttle is None:
            if run is not None:
                list(self._own_throttles.restore(run))
            return
        if run is None:
            if self._own_throttles.has_lists():
                list(self._own_throttles.take_off(run))  # of a run that was not followed
            run = RunState.of_ended(self._plan, back.max_bytes, back.max_count)
            run = replace(run, earlier=tuple(throttles.listed_topics(self._zk)))
        self._own_throttles.set_anew(
            run, back.moves, self._terms.throttle, lambda noted: noted.write(self._files.state)
        )

    def _end_throttles(self) -> Iterator[Event]:
        """Take off what a run of this plan has set; one that was not followed has not saved what was there before."""
        run = self._files.unfinished_run(self._plan)
        yield from self._own_throttles.take_off(run)
        if run is not None:
            remove(self._files.state)
