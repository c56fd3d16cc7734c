"""States of a partition as the controller sees it, and the legal moves between them (CTL-62, CTL-64)."""

import enum
from collections.abc import Mapping


class PartitionStatus(enum.StrEnum):
    """The value is the name in ``state-change.log``."""

    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"  # assigned, but never led
    ONLINE = "OnlinePartition"  # has a leader
    OFFLINE = "OfflinePartition"  # had a leader, which died


LEGAL: Mapping[PartitionStatus, frozenset[PartitionStatus]] = {  # to -> from
    PartitionStatus.NEW: frozenset({PartitionStatus.NON_EXISTENT}),
    PartitionStatus.ONLINE: frozenset({PartitionStatus.NEW, PartitionStatus.ONLINE, PartitionStatus.OFFLINE}),
    PartitionStatus.OFFLINE: frozenset({PartitionStatus.NEW, PartitionStatus.ONLINE, PartitionStatus.OFFLINE}),
    PartitionStatus.NON_EXISTENT: frozenset({PartitionStatus.OFFLINE}),
}
