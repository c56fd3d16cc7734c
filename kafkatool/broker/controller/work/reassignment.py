"""Reassignment: partitions move to other brokers in twelve steps, which a next controller can resume (CTL-87 to 99).

OAR: replicas before, RAR: replicas wanted. The assignment in ZooKeeper is OAR + RAR from step 1 until step 10: it is
the only lasting record of OAR, so OAR - RAR is always found again as AR - RAR (CTL-93). Moves that a client has asked
for go the same way but for step 1, which `RequestedMoves` has done with what it stored (ADM-73).

Partitions of one request go their steps together where they happen to be at the same one, so that thousands cost few
round trips; each finishes on its own (CTL-96). Source: Kafka 0.10.2.1 controller/KafkaController.scala.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from kafkatool.broker.controller.deciding.partition_machine import Strategy
from kafkatool.broker.controller.moves import MoveOutcome
from kafkatool.broker.controller.states import PartitionStatus, ReplicaStatus
from kafkatool.broker.controller.telling import transition_lines as lines
from kafkatool.broker.controller.work.dropped_replicas import DroppedReplicas
from kafkatool.broker.controller.work.part import Part
from kafkatool.broker.controller.work.topic_changes import TopicChanges
from kafkatool.core.errors import NoPermissionError, ZnodeFormatError, ZnodeTooLargeError
from kafkatool.core.model.moves import Replicas, StoredMove, minus
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from kafkatool.core.zookeeper.session import Watch, WatchEvent
from kafkatool.core.zookeeper.znodes import PartitionStateZnode, ReassignmentZnode, TopicZnode

log = logging.getLogger(__name__)

_BEING_DELETED = "its topic is being deleted"


def union(old: Replicas, wanted: Replicas) -> Replicas:
    """Return OAR in its order, then RAR - OAR in plan order (as Kafka 1.1.1 does)."""
    return (*old, *(b for b in wanted if b not in old))


def why_unusable(wanted: Replicas) -> str | None:
    """Say what is wrong with a list of replicas whatever the cluster looks like (CTL-88); None: nothing."""
    if not wanted:
        return "no replicas are given"
    if len(set(wanted)) < len(wanted):
        return "a replica is given twice"
    return "a broker id is negative" if min(wanted) < 0 else None


@dataclass(eq=False)
class Reassignment(Part):
    """Drives reassignments. Owns the context's ``reassigning``. ``on_moved`` is called with the topics that are done."""

    enqueue: Callable[[str, Callable[[], None]], None]
    write_lines: Callable[[str, Iterable[str]], None]
    topic_changes: TopicChanges
    dropped: DroppedReplicas
    on_moved: Callable[[Iterable[str]], None] = field(init=False)
    replace: Callable[[Mapping[TopicPartition, Replicas]], Mapping[TopicPartition, MoveOutcome]] = field(init=False)
    """`RequestedMoves.replace`: turns moves that are stored in their topics' nodes to other targets."""
    _fired: deque[TopicPartition] = field(default_factory=deque, init=False)
    """State nodes that changed; filled by the watch's thread."""
    _watched: set[TopicPartition] = field(default_factory=set, init=False)  # each state node has one watch at most
    _stopping: dict[TopicPartition, set[int]] = field(default_factory=dict, init=False)  # step 9: who is to answer yet
    _owed: dict[int, dict[TopicPartition, None]] = field(default_factory=dict, init=False)
    """Broker -> replicas that it could not be told to delete."""
    _entries_left: set[TopicPartition] = field(default_factory=set, init=False)  # over, but still in the request

    # --- the request --------------------------------------------------------------------------------------------

    def watch(self) -> dict[TopicPartition, Replicas]:
        """Set the watch on ``/admin/reassign_partitions`` and return what it asks for; see ``read``."""
        return self.read(self.watch_on("reassignment", lambda _: self._take_up(self.watch())))

    def read(self, watch: Watch | None = None) -> dict[TopicPartition, Replicas]:
        """Return what the request asks for now. Unreadable: logged, left (Z-35)."""
        node = self.session.get(ReassignmentZnode.PATH, watch)
        try:
            request = ReassignmentZnode.decode(node.data) if node else {}
        except ZnodeFormatError as e:
            log.error("%s; nothing is reassigned until it is removed", e)
            return {}
        self._entries_left &= request.keys()
        return request

    def _take_up(self, request: Mapping[TopicPartition, Replicas]) -> None:
        context = self.context
        wanted = {p: rar for p, rar in request.items() if p not in context.reassigning}
        self.topic_changes.catch_up(wanted)  # they may have been created a moment ago
        refused = {p: why for p, rar in wanted.items() if (why := self._why_refused(p, rar))}
        self._refuse(refused)
        turned = {p: rar for p, rar in request.items() if self._is_turned(p, rar)}
        stored = {p: rar for p, rar in turned.items() if p in context.moves}
        self._turn(stored)
        begun = {p: rar for p, rar in wanted.items() if p not in refused}
        context.origins.update({p: context.replicas(p) for p in begun})
        self._begin({**{p: rar for p, rar in turned.items() if p not in stored}, **begun})

    def _turn(self, stored: Mapping[TopicPartition, Replicas]) -> None:
        """Have moves of topics' nodes go where the request's entries say (ADM-72)."""
        if stored:
            self._refuse({p: outcome.message or "" for p, outcome in self.replace(stored).items()})
            self._remove_entries([p for p in stored if p not in self.context.reassigning])  # home again

    def _is_turned(self, partition: TopicPartition, wanted: Replicas) -> bool:
        """Tell whether a move under way is to go elsewhere, back say: its entry has other replicas by now.

        All replicas that it has are in AR, so it goes on as a move from there. From step 9 on it ends first.
        """
        context = self.context
        if context.reassigning.get(partition, wanted) == wanted or partition in self._stopping:
            return False
        return not context.is_deleting(partition) and why_unusable(wanted) is None

    def _why_refused(self, partition: TopicPartition, wanted: Replicas) -> str | None:
        context = self.context
        if context.is_deleting(partition):  # partitions added since are not taken up
            return _BEING_DELETED
        if not context.knows(partition):
            return "there is no such partition"
        if wanted == context.replicas(partition):
            return "these are its replicas already"
        return why_unusable(wanted)

    def _refuse(self, refused: Mapping[TopicPartition, str]) -> None:
        for partition, why in refused.items():
            log.error("reassignment of partition %s is refused: %s", partition, why)
        self._remove_entries(refused)

    def resume(self, wanted: Mapping[TopicPartition, Replicas]) -> None:
        """Take over what an earlier controller left (CTL-98): drop what is done, go on with the rest."""
        context = self.context
        done, refused, going, turned = [], {}, {}, {}
        stored = {p: m for p, m in context.moves.items() if not context.is_deleting(p)}
        context.moves = dict(stored)
        for partition, rar in wanted.items():
            state = context.leadership.get(partition)
            in_sync = state is not None and set(rar) <= set(state.leader_and_isr.isr)
            if not context.knows(partition):  # gone, or made after the topics were read: then its event comes first
                self.enqueue("reassignment", lambda p=partition: self._take_up_again(p))  # type: ignore[misc]
            elif rar == context.replicas(partition) and in_sync:
                done.append(partition)
            elif context.is_deleting(partition):  # its partitions may have no leader any more: it would never end
                refused[partition] = _BEING_DELETED
            elif why := why_unusable(rar):
                refused[partition] = why
            elif partition in stored and stored[partition].target != rar:
                turned[partition] = rar
            else:
                going[partition] = rar
                if not set(rar) <= set(context.replicas(partition)):  # step 1 is not done yet
                    context.origins[partition] = context.replicas(partition)
        if done:
            log.info("reassignments that are done: %s", ", ".join(map(str, done)))
            self._stop_orphans({p: wanted[p] for p in done})
            # no change, but for what Kafka >= 2.4 adds to it
            self._remove_entries(self._write_assignments({p: wanted[p] for p in done}))
            for partition in done:
                context.moves.pop(partition, None)
        self._refuse(refused)
        self.dropped.drop(context.dropped)
        self._turn(turned)
        going.update({p: m.target for p, m in context.moves.items() if p not in context.reassigning})
        self._begin(going)

    def note(self, topic: str, moves: Mapping[int, StoredMove]) -> None:
        """Take down what a topic's node tells of moves, to be resumed with the request's (ADM-70)."""
        for number, move in moves.items():
            partition = TopicPartition(topic, number)
            if move.is_moving:
                self.context.moves[partition] = move
            self.dropped.note(partition, move.dropped)

    def go_on(self, stored: Mapping[TopicPartition, StoredMove]) -> None:
        """Carry on moves that their topics' nodes tell of by now (ADM-73)."""
        self.context.moves.update(stored)
        self._begin({p: move.target for p, move in stored.items()})

    def forget(self, partition: TopicPartition) -> None:
        """Forget a move: it is replaced by another, or over."""
        self.context.reassigning.pop(partition, None)
        self.context.moves.pop(partition, None)
        self.context.origins.pop(partition, None)

    def is_ending(self, partition: TopicPartition) -> bool:
        """Tell whether its move is in step 9: it has a leader among RAR, and the others are being deleted."""
        return partition in self._stopping

    def _take_up_again(self, partition: TopicPartition) -> None:
        self._take_up({p: rar for p, rar in self.read().items() if p == partition})

    def give_up(self, topic: str) -> None:
        """Refuse what cannot end before the topic is deleted: reassignments of partitions without live leader.

        Nobody elects leaders for it any more (CTL-79), and its deletion would wait for them for ever (CTL-78).
        """
        context = self.context
        stuck = [
            p
            for p in context.reassigning
            if p.topic == topic and p not in self._stopping and context.leader(p) not in context.live_for(p)
        ]
        if stuck:
            for partition in stuck:
                self.forget(partition)
            self._refuse(dict.fromkeys(stuck, _BEING_DELETED))

    def _stop_orphans(self, moved: Mapping[TopicPartition, Replicas]) -> None:
        """Have every other live broker delete its replica, if it has one.

        The controller that wrote the assignment of step 10 may have ended before the requests of step 9 arrived, and
        who was to get them is no longer known. A broker that has nothing answers NONE (BRK-110).
        """
        brokers = tuple(sorted(self.context.brokers))
        with self.batch.filling():
            for partition, rar in moved.items():
                for broker in minus(brokers, rar):
                    self.batch.add_stop_replica(broker, partition, delete=True)

    # --- driving ------------------------------------------------------------------------------------------------

    def _begin(self, wanted: Mapping[TopicPartition, Replicas]) -> None:
        """Start reassignments: the ISR is watched first, so that no growth is missed (CTL-90)."""
        if wanted:
            log.info("reassigning %s", ", ".join(f"{p} to {list(rar)}" for p, rar in wanted.items()))
            self.context.reassigning.update(wanted)
            self._drive(list(wanted), prepare=True)

    def on_brokers_started(self, brokers: Collection[int]) -> None:
        """Go on with reassignments to brokers that have just started (CTL-34, 89, 95)."""
        context = self.context
        self._tell_again(brokers)
        self.dropped.on_brokers_started(brokers)
        waiting = [
            p for p, rar in context.reassigning.items() if p not in self._watched or not set(brokers).isdisjoint(rar)
        ]
        self._drive(waiting, prepare=True)

    def _tell_again(self, brokers: Collection[int]) -> None:
        """Tell brokers that were out of reach at step 9 to delete their replicas, until they have answered."""
        context = self.context
        with self.batch.filling():
            for broker in brokers:
                owed = [p for p in self._owed.pop(broker, ()) if broker not in context.replicas(p)]
                self._owed[broker] = dict.fromkeys(owed)
                for partition in owed:
                    self.batch.add_stop_replica(broker, partition, delete=True)
                    if partition in self._stopping:  # waited for again
                        self._stopping[partition].add(broker)
                        context.set_replica_status(partition, broker, ReplicaStatus.DELETION_STARTED)

    def on_brokers_lost(self, brokers: Collection[int]) -> None:
        """Stop waiting for their answers: their replicas are deleted when they return."""
        over: list[TopicPartition] = []
        for broker in brokers:
            over += self._stopped(broker, [p for p, left in self._stopping.items() if broker in left], deleted=False)
        self._conclude(over)

    def on_answers(self, answers: Iterable[tuple[int, StopReplicaRequest, StopReplicaResponse]]) -> None:
        """Handle answers to StopReplica (step 9). The partitions that are done end together: with a write of the topic's
        node and of the request for each, thousands would cost the square of their number.
        """
        answers = list(answers)
        self.dropped.on_answers(answers)
        self._conclude([p for answer in answers for p in self._answered(*answer)])

    def _answered(self, broker: int, request: StopReplicaRequest, answer: StopReplicaResponse) -> list[TopicPartition]:
        failed = {(p.topic, p.partition) for p in answer.partitions if p.error_code}
        refused = [p for p in request.partitions if answer.error_code or p in failed]
        deleted = [p for p in request.partitions if p not in refused]
        for partition in deleted:
            self._owed.get(broker, {}).pop(partition, None)
        waiting = [p for p in refused if broker in self._stopping.get(p, ())]
        if waiting:
            log.warning("broker %d could not delete its replicas of %s", broker, ", ".join(map(str, waiting)))
        over = self._stopped(broker, waiting, deleted=False)
        return over + self._stopped(broker, [p for p in deleted if broker in self._stopping.get(p, ())], deleted=True)

    def _on_isr(self) -> None:
        """Go on with all partitions whose state has changed. Many fire at once: the first event handles all."""
        fired = []
        while self._fired:
            fired.append(self._fired.popleft())
        reassigning = self.context.reassigning
        self._drive([p for p in dict.fromkeys(fired) if p in reassigning], prepare=False)

    def _drive(self, partitions: list[TopicPartition], *, prepare: bool) -> None:
        """Take steps 5 to 12 where RAR is in sync; elsewhere, with ``prepare``, steps 1 to 3, and wait."""
        partitions = [p for p in partitions if p not in self._stopping]
        if not partitions:
            return
        context = self.context
        in_sync: list[TopicPartition] = []
        behind: list[TopicPartition] = []
        for partition, isr in self._read_and_watch(partitions).items():
            (in_sync if set(context.reassigning[partition]) <= isr else behind).append(partition)
        if prepare:
            self._prepare(behind)
        self._finish(in_sync)

    def _read_and_watch(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, set[int]]:
        by_path = {PartitionStateZnode.path(p): p for p in partitions}

        def fired(event: WatchEvent) -> None:
            self._watched.discard(by_path[event.path])
            self._fired.append(by_path[event.path])
            self.enqueue("ISR of a reassigned partition", self._on_isr)

        unwatched = [p for p in partitions if p not in self._watched]
        watched = [p for p in partitions if p in self._watched]
        self._watched.update(unwatched)
        nodes = self.session.get_many([PartitionStateZnode.path(p) for p in unwatched], fired)
        nodes += self.session.get_many([PartitionStateZnode.path(p) for p in watched])
        isr: dict[TopicPartition, set[int]] = {}
        for partition, node in zip([*unwatched, *watched], nodes, strict=True):
            if node is None:  # never led yet, so not watched either: driven on when a broker starts
                self._watched.discard(partition)
            try:
                isr[partition] = set(PartitionStateZnode.decode(partition, node.data).isr) if node else set()
            except ZnodeFormatError as e:
                log.error("%s; its reassignment waits", e)
        return isr

    # --- steps 1 to 3 -------------------------------------------------------------------------------------------

    def _prepare(self, partitions: Collection[TopicPartition]) -> None:
        if not partitions:
            return
        context = self.context
        wanted = {p: self._both(p) for p in partitions}
        written = self._write_assignments({p: r for p, r in wanted.items() if p not in context.moves})  # 1
        wanted = {p: replicas for p, replicas in wanted.items() if p in written or p in context.moves}
        new = {p: minus(context.reassigning[p], context.replicas(p)) for p in wanted}
        for partition, replicas in wanted.items():
            context.set_replicas(partition, replicas)
        with self.batch.filling():
            self._raise_epochs(wanted)  # 2
            self.replicas.move({p: brokers for p, brokers in new.items() if brokers}, ReplicaStatus.NEW)  # 3

    def _both(self, partition: TopicPartition) -> Replicas:
        """Return OAR + RAR, as ZooKeeper has them until step 10."""
        stored = self.context.moves.get(partition)
        return (
            stored.replicas if stored else union(self.context.replicas(partition), self.context.reassigning[partition])
        )

    def _raise_epochs(self, receivers: dict[TopicPartition, Replicas]) -> set[TopicPartition]:
        """Raise epochs and tell the receivers the context's AR: steps 2 and 7. Returns where that worked."""
        context = self.context
        raised = self.partitions.raise_epochs(receivers)
        self.write_lines(
            "TRACE", (lines.reassignment_sent(p, state, context.replicas(p)) for p, state in raised.items())
        )
        self.write_lines(
            "ERROR", (lines.reassignment_failed(p, context.replicas(p)) for p in receivers if p not in raised)
        )
        return set(raised)

    # --- steps 5 to 12 ------------------------------------------------------------------------------------------

    def _finish(self, partitions: Collection[TopicPartition]) -> None:
        if not partitions:
            return
        context = self.context
        rar = {p: context.reassigning[p] for p in partitions}
        both = {p: union(context.replicas(p), rar[p]) for p in partitions}
        with self.batch.filling():
            self.replicas.move(rar, ReplicaStatus.ONLINE)  # 5
        for partition in partitions:
            context.set_replicas(partition, rar[partition])  # 6
        electing = [p for p in partitions if context.leader(p) not in set(rar[p]) & context.live_for(p)]
        with self.batch.filling():  # 7
            led = self.partitions.move(electing, PartitionStatus.ONLINE, Strategy.REASSIGN)
            led |= self._raise_epochs({p: both[p] for p in partitions if p not in electing})
        old = {p: minus(both[p], rar[p]) for p in partitions if p in led}
        with self.batch.filling():
            stopped = self.replicas.move({p: brokers for p, brokers in old.items() if brokers}, ReplicaStatus.OFFLINE)
            ready = {p: brokers for p, brokers in old.items() if len(stopped.get(p, ())) == len(brokers)}  # 8
            self.replicas.move({p: b for p, b in ready.items() if b}, ReplicaStatus.DELETION_STARTED)  # 9
        for partition in partitions:
            if partition not in ready:  # no leader among RAR, or a write failed: nothing is moved (CTL-95)
                context.set_replicas(partition, both[partition])
                log.warning("reassignment of partition %s to %s waits: none of them could take over", partition,
                            list(rar[partition]))  # fmt: skip
        self._conclude([p for p, brokers in ready.items() if not brokers])
        self._stopping.update({p: set(brokers) for p, brokers in ready.items() if brokers})
        gone = {b for brokers in ready.values() for b in brokers} - context.brokers.keys()
        self.on_brokers_lost(sorted(gone))

    def _stopped(self, broker: int, partitions: Collection[TopicPartition], *, deleted: bool) -> list[TopicPartition]:
        """End step 9 for that broker; returns the partitions that wait for no other: to be concluded.

        Until then ZooKeeper names the old replicas, so that the next controller tells them too, whenever this one dies.
        """
        if not partitions:
            return []
        if not deleted:
            self._owed.setdefault(broker, {}).update(dict.fromkeys(partitions))
        for target in (ReplicaStatus.DELETION_SUCCESSFUL, ReplicaStatus.NON_EXISTENT):
            self.replicas.move({p: [broker] for p in partitions}, target)
        over = []
        for partition in partitions:
            self._stopping[partition].discard(broker)
            if not self._stopping[partition]:
                del self._stopping[partition]
                over.append(partition)
        return over

    def _conclude(self, partitions: Collection[TopicPartition]) -> None:
        context = self.context
        done = {p: rar for p in partitions if (rar := context.reassigning.get(p))}  # its topic may be gone
        written = self._write_assignments(done)  # 10
        done = {p: rar for p, rar in done.items() if p in written}
        if not done:
            return
        changed = self._remove_entries(done, done)  # 11
        for partition in done:
            self.forget(partition)
        with self.batch.filling():
            self.batch.add_metadata(done)  # 12
        log.info("reassigned %s", ", ".join(f"{p} to {list(rar)}" for p, rar in done.items()))
        self._take_up(changed)
        self.on_moved({p.topic for p in done})  # CTL-97

    # --- nodes --------------------------------------------------------------------------------------------------

    def _write_assignments(self, assignments: Mapping[TopicPartition, Replicas]) -> set[TopicPartition]:
        """Write assignments, once per topic; what else the node holds stays (Z-13). Returns where that worked.

        Where it does not, the others must not wait with it, nor must a failover fail.
        """
        written: set[TopicPartition] = set()
        by_topic: dict[str, dict[int, Replicas]] = {}
        for (topic, number), replicas in assignments.items():
            by_topic.setdefault(topic, {})[number] = replicas
        for topic, changes in by_topic.items():
            try:
                self.zookeeper.change(TopicZnode.path(topic), _with(topic, changes))
            except (ZnodeFormatError, NoPermissionError, ZnodeTooLargeError) as e:
                log.error("%s; the reassignment of its partitions waits", e)
            else:
                written.update(TopicPartition(topic, number) for number in changes)
        return written

    def _remove_entries(
        self, partitions: Iterable[TopicPartition], moved: Mapping[TopicPartition, Replicas] | None = None
    ) -> dict[TopicPartition, Replicas]:
        """Take entries out of the request; the last one takes the node with it (CTL-91 step 11).

        Return those that stay as they ask for other replicas than those ``moved`` to. A request that is too large to be
        written goes with the others' last entries, or as soon as it has become small enough; it came from somebody with
        a higher limit.
        """
        gone = (self._entries_left - self.context.reassigning.keys()) | set(partitions)
        changed: dict[TopicPartition, Replicas] = {}
        if not gone:
            return changed

        def without(data: bytes) -> bytes | None:
            entries = ReassignmentZnode.decode(data)
            changed.clear()
            changed.update({p: rar for p, rar in entries.items() if p in gone and (moved or entries).get(p) != rar})
            left = {p: rar for p, rar in entries.items() if p not in gone or p in changed}
            if len(left) == len(entries):
                return data
            return ReassignmentZnode.encode(left) if left else None

        try:
            self.zookeeper.change(ReassignmentZnode.PATH, without)
            self._entries_left.clear()
        except ZnodeTooLargeError as e:
            log.warning("%s; finished reassignments stay in it for now", e)
            self._entries_left = gone
        except ZnodeFormatError as e:
            log.error("%s; finished reassignments stay in it", e)
        return changed


def _with(topic: str, changes: Mapping[int, Replicas]) -> Callable[[bytes], bytes]:
    def changed(data: bytes) -> bytes:
        node = TopicZnode.decode(topic, data)
        moved = node.with_moved(changes)
        return data if moved == node else moved.encode()

    return changed
