"""The ends of transactions under way: markers to the leaders of their partitions, until each has its one (TXN-50 to 57)."""

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.runtime.scheduler import Scheduler
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.storage.batches.transaction_markers import Marker
from kafkatool.broker.transactions.channels import Channels, MakeChannels, Peer
from kafkatool.broker.transactions.marker_writes import Codes, MarkerWrite, MarkerWrites
from kafkatool.broker.transactions.transaction import Identity
from kafkatool.core.errors import ZooKeeperError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import write_txn_markers as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode, error_name

log = logging.getLogger(__name__)

_SHORTEST_WAIT_MS, _LONGEST_WAIT_MS = 100, 5000
_REQUEST_BYTES = 1 << 20
_ENTRY_BYTES, _TOPIC_BYTES, _PARTITION_BYTES = 24, 8, 4
_NOWHERE: Final = -1  # the destination of partitions whose leader is not known, or not alive

_DONE = frozenset({ErrorCode.NONE})
_DONE_ALL_THE_SAME = frozenset(
    {
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,  # nothing transactional can have been written there
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PRODUCER_EPOCH,  # a newer epoch is known there: nothing of this transaction is open
    }
)
_PASSING = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_FOR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Ending:
    """A transaction whose end is decided; ``on_marked`` hears of partitions that are done, on any thread.

    ``is_wanted``: its coordinator is this broker still, in this epoch.
    """

    transactional_id: str
    partition: int
    coordinator_epoch: int
    identity: Identity
    committed: bool
    partitions: Set[TopicPartition]
    is_wanted: Callable[[], bool]
    on_marked: Callable[[Set[TopicPartition]], None]


class _Markers(NamedTuple):
    """Markers of one transaction for partitions of one leader."""

    ending: Ending
    partitions: tuple[TopicPartition, ...]

    def to_write(self) -> MarkerWrite:
        ending = self.ending
        return MarkerWrite(ending.identity, Marker(ending.committed, ending.coordinator_epoch), self.partitions)


@dataclass(slots=True)
class _Pause:
    """What waits to be sent again to one destination, and for how long the next wait is."""

    next_ms: int = _SHORTEST_WAIT_MS
    waiting: list[_Markers] = field(default_factory=list)


class Endings:
    """The sender of markers. Thread-safe. It gives up nothing but what it is told to drop."""

    def __init__(
        self,
        config: BrokerConfig,
        broker_id: int,
        metadata_cache: MetadataCache,
        scheduler: Scheduler,
        marker_writes: MarkerWrites,
        *,
        find_deleted: Callable[[Collection[TopicPartition]], Set[TopicPartition]],
        channels: MakeChannels | None = None,
    ) -> None:
        self._broker_id = broker_id
        self._metadata_cache = metadata_cache
        self._scheduler = scheduler
        self._marker_writes = marker_writes
        self._find_deleted = find_deleted
        self._listener = config.inter_broker_listener_name
        self._lock = threading.Lock()
        self._pauses: defaultdict[int, _Pause] = defaultdict(_Pause)
        self._channels: Channels[_Markers] = (channels or Channels)(
            metadata_cache,
            self._listener,
            f"broker-{broker_id}-txn-marker-sender",
            config.request_timeout_ms,
            config.inter_broker_security,
            _one_request,
            self._exchange,
            self._again_later,
        )
        metadata_cache.add_listener(lambda _: self._on_metadata())

    def send(self, ending: Ending) -> None:
        """Have a marker written to each of its partitions."""
        if ending.partitions:
            self._route([_Markers(ending, tuple(sorted(ending.partitions)))])
        else:
            ending.on_marked(frozenset())

    def drop(self, partition: int) -> None:
        """Drop all of a partition of ``__transaction_state`` that was lost (TXN-57)."""
        self._channels.drop(lambda markers: markers.ending.partition == partition and not markers.ending.is_wanted())
        with self._lock:
            for pause in self._pauses.values():
                pause.waiting = [m for m in pause.waiting if m.ending.is_wanted()]

    def shutdown(self) -> None:
        self._channels.close()

    def _route(self, work: Iterable[_Markers]) -> None:
        """Send each marker to the present leader of its partition."""
        snapshot = self._metadata_cache.snapshot
        by_leader: defaultdict[int, list[_Markers]] = defaultdict(list)
        missing: list[_Markers] = []
        for ending, partitions in work:
            if not ending.is_wanted():
                continue
            leaders: defaultdict[int, list[TopicPartition]] = defaultdict(list)
            unknown: list[TopicPartition] = []
            for tp in partitions:
                state = snapshot.partition(tp)
                if state is None:
                    unknown.append(tp)
                else:
                    is_alive = snapshot.endpoint(state.leader, self._listener) is not None
                    leaders[state.leader if is_alive else _NOWHERE].append(tp)
            if unknown:
                missing.append(_Markers(ending, tuple(unknown)))
            for leader, led in leaders.items():
                by_leader[leader].append(_Markers(ending, tuple(led)))
        if missing:
            self._scheduler.submit(lambda: self._look_for(missing), "transaction-partitions-missing")
        for leader, markers in by_leader.items():
            if leader == _NOWHERE:
                self._again_later(_NOWHERE, markers)
            elif leader == self._broker_id:
                self._write_here(markers)
            else:
                for one in markers:
                    self._channels.put(leader, one)

    def _write_here(self, markers: Sequence[_Markers]) -> None:
        def done(outcomes: Sequence[Codes]) -> None:
            for one, codes in zip(markers, outcomes, strict=True):
                self._answered(self._broker_id, one, codes)

        self._marker_writes.write([one.to_write() for one in markers], done)

    def _look_for(self, markers: Sequence[_Markers]) -> None:
        """Count as done what is deleted; the cache alone does not say so, it may be young (TXN-55)."""
        if not self._metadata_cache.snapshot.brokers:
            self._again_later(_NOWHERE, markers)
            return
        try:
            deleted = self._find_deleted({tp for one in markers for tp in one.partitions})
        except ZooKeeperError as e:
            log.info("whether partitions of a transaction were deleted cannot be found out now: %s", e)
            deleted = frozenset()
        for ending, partitions in markers:
            gone = deleted & frozenset(partitions)
            if gone:
                log.info("transactional id %s: no marker for %s, deleted", ending.transactional_id, sorted(gone))
                ending.on_marked(gone)
            if left := tuple(tp for tp in partitions if tp not in gone):
                self._again_later(_NOWHERE, [_Markers(ending, left)])

    # --- other brokers ------------------------------------------------------------------------------------------

    def _exchange(self, broker_id: int, peer: Peer, markers: Sequence[_Markers]) -> None:
        wanted = [one for one in markers if one.ending.is_wanted()]
        if not wanted:
            return
        request = wire.WriteTxnMarkersRequest(markers=[_entry(one) for one in wanted])
        answer = peer.send(wire.API, max(peer.newest(wire.API), 0), request)
        codes = {
            marker.producer_id: {
                TopicPartition(topic.topic, p.partition): p.error_code
                for topic in marker.topics
                for p in topic.partitions
            }
            for marker in answer.markers
        }
        for one in wanted:
            self._answered(broker_id, one, codes.get(one.ending.identity.producer_id, {}))

    def _answered(self, broker_id: int, markers: _Markers, codes: Codes) -> None:
        """Go by the table of TXN-53. A partition missing from the answer is tried again."""
        ending = markers.ending
        done: set[TopicPartition] = set()
        again: list[TopicPartition] = []
        for tp in markers.partitions:
            code = codes.get(tp, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code in _DONE:
                done.add(tp)
            elif code in _DONE_ALL_THE_SAME:
                log.warning("transactional id %s: no marker for %s: %s", ending.transactional_id, tp, error_name(code))
                done.add(tp)
            else:
                if code not in _PASSING:
                    log.error("transactional id %s: marker for %s: %s", ending.transactional_id, tp, error_name(code))
                again.append(tp)
        if done:
            with self._lock:
                self._pauses[broker_id].next_ms = _SHORTEST_WAIT_MS
            ending.on_marked(done)
        if again:
            self._again_later(broker_id, [_Markers(ending, tuple(again))])

    def _again_later(self, destination: int, markers: Sequence[_Markers]) -> None:
        """Send them again after a wait, which a change of the metadata ends (TXN-54)."""
        with self._lock:
            pause = self._pauses[destination]
            is_first = not pause.waiting
            pause.waiting.extend(markers)
            delay_ms = pause.next_ms
            if is_first:
                pause.next_ms = min(pause.next_ms * 2, _LONGEST_WAIT_MS)
        if is_first:
            self._scheduler.once("transaction-markers", lambda: self._resume(destination), delay_ms=delay_ms)

    def _resume(self, destination: int) -> None:
        with self._lock:
            pause = self._pauses[destination]
            markers, pause.waiting = pause.waiting, []
        self._route(markers)

    def _on_metadata(self) -> None:
        with self._lock:
            destinations = [destination for destination, pause in self._pauses.items() if pause.waiting]
        for destination in destinations:
            self._scheduler.submit(lambda d=destination: self._resume(d), "transaction-markers")  # type: ignore[misc]


def _one_request(queue: Sequence[_Markers]) -> tuple[list[_Markers], list[_Markers]]:
    """Take as many as one request holds, at most one of each producer."""
    now: list[_Markers] = []
    rest: list[_Markers] = []
    producers: set[int] = set()
    size_bytes = 0
    for one in queue:
        size = _ENTRY_BYTES + sum(len(tp.topic) + _TOPIC_BYTES + _PARTITION_BYTES for tp in one.partitions)
        if one.ending.identity.producer_id in producers or (now and size_bytes + size > _REQUEST_BYTES):
            rest.append(one)
        else:
            now.append(one)
            size_bytes += size
        producers.add(one.ending.identity.producer_id)  # of one producer, in their order
    return now, rest


def _entry(markers: _Markers) -> wire.TxnMarker:
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for tp in markers.partitions:
        topics[tp.topic].append(tp.partition)
    ending = markers.ending
    return wire.TxnMarker(
        producer_id=ending.identity.producer_id,
        producer_epoch=ending.identity.epoch,
        committed=ending.committed,
        topics=[wire.WriteTxnMarkersTopic(topic=name, partitions=numbers) for name, numbers in topics.items()],
        coordinator_epoch=ending.coordinator_epoch,
    )
