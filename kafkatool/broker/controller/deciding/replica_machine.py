"""The state machine of replicas, with the requests and the changes of ISRs that follow (CTL-66 to CTL-68)."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from kafkatool.broker.controller.context import ControllerContext
from kafkatool.broker.controller.deciding.leader_selection import without_replicas
from kafkatool.broker.controller.deciding.partition_machine import is_from_newer_controller
from kafkatool.broker.controller.states import ReplicaStatus
from kafkatool.broker.controller.telling import transition_lines as lines
from kafkatool.broker.controller.telling.request_batch import RequestBatch
from kafkatool.broker.controller.writing.zookeeper_writes import FencedZooKeeper
from kafkatool.core.model.values import PartitionState, TopicPartition
from kafkatool.core.zookeeper.cluster_view import States

log = logging.getLogger(__name__)

Replicas = Mapping[TopicPartition, Iterable[int]]
"""Partition -> brokers."""


@dataclass(eq=False)
class ReplicaStateMachine:
    """Moves replicas, in the batch that the caller has open."""

    _context: ControllerContext
    _zookeeper: FencedZooKeeper
    _batch: RequestBatch
    _write_lines: Callable[[str, Iterable[str]], None]

    def startup(self) -> None:
        """Make replicas on live brokers Online and tell them so, the others not to be deleted for now (CTL-68)."""
        context = self._context
        online: dict[TopicPartition, list[int]] = {}
        for partition in context.partitions():
            live = context.live_for(partition)
            for broker in context.replicas(partition):
                is_live = broker in live
                status = ReplicaStatus.ONLINE if is_live else ReplicaStatus.DELETION_INELIGIBLE
                context.set_replica_status(partition, broker, status)
                if is_live:
                    online.setdefault(partition, []).append(broker)
        self.move(online, ReplicaStatus.ONLINE)

    # To NEW                  from NON_EXISTENT, unless it leads: told by LeaderAndIsr (isNew), if anybody has ever led.
    # To ONLINE               from NEW: taken into AR in memory; it has been told, as NEW or with the first leader.
    #                         From ONLINE, OFFLINE or DELETION_INELIGIBLE: told by LeaderAndIsr.
    # To OFFLINE              from NEW, ONLINE, OFFLINE or DELETION_INELIGIBLE: StopReplica; it leads no more and leaves
    #                         the ISR (its last member stays), written on the version read; unless the topic is being
    #                         deleted the other replicas are told by LeaderAndIsr. Where the write fails, the move does.
    # To DELETION_STARTED     from OFFLINE: StopReplica that deletes.
    # To DELETION_SUCCESSFUL  from DELETION_STARTED: a mark; the broker has answered that it is deleted.
    # To DELETION_INELIGIBLE  from DELETION_STARTED or OFFLINE: a mark; the deletion waits for the broker.
    # To NON_EXISTENT         from DELETION_SUCCESSFUL: taken out of AR in memory.

    def move(self, replicas: Replicas, target: ReplicaStatus) -> dict[TopicPartition, list[int]]:
        """Move them; returns those that moved. Illegal moves are logged and skipped, the others go on."""
        context = self._context
        moving: dict[TopicPartition, list[int]] = {}
        failed = []
        for partition, brokers in replicas.items():
            for broker in brokers:
                legal = context.may_become(partition, broker, target)
                if legal and (target is not ReplicaStatus.NEW or context.leader(partition) != broker):
                    moving.setdefault(partition, []).append(broker)
                else:
                    failed.append((partition, broker))
        match target:
            case ReplicaStatus.NEW:
                self._tell(moving, is_new=True)
            case ReplicaStatus.ONLINE:
                self._to_online(moving)
            case ReplicaStatus.OFFLINE:
                done = self._to_offline(moving)
                failed += [(p, b) for p, brokers in moving.items() if p not in done for b in brokers]
                moving = {p: brokers for p, brokers in moving.items() if p in done}
            case ReplicaStatus.DELETION_STARTED:
                for partition, brokers in moving.items():
                    for broker in brokers:
                        self._batch.add_stop_replica(broker, partition, delete=True)
            case ReplicaStatus.NON_EXISTENT:
                for partition, brokers in moving.items():
                    context.set_replicas(partition, [b for b in context.replicas(partition) if b not in brokers])
            case ReplicaStatus.DELETION_SUCCESSFUL | ReplicaStatus.DELETION_INELIGIBLE:
                pass  # marks only
        self._log(moving, failed, target)
        for partition, brokers in moving.items():
            for broker in brokers:
                context.set_replica_status(partition, broker, target)
        return moving

    def _log(self, moving: Replicas, failed: list[tuple[TopicPartition, int]], target: ReplicaStatus) -> None:
        context = self._context
        self._write_lines(
            "TRACE",
            (
                lines.replica_changed(b, p, context.replica_status_of(p, b), target)
                for p, brokers in moving.items()
                for b in brokers
            ),
        )
        self._write_lines(
            "ERROR",
            (
                lines.replica_failed(context.broker_id, context.epoch, b, p, context.replica_status_of(p, b), target)
                for p, b in failed
            ),
        )

    def _tell(self, moving: Mapping[TopicPartition, Iterable[int]], *, is_new: bool = False) -> None:
        for partition, brokers in moving.items():
            state = self._context.leadership.get(partition)
            if state is not None:
                replicas = self._context.replicas(partition)
                self._batch.add_leader_and_isr(brokers, partition, state, replicas, is_new=is_new)

    def _to_online(self, moving: Mapping[TopicPartition, list[int]]) -> None:
        context = self._context
        told: dict[TopicPartition, list[int]] = {}
        for partition, brokers in moving.items():
            replicas = context.replicas(partition)
            for broker in brokers:
                if context.replica_status_of(partition, broker) is not ReplicaStatus.NEW:
                    told.setdefault(partition, []).append(broker)
                elif broker not in replicas:
                    replicas = (*replicas, broker)
                    context.set_replicas(partition, replicas)
        self._tell(told)

    # --- offline ------------------------------------------------------------------------------------------------

    def _to_offline(self, moving: Mapping[TopicPartition, list[int]]) -> set[TopicPartition]:
        """Stop them, take them out of the ISR, tell the rest; returns the partitions where that worked.

        All replicas of a partition that go in one event go in one write.
        """
        context = self._context
        done = {p for p in moving if p not in context.leadership}  # never led: nothing to write or tell

        def decide(asked: Collection[TopicPartition], read: States) -> dict[TopicPartition, PartitionState]:
            done.update(p for p in asked if p not in read.found and p not in read.unreadable)  # the topic is gone
            new: dict[TopicPartition, PartitionState] = {}
            for partition, state in read.found.items():
                if is_from_newer_controller(partition, state.leader_and_isr, context.epoch):
                    continue
                changed = without_replicas(state.leader_and_isr, moving[partition], context.epoch)
                if changed is None:
                    self._told_offline(partition, state, moving[partition])
                    done.add(partition)
                else:
                    new[partition] = PartitionState(changed, state.version)
            return new

        led = [p for p in moving if p not in done]
        for left in self._zookeeper.change_states(led, decide, what="its replicas could not leave the ISR"):
            for partition, state in left.items():
                self._told_offline(partition, state, moving[partition])
                done.add(partition)
        for partition, brokers in moving.items():
            for broker in brokers if partition in done else ():
                self._batch.add_stop_replica(broker, partition, delete=False)
        return done

    def _told_offline(self, partition: TopicPartition, state: PartitionState, gone: list[int]) -> None:
        context = self._context
        context.leadership[partition] = state
        if not context.is_deleting(partition):
            replicas = context.replicas(partition)
            self._batch.add_leader_and_isr([b for b in replicas if b not in gone], partition, state, replicas)
