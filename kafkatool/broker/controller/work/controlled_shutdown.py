"""Controlled shutdown: a broker that is to stop first hands over its leaderships and leaves every ISR (CTL-111 to 116)."""

import logging
from dataclasses import dataclass

from kafkatool.broker.controller.deciding.partition_machine import Strategy
from kafkatool.broker.controller.states import PartitionStatus, ReplicaStatus
from kafkatool.broker.controller.work.part import Part
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode

log = logging.getLogger(__name__)


@dataclass(eq=False)
class ControlledShutdown(Part):
    """Handles these requests. Adds to the context's ``shutting_down``, until the broker's node goes (CTL-113)."""

    def serve(self, broker: int, broker_epoch: int | None) -> tuple[ErrorCode, list[TopicPartition]]:
        """Return the partitions with more than one replica that the broker still leads: none when it may go (CTL-116)."""
        context = self.context
        registered = context.brokers.get(broker)
        if registered is None:
            return ErrorCode.BROKER_NOT_AVAILABLE, []
        if broker_epoch is not None and broker_epoch >= 0 and broker_epoch < (registered.epoch or 0):
            return ErrorCode.STALE_BROKER_EPOCH, []
        log.info("broker %d is shutting down", broker)
        context.shutting_down.add(broker)
        concerned = [
            p
            for p in context.partitions_on(broker)
            if len(context.replicas(p)) > 1 and p in context.leadership and not context.is_deleting(p)
        ]
        led = [p for p in concerned if context.leader(p) == broker]
        followed = {
            p: [broker]
            for p in concerned
            if context.leader(p) != broker and context.may_become(p, broker, ReplicaStatus.OFFLINE)
        }
        with self.batch.filling():
            self.partitions.move(led, PartitionStatus.ONLINE, Strategy.CONTROLLED_SHUTDOWN)
            for partition in followed:  # before its leader hears of it, so that it does not catch up again
                self.batch.add_stop_replica(broker, partition, delete=False)
        with self.batch.filling():
            self.replicas.move(followed, ReplicaStatus.OFFLINE)
        remaining = [p for p in concerned if context.leader(p) == broker]
        log.info("broker %d still leads %d partitions with other replicas", broker, len(remaining))
        return ErrorCode.NONE, remaining
