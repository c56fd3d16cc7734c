"""Preferred election: leadership goes back to AR[0], on request or for the rebalance (CTL-100 to CTL-106)."""

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kafkatool.broker.controller.deciding.partition_machine import Strategy
from kafkatool.broker.controller.states import PartitionStatus
from kafkatool.broker.controller.telling.request_batch import IllegalBatchError
from kafkatool.broker.controller.work.part import Part
from kafkatool.broker.controller.work.topic_deletion import TopicDeletion
from kafkatool.core.errors import KafkatoolError, TermOverError, ZnodeFormatError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.session import Node, Watch
from kafkatool.core.zookeeper.znodes import PreferredElectionZnode

log = logging.getLogger(__name__)


class Request(NamedTuple):
    """What ``/admin/preferred_replica_election`` asks for, and the node it was read from."""

    partitions: Collection[TopicPartition]
    node: Node


@dataclass(eq=False)
class PreferredElection(Part):
    """Carries out requests and elections. Owns the context's ``electing``."""

    deletion: TopicDeletion

    def watch(self) -> Request | None:
        """Set the watch on ``/admin/preferred_replica_election`` and return what it asks for; None: there is none.

        An unreadable request is empty: it is deleted like any other, or it would block the tool for ever (Z-35).
        """
        return self.read(self.watch_on("preferred election", lambda _: self.serve(self.watch())))

    def read(self, watch: Watch | None = None) -> Request | None:
        """Return what the request asks for now."""
        node = self.session.get(PreferredElectionZnode.PATH, watch)
        if node is None:
            return None
        try:
            return Request(PreferredElectionZnode.decode(node.data), node)
        except ZnodeFormatError as e:
            log.error("%s; it is deleted", e)
            return Request((), node)

    def note(self, request: Request | None) -> None:
        """Let the topics of a request found at failover wait with their deletion (CTL-27, CTL-105)."""
        self.context.electing.update(dict.fromkeys(request.partitions if request else ()))

    def serve(self, request: Request | None) -> None:
        """Elect what the node asks for and delete it, whatever succeeded (CTL-104, 106).

        A request that has taken its place meanwhile stays: the watch has fired for it. One whose pass failed goes, too,
        or it would block the tool for ever; but for one cut short by the end of the term, which the next one serves.
        """
        if request is None:
            return
        context = self.context
        context.electing.update(dict.fromkeys(request.partitions))
        try:
            self.elect(request.partitions)
        except (TermOverError, IllegalBatchError):
            raise
        except KafkatoolError:
            self._delete(request)
            raise
        finally:
            context.electing.clear()
        self._delete(request)
        self.deletion.resume({p.topic for p in request.partitions})

    def _delete(self, request: Request) -> None:
        self.zookeeper.delete_as_read({PreferredElectionZnode.PATH: request.node})

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
