"""Moves that clients ask for: begun, replaced and cancelled in the topics' nodes (ADM-64 to 66, 70, 72; KIP-455).

What is wanted is stored first, in one transaction that also takes the partition out of ``/admin/reassign_partitions``;
from there `Reassignment` carries it on, as it does every move. Source: Kafka 2.8.2 controller/KafkaController.scala.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from kafkatool.broker.controller.deciding.partition_machine import Strategy
from kafkatool.broker.controller.moves import MoveOutcome, OngoingMoves, WantedMoves
from kafkatool.broker.controller.states import PartitionStatus
from kafkatool.broker.controller.work.dropped_replicas import DroppedReplicas
from kafkatool.broker.controller.work.part import Part
from kafkatool.broker.controller.work.reassignment import Reassignment
from kafkatool.broker.controller.work.topic_changes import TopicChanges
from kafkatool.core.errors import (
    NoNodeError,
    NoPermissionError,
    VersionConflictError,
    ZnodeFormatError,
    ZnodeTooLargeError,
)
from kafkatool.core.model.moves import Replicas, StoredMove, minus
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.zookeeper.session import Check, Delete, Op, SetData
from kafkatool.core.zookeeper.znodes import PartitionStateZnode, ReassignmentZnode, TopicZnode

log = logging.getLogger(__name__)

_DONE = MoveOutcome()
_UNKNOWN = MoveOutcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
_NOT_MOVING = MoveOutcome(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
_ORIGIN_UNKNOWN = MoveOutcome(
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    "It moves by /admin/reassign_partitions since before this controller ruled: where it was before is not known.",
)
_ENDING = MoveOutcome(
    ErrorCode.REASSIGNMENT_IN_PROGRESS, "The move is ending: its old replicas are being deleted. Ask again."
)
_NOBODY_STAYS = MoveOutcome(
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "None of the replicas that would stay is alive and in sync."
)


class _RefusedError(Exception):
    """Why nothing is stored of a topic's moves."""

    def __init__(self, partitions: Collection[TopicPartition], why: MoveOutcome) -> None:
        super().__init__(why)
        self.partitions, self.why = partitions, why


@dataclass(eq=False)
class RequestedMoves(Part):
    """Carries out one request at a time."""

    topic_changes: TopicChanges
    reassignment: Reassignment
    dropped: DroppedReplicas

    def alter(self, wanted: WantedMoves, *, may_change_factor: bool) -> dict[TopicPartition, MoveOutcome]:
        """Store the moves that can be, and begin them."""
        self.topic_changes.catch_up(wanted)  # they may have been created a moment ago
        outcomes = dict.fromkeys(wanted, _DONE)
        targets: dict[TopicPartition, Replicas | None] = {}
        for partition, target in wanted.items():
            if (refused := self._refusal(partition, target, may_change_factor=may_change_factor)) is not None:
                outcomes[partition] = refused
            else:
                targets[partition] = target
        outcomes.update(self.replace(targets, by_request=True))
        return outcomes

    def ongoing(self, partitions: Collection[TopicPartition] | None) -> OngoingMoves:
        """Return those that move, of all when None, whichever way their moves were asked for (ADM-66)."""
        moving = self.context.reassigning
        return {p: self._ongoing(p) for p in (moving if partitions is None else partitions) if p in moving}

    def _ongoing(self, partition: TopicPartition) -> StoredMove:
        context = self.context
        if (stored := context.moves.get(partition)) is not None:
            return stored
        target, state = context.reassigning[partition], context.leadership.get(partition)
        in_sync = state.leader_and_isr.isr if state else ()
        origin = context.origins.get(partition) or minus(context.replicas(partition), minus(target, in_sync))
        return StoredMove(origin).to(target)

    # --- checks -------------------------------------------------------------------------------------------------

    def _refusal(
        self, partition: TopicPartition, target: Replicas | None, *, may_change_factor: bool
    ) -> MoveOutcome | None:
        context = self.context
        if target is not None and (why := _why_malformed(target)) is not None:
            return MoveOutcome(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
        if not context.knows(partition) or context.is_deleting(partition):
            return _UNKNOWN
        if self.reassignment.is_ending(partition):
            return _ENDING
        if target is None:
            if partition not in context.reassigning:
                return _NOT_MOVING
            by_node = partition in context.moves or partition in context.origins
            return None if by_node else _ORIGIN_UNKNOWN
        origin = self._ongoing(partition).origin if partition in context.reassigning else context.replicas(partition)
        adding = minus(target, origin)
        if not context.live_brokers.issuperset(adding):
            return MoveOutcome(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Replica assignment has brokers that are not alive. Replica list: {list(adding)}, "
                f"live broker list: {sorted(context.live_brokers)}",
            )
        if not may_change_factor and len(target) != len(origin):
            return MoveOutcome(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor is changed from {len(origin)} to {len(target)}",
            )
        return None

    # --- storing ------------------------------------------------------------------------------------------------

    def replace(self, targets: WantedMoves, *, by_request: bool = False) -> dict[TopicPartition, MoveOutcome]:
        """Store moves to those targets and go on with them. Returns where that could not be done.

        ``by_request``: entries of ``/admin/reassign_partitions`` for them are no longer wanted; else they ask for it.
        """
        by_topic: dict[str, dict[int, Replicas | None]] = {}
        for (topic, number), target in targets.items():
            by_topic.setdefault(topic, {})[number] = target
        stored: dict[TopicPartition, StoredMove] = {}
        refused: dict[TopicPartition, MoveOutcome] = {}
        for topic, wanted in by_topic.items():
            pending = wanted
            while pending:
                try:
                    moves = self._store(topic, pending, by_request=by_request)
                except (VersionConflictError, NoNodeError):
                    continue  # somebody changed or deleted it meanwhile: read again
                except _RefusedError as e:
                    refused.update(dict.fromkeys(e.partitions, e.why))
                    pending = {n: target for n, target in pending.items() if TopicPartition(topic, n) not in refused}
                else:
                    stored.update({TopicPartition(topic, n): move for n, move in moves.items()})
                    break
        self._go_on(stored)
        return refused

    def _store(self, topic: str, wanted: Mapping[int, Replicas | None], *, by_request: bool) -> dict[int, StoredMove]:
        """Store the moves of one topic; returns those that change anything."""
        partitions = [TopicPartition(topic, n) for n in wanted]
        node = self.session.get(TopicZnode.path(topic))
        try:
            if node is None:
                raise _RefusedError(partitions, _UNKNOWN)
            decoded = TopicZnode.decode(topic, node.data)
            if gone := [p for p in partitions if p.partition not in decoded.assignment]:
                raise _RefusedError(gone, _UNKNOWN)  # it was made anew behind our back, with fewer
            known = {p.partition: self._known(p, decoded) for p in partitions}
            moves = {n: known[n].to(target or known[n].origin) for n, target in wanted.items()}
            new = {n: move for n, move in moves.items() if move != decoded.move_of(n)}
            ops = self._entries_gone(set(partitions)) if by_request else []
            has_entries = bool(ops)
            if new:
                data = decoded.with_moves(new).encode()
                ops += [SetData(TopicZnode.path(topic), data, node.version, len(node.data))]
                ops += self._somebody_stays({TopicPartition(topic, n): move for n, move in new.items()})
            if ops:
                self.zookeeper.commit(ops)
        except ZnodeTooLargeError as e:
            code = ErrorCode.REASSIGNMENT_IN_PROGRESS if has_entries else ErrorCode.INVALID_REPLICA_ASSIGNMENT
            raise _RefusedError(partitions, MoveOutcome(code, str(e))) from e
        except (ZnodeFormatError, NoPermissionError) as e:
            raise _RefusedError(partitions, MoveOutcome(ErrorCode.UNKNOWN_SERVER_ERROR, str(e))) from e
        by_entry = {p.partition for p in partitions if p in self.context.reassigning and p not in self.context.moves}
        return {n: move for n, move in moves.items() if n in new or n in by_entry}

    def _known(self, partition: TopicPartition, node: TopicZnode) -> StoredMove:
        """Return the partition's move; of one by the request's entry what was before it, as far as it is known."""
        found = node.move_of(partition.partition)
        origin = self.context.origins.get(partition)
        if found.is_moving or origin is None or partition not in self.context.reassigning:
            return found
        return found._replace(adding=minus(found.replicas, origin))

    def _entries_gone(self, partitions: Collection[TopicPartition]) -> list[Op]:
        """Return what takes those partitions out of ``/admin/reassign_partitions``."""
        node = self.session.get(ReassignmentZnode.PATH)
        entries = ReassignmentZnode.decode(node.data) if node else {}
        if node is None or entries.keys().isdisjoint(partitions):
            return []
        left = {p: rar for p, rar in entries.items() if p not in partitions}
        if not left:
            return [Delete(ReassignmentZnode.PATH, node.version, node.czxid)]
        return [SetData(ReassignmentZnode.PATH, ReassignmentZnode.encode(left), node.version, len(node.data))]

    def _somebody_stays(self, moves: Mapping[TopicPartition, StoredMove]) -> list[Op]:
        """Refuse to drop replicas where no other has all records; returns checks that this is so when it is written."""
        dropping = {p: m for p, m in moves.items() if m.dropped}
        found = self.zookeeper.read_states(dropping).found
        live = self.context.live_brokers
        alone = [
            p for p, s in found.items() if live.intersection(dropping[p].replicas).isdisjoint(s.leader_and_isr.isr)
        ]
        if alone:
            raise _RefusedError(alone, _NOBODY_STAYS)
        return [Check(PartitionStateZnode.path(p), s.version) for p, s in found.items()]

    # --- going on -----------------------------------------------------------------------------------------------

    def _go_on(self, stored: Mapping[TopicPartition, StoredMove]) -> None:
        """Follow what is stored: drop what no move wants any more, then move, or end where nothing moves any more."""
        if not stored:
            return
        context = self.context
        log.info("stored: %s", ", ".join(f"{p} moves to {list(m.target)}" for p, m in stored.items()))
        for partition, move in stored.items():
            replicas = minus(context.replicas(partition), move.dropped) if move.is_moving else move.replicas
            context.set_replicas(partition, replicas)
            self.reassignment.forget(partition)
            self.dropped.note(partition, move.dropped)
        self.dropped.drop(stored)
        ended = [p for p, m in stored.items() if not m.is_moving]
        self._tell_order([p for p in ended if not stored[p].dropped])
        self.reassignment.go_on({p: m for p, m in stored.items() if m.is_moving})
        if ended:
            with self.batch.filling():
                self.batch.add_metadata(ended)
            self.reassignment.on_moved({p.topic for p in ended})

    def _tell_order(self, partitions: Iterable[TopicPartition]) -> None:
        """Tell of another order of the same replicas, and have one lead that can (CTL-91 step 7)."""
        context = self.context
        partitions = [p for p in partitions if p in context.leadership]
        electing = [p for p in partitions if context.leader(p) not in context.live_for(p)]
        with self.batch.filling():
            self.partitions.move(electing, PartitionStatus.ONLINE, Strategy.REASSIGN)
            self.partitions.raise_epochs({p: context.replicas(p) for p in partitions if p not in electing})


def _why_malformed(target: Replicas) -> str | None:
    """Say what is wrong with a list whatever the cluster looks like, in Kafka's words (ADM-64); None: nothing."""
    if not target:
        return "Empty replica list specified in partition reassignment."
    if len(set(target)) < len(target):
        return f"Duplicate replica ids in partition reassignment replica list: {list(target)}"
    if min(target) < 0:
        return f"Invalid broker id in replica list: {list(target)}"
    return None
