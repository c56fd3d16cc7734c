"""Preferred election: leadership goes back to AR[0], on request or for the rebalance (CTL-100 to CTL-106)."""

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kafkatool.broker.controller.deciding.partition_machine import Strategy
from kafkatool.broker.controller.states import PartitionStatus
from kafkatool.broker.controller.work.part import Part
from kafkatool.broker.controller.work.topic_deletion import TopicDeletion
from kafkatool.core.errors import ZnodeFormatError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.session import Watch
from kafkatool.core.zookeeper.znodes import PreferredElectionZnode

log = logging.getLogger(__name__)


@dataclass(eq=False)
class PreferredElection(Part):
    """Carries out requests and elections. Owns the context's ``electing``."""

    deletion: TopicDeletion

    def watch(self) -> list[TopicPartition] | None:
        """Set the watch on ``/admin/preferred_replica_election`` and return what it asks for; None: there is none.

        An unreadable request is empty: it is deleted like any other, or it would block the tool for ever (Z-35).
        """
        return self.read(self.watch_on("preferred election", lambda _: self.serve(self.watch())))

    def read(self, watch: Watch | None = None) -> list[TopicPartition] | None:
        """Return what the request asks for now."""
        node = self.session.get(PreferredElectionZnode.PATH, watch)
        try:
            return PreferredElectionZnode.decode(node.data) if node else None
        except ZnodeFormatError as e:
            log.error("%s; it is deleted", e)
            return []

    def note(self, request: Collection[TopicPartition] | None) -> None:
        """Let the topics of a request found at failover wait with their deletion (CTL-27, CTL-105)."""
        self.context.electing.update(dict.fromkeys(request or ()))

    def serve(self, request: Collection[TopicPartition] | None) -> None:
        """Elect what the node asks for and delete it, whatever succeeded (CTL-104, 106)."""
        if request is None:
            return
        context = self.context
        context.electing.update(dict.fromkeys(request))
        try:
            self.elect(request)
        finally:
            context.electing.clear()
        self.zookeeper.delete([PreferredElectionZnode.PATH])
        self.deletion.resume({p.topic for p in request})

    def elect(self, partitions: Iterable[TopicPartition]) -> None:
        """Elect the preferred leaders of those partitions, where that loses no data (CTL-100 to 103)."""
        context = self.context
        wanted = []
        for partition in dict.fromkeys(partitions):
            if not context.knows(partition):
                log.error("preferred election of partition %s is skipped: there is no such partition", partition)
            elif context.is_deleting(partition):
                log.error("preferred election of partition %s is skipped: its topic is being deleted", partition)
            elif partition not in context.leadership:
                log.error("preferred election of partition %s is skipped: it never had a leader", partition)
            elif context.leader(partition) != context.replicas(partition)[0]:
                wanted.append(partition)
        with self.batch.filling():
            elected = self.partitions.move(wanted, PartitionStatus.ONLINE, Strategy.PREFERRED)
        for partition in wanted:
            if partition not in elected:
                log.warning(
                    "partition %s is still led by broker %s: its preferred replica %d is not alive or not in sync",
                    partition,
                    context.leader(partition),
                    context.replicas(partition)[0],
                )
