"""States of one replica as the controller sees it, and the legal moves between them (CTL-66, CTL-67)."""

import enum
from collections.abc import Mapping


class ReplicaStatus(enum.StrEnum):
    """The value is the name in ``state-change.log``."""

    NON_EXISTENT = "NonExistentReplica"
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"


LEGAL: Mapping[ReplicaStatus, frozenset[ReplicaStatus]] = {  # to -> from
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
