"""Which replica a consumer should read from: one of its own rack, where one is in sync (KIP-392).

Only the leader says so, and only where ``replica.selector.class`` asks for it. Source: Kafka 2.8.2
common/replica/RackAwareReplicaSelector.java, server/ReplicaManager.scala (findPreferredReadReplica); that replicas out of
sync are passed over is of Kafka 3.4.
"""

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.replication.leading.fetches import CloserReplica
from kafkatool.broker.replication.partition.partition import Partition


class Candidate(NamedTuple):
    """A follower in sync, in the order of preference: the farthest, then who was caught up last."""

    end: int
    caught_up_ms: float
    broker_id: int
    log_start: int
    rack: str | None


def choose(rack: str, leader_rack: str | None, offset: int, followers: Iterable[Candidate]) -> int | None:
    """Return the follower to read from; None: the leader is as close as any that has the offset."""
    if rack == leader_rack:
        return None
    close = [one for one in followers if one.rack == rack and one.log_start <= offset <= one.end]
    return max(close).broker_id if close else None


def closer_replica(rack: str, listener: str, cache: MetadataCache) -> CloserReplica:
    """Make the choice for a consumer of that rack, that reaches brokers by that listener."""
    return partial(_closer, rack, listener, cache)


def _closer(rack: str, listener: str, cache: MetadataCache, partition: Partition, offset: int) -> int | None:
    if not partition.is_leader:
        return None
    brokers, in_sync = cache.snapshot.brokers, partition.isr
    leader = brokers.get(partition.broker_id)
    followers = [
        Candidate(r.end.offset, r.caught_up_ms, r.broker_id, r.log_start_offset, brokers[r.broker_id].rack)
        for r in list(partition.remote.values())
        if r.broker_id in in_sync and r.broker_id in brokers and brokers[r.broker_id].endpoint(listener)
    ]
    return choose(rack, None if leader is None else leader.rack, offset, followers)
