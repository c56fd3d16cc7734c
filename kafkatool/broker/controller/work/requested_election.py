"""Elections that a client asks for, of preferred leaders or of any that are alive (ADM-62, ADM-63).

They write states as every election does and leave ``/admin/preferred_replica_election`` alone.
Source: Kafka 2.8.2 controller/KafkaController.scala (processReplicaLeaderElection).
"""

import logging
from collections.abc import Iterable

from kafkatool.broker.controller.deciding.partition_machine import Strategy
from kafkatool.broker.controller.elected import Elected
from kafkatool.broker.controller.states import PartitionStatus
from kafkatool.broker.controller.work.part import Part
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode

log = logging.getLogger(__name__)

_UNKNOWN = Elected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
_DELETING = Elected(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted")
_NOT_NEEDED = Elected(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
_FAILURES = {  # by whether unclean leaders were asked for
    False: (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "PreferredReplicaPartitionLeaderElectionStrategy"),
    True: (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "OfflinePartitionLeaderElectionStrategy(true)"),
}


class RequestedElection(Part):
    """Carries out one request at a time."""

    def elect(self, partitions: Iterable[TopicPartition] | None, *, unclean: bool) -> dict[TopicPartition, Elected]:
        """Elect leaders of those partitions, of all when None; all but those that need none are told of then."""
        context = self.context
        wanted = context.partitions() if partitions is None else dict.fromkeys(partitions)
        refused = {p: self._refusal(p, unclean=unclean) for p in wanted}
        electable = [p for p, why in refused.items() if why is None]
        log.info("%s leaders of %d partitions are elected", "any live" if unclean else "preferred", len(electable))
        with self.batch.filling():
            moved = self.partitions.move(
                electable, PartitionStatus.ONLINE, Strategy.UNCLEAN if unclean else Strategy.PREFERRED
            )
        outcomes = {p: why or self._outcome(p, p in moved, unclean=unclean) for p, why in refused.items()}
        if partitions is None:
            return {p: outcome for p, outcome in outcomes.items() if outcome is not _NOT_NEEDED}
        return outcomes

    def _refusal(self, partition: TopicPartition, *, unclean: bool) -> Elected | None:
        context = self.context
        if not context.knows(partition):
            return _UNKNOWN
        if context.is_deleting(partition):
            return _DELETING
        leader = context.leader(partition)
        there = leader in context.live_for(partition) if unclean else leader == context.replicas(partition)[0]
        return _NOT_NEEDED if there else None

    def _outcome(self, partition: TopicPartition, moved: bool, *, unclean: bool) -> Elected:
        if moved:
            return Elected(leader=self.context.leader(partition))
        code, strategy = _FAILURES[unclean]
        return Elected(code, f"Failed to elect leader for partition {partition} under strategy {strategy}")
