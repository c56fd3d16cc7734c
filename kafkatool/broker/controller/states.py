"""The states of partitions and replicas as the controller sees them, and the legal moves between them (CTL-62 to 67).

What each move does is told at ``move`` of the two machines.
"""

import enum
from collections.abc import Mapping


class PartitionStatus(enum.StrEnum):
    """The value is the name in ``state-change.log``."""

    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"  # assigned, but never led
    ONLINE = "OnlinePartition"  # has a leader
    OFFLINE = "OfflinePartition"  # had a leader, which died


PARTITION_MOVES: Mapping[PartitionStatus, frozenset[PartitionStatus]] = {  # to -> from
    PartitionStatus.NEW: frozenset({PartitionStatus.NON_EXISTENT}),
    PartitionStatus.ONLINE: frozenset({PartitionStatus.NEW, PartitionStatus.ONLINE, PartitionStatus.OFFLINE}),
    PartitionStatus.OFFLINE: frozenset({PartitionStatus.NEW, PartitionStatus.ONLINE, PartitionStatus.OFFLINE}),
    PartitionStatus.NON_EXISTENT: frozenset({PartitionStatus.OFFLINE}),
}


class ReplicaStatus(enum.StrEnum):
    """The value is the name in ``state-change.log``."""

    NON_EXISTENT = "NonExistentReplica"
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"


REPLICA_MOVES: Mapping[ReplicaStatus, frozenset[ReplicaStatus]] = {  # to -> from
    ReplicaStatus.NEW: frozenset({ReplicaStatus.NON_EXISTENT}),
    ReplicaStatus.ONLINE: frozenset(
        {ReplicaStatus.NEW, ReplicaStatus.ONLINE, ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_INELIGIBLE}
    ),
    ReplicaStatus.OFFLINE: frozenset(
        {ReplicaStatus.NEW, ReplicaStatus.ONLINE, ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_INELIGIBLE}
    ),
    ReplicaStatus.DELETION_STARTED: frozenset({ReplicaStatus.OFFLINE}),
    ReplicaStatus.DELETION_SUCCESSFUL: frozenset({ReplicaStatus.DELETION_STARTED}),
    # from Offline too, as Kafka 2.8: a replica on a dead broker when its topic is deleted (section 17 no. 21)
    ReplicaStatus.DELETION_INELIGIBLE: frozenset({ReplicaStatus.DELETION_STARTED, ReplicaStatus.OFFLINE}),
    ReplicaStatus.NON_EXISTENT: frozenset({ReplicaStatus.DELETION_SUCCESSFUL}),
}
