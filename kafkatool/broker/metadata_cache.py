"""The metadata cache: the state of the cluster as the controller last told it to this broker (BRK-112 to 117).

Source: Kafka 2.3.1 server/MetadataCache.scala.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kafkatool.broker.runtime.yielding import yielding_gil
from kafkatool.core.model.security_protocols import SECURITY_PROTOCOLS
from kafkatool.core.model.values import BrokerInfo, Endpoint, TopicPartition
from kafkatool.core.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartition,
    UpdateMetadataRequest,
)

log = logging.getLogger(__name__)

LEADER_BEING_DELETED = -2


@dataclass(frozen=True, slots=True)
class MetadataSnapshot:
    """One state of the cluster; never changed, so readers need no lock and never see a mix (BRK-112)."""

    controller_id: int | None = None
    brokers: Mapping[int, BrokerInfo] = field(default_factory=dict)
    partitions: Mapping[str, Mapping[int, UpdateMetadataPartition]] = field(default_factory=dict)

    def partition(self, partition: TopicPartition) -> UpdateMetadataPartition | None:
        """Return its state, or None when unknown."""
        return self.partitions.get(partition.topic, {}).get(partition.partition)

    def endpoint(self, broker_id: int, listener: str) -> Endpoint | None:
        """Return the address of a live broker's listener; None when it is not alive or lacks the listener."""
        broker = self.brokers.get(broker_id)
        return broker.endpoint(listener) if broker else None


class MetadataCache:
    """The holder of the current snapshot. One writer at a time (``update``), any number of readers."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self._lock = threading.Lock()
        self._listeners: list[Callable[[list[TopicPartition]], None]] = []
        self.snapshot = MetadataSnapshot()

    def add_listener(self, listener: Callable[[list[TopicPartition]], None]) -> None:
        """Call ``listener`` after each update, outside the lock, with the partitions it removed (BRK-113)."""
        self._listeners.append(listener)

    def update(self, request: UpdateMetadataRequest) -> list[TopicPartition]:
        """Take over a request of the controller; return the partitions it removed (BRK-112, 113).

        The cost is that of the change, but for one shallow copy of the map of topics and of each map changed.
        """
        with self._lock:
            old = self.snapshot
            brokers = {b.id: _broker(b) for b in request.live_brokers}
            if brokers != old.brokers:
                self._warn_of_differing_listeners(brokers)
            topics, removed = _apply(old.partitions, request.partition_states)
            controller_id = request.controller_id if request.controller_id >= 0 else None
            self.snapshot = MetadataSnapshot(controller_id, brokers, topics)
        for listener in self._listeners:
            listener(removed)
        return removed

    def _warn_of_differing_listeners(self, brokers: Mapping[int, BrokerInfo]) -> None:
        own = brokers.get(self.broker_id)
        if own is None:
            return
        names = {e.listener for e in own.endpoints}
        for broker in brokers.values():
            if names != {e.listener for e in broker.endpoints}:
                log.error(
                    "brokers %d and %d have different listeners (%s, %s): clients of a listener a broker lacks "
                    "cannot reach the partitions it leads",
                    own.id,
                    broker.id,
                    ",".join(sorted(names)),
                    ",".join(sorted(e.listener for e in broker.endpoints)),
                )

    def contains(self, partition: TopicPartition) -> bool:
        """Tell whether the cluster has that partition."""
        return self.snapshot.partition(partition) is not None

    def broker_endpoint(self, broker_id: int, listener: str) -> Endpoint | None:
        """Return the address of a live broker's listener, None if there is none."""
        return self.snapshot.endpoint(broker_id, listener)

    def leader_endpoint(self, partition: TopicPartition, listener: str) -> tuple[int, Endpoint] | None:
        """Return the leader and its address; None when there is no live leader with that listener."""
        snapshot = self.snapshot
        state = snapshot.partition(partition)
        if state is None:
            return None
        endpoint = snapshot.endpoint(state.leader, listener)
        return (state.leader, endpoint) if endpoint else None


def _broker(broker: UpdateMetadataBroker) -> BrokerInfo:
    endpoints = tuple(
        # Versions 1 and 2 name no listener: it is the security protocol's.
        Endpoint(e.listener_name or protocol, e.host, e.port, protocol)
        for e in broker.endpoints
        for protocol in (SECURITY_PROTOCOLS[e.security_protocol],)
    )
    if not endpoints and broker.port >= 0:
        endpoints = (Endpoint("PLAINTEXT", broker.host, broker.port),)  # version 0
    return BrokerInfo(broker.id, endpoints, broker.rack)


def _apply(
    old: Mapping[str, Mapping[int, UpdateMetadataPartition]], states: list[UpdateMetadataPartition]
) -> tuple[Mapping[str, Mapping[int, UpdateMetadataPartition]], list[TopicPartition]]:
    if not states:
        return old, []
    topics: dict[str, Mapping[int, UpdateMetadataPartition]] = dict(old)
    changed: dict[str, dict[int, UpdateMetadataPartition]] = {}
    removed: list[TopicPartition] = []
    for state in yielding_gil(states):
        partitions = changed.get(state.topic)
        if partitions is None:
            partitions = changed[state.topic] = dict(topics.get(state.topic, ()))
            topics[state.topic] = partitions
        if state.leader != LEADER_BEING_DELETED:
            partitions[state.partition] = state
        elif partitions.pop(state.partition, None) is not None:
            removed.append(TopicPartition(state.topic, state.partition))
    for topic, partitions in changed.items():
        if not partitions:
            del topics[topic]
    return topics, removed
