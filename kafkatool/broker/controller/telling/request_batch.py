"""The entries for brokers, collected over one event and sent in few requests (CTL-50 to CTL-57).

Per broker one LeaderAndIsr, then one UpdateMetadata for all, then StopReplica: brokers know their role before clients
are told, and replicas are stopped only when their leader knows. Source: Kafka 1.1.1 ControllerChannelManager.scala.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from kafkatool.broker.controller.context import ControllerContext
from kafkatool.broker.controller.gauges import Durations
from kafkatool.broker.controller.telling import transition_lines as lines
from kafkatool.broker.controller.telling.channels import Answer, Channels, ControlRequest, Message
from kafkatool.broker.settings.protocol_versions import ProtocolVersions
from kafkatool.core.errors import ControllerFencedError, KafkatoolError, SessionExpiredError
from kafkatool.core.model.security_protocols import protocol_number
from kafkatool.core.model.values import BrokerInfo, LeaderAndIsr, PartitionState, TopicPartition, join_ids
from kafkatool.core.protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
)
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest
from kafkatool.core.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartition,
    UpdateMetadataRequest,
)

_BEING_DELETED = -2
_NO_STATE = PartitionState(LeaderAndIsr(None, 0, (), 0), 0)  # where an earlier controller has deleted the node already

OnAnswer = Callable[[int, Message, Answer], None]
"""Broker, request and answer; called on the channel's thread."""


class IllegalBatchError(KafkatoolError):
    """A batch begun while another was open: the controller resigns (CTL-50).

    Sending does not fail but by a bug, as it only fills queues; that ends its event alone, since the next controller
    would meet the same bug, and the one after it.
    """


@dataclass(eq=False)
class RequestBatch:
    """The requests of one event, filled and sent by the event thread: ``with batch.filling(): ...``."""

    _context: ControllerContext
    _channels: Channels
    _listener: str
    _versions: ProtocolVersions
    _write_lines: Callable[[str, Iterable[str]], None]
    _on_answer: OnAnswer
    _durations: Durations
    _open: bool = field(default=False, init=False)
    _leader_and_isr: dict[int, dict[TopicPartition, LeaderAndIsrPartition]] = field(default_factory=dict, init=False)
    _metadata: dict[TopicPartition, None] = field(default_factory=dict, init=False)
    _tell_all: bool = field(default=False, init=False)
    _stop: dict[int, dict[TopicPartition, None]] = field(default_factory=dict, init=False)
    _delete: dict[int, dict[TopicPartition, None]] = field(default_factory=dict, init=False)

    @contextmanager
    def filling(self) -> Iterator[None]:
        """Start a batch, let the caller add entries, send it.

        An error of the caller's does not hold back what was added before it: that is written in ZooKeeper already.
        A fenced controller sends nothing more.
        """
        if self._open:
            self._clear()
            raise IllegalBatchError("a request batch was begun while another was not sent yet")
        self._open = True
        try:
            yield
        except (ControllerFencedError, SessionExpiredError, IllegalBatchError):
            self._clear()
            raise
        except BaseException:
            self._send()
            raise
        self._send()

    def _clear(self) -> None:
        self._open = self._tell_all = False
        self._leader_and_isr, self._metadata, self._stop, self._delete = {}, {}, {}, {}

    # --- filling ------------------------------------------------------------------------------------------------

    def add_leader_and_isr(
        self,
        brokers: Iterable[int],
        partition: TopicPartition,
        state: PartitionState,
        replicas: Sequence[int],
        *,
        is_new: bool = False,
    ) -> None:
        """Tell those brokers its leadership, and everyone by UpdateMetadata (CTL-52)."""
        now = state.leader_and_isr
        shared = LeaderAndIsrPartition(
            topic=partition.topic,
            partition=partition.partition,
            controller_epoch=now.controller_epoch,
            leader=-1 if now.leader is None else now.leader,
            leader_epoch=now.leader_epoch,
            isr=list(now.isr),
            zk_version=state.version,
            replicas=list(replicas),
            is_new=is_new,
        )
        for broker in brokers:
            if broker < 0:
                continue
            entries = self._leader_and_isr.setdefault(broker, {})
            earlier = entries.get(partition)
            # news told earlier in this batch stays news
            was_new = earlier is not None and earlier.is_new
            entries[partition] = replace(shared, is_new=True) if was_new and not is_new else shared
        self._metadata[partition] = None
        self._tell_all = True

    def add_metadata(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Tell all brokers of those partitions by UpdateMetadata; with none it carries the list of brokers only."""
        self._metadata.update(dict.fromkeys(partitions))
        self._tell_all = True

    def add_stop_replica(self, broker: int, partition: TopicPartition, *, delete: bool) -> None:
        """Tell the broker to stop its replica. Stopping and deleting are two requests, in this order."""
        if broker >= 0:
            (self._delete if delete else self._stop).setdefault(broker, {})[partition] = None

    # --- sending ------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        try:
            with self._durations.timed():
                self._send_leader_and_isr()
                self._send_metadata()
                self._send_stop_replica()
        finally:
            self._clear()

    def _queue(self, broker: int, version: int, message: Message) -> None:
        # what waits for the answer knows the message, not the request it is in: thousands of states would be in a cycle
        request = ControlRequest(version, message, lambda answer: self._on_answer(broker, message, answer))
        self._channels.send(broker, request)

    def epoch_of(self, broker: int) -> int:
        """Return the epoch of the broker's present life, as requests name it; -1: none is known."""
        info = self._context.brokers.get(broker)
        return -1 if info is None or info.epoch is None else info.epoch

    def _send_leader_and_isr(self) -> None:
        receivers: dict[int, tuple[LeaderAndIsrPartition, list[int]]] = {}
        for broker, entries in self._leader_and_isr.items():
            if broker in self._channels:
                for state in entries.values():
                    receivers.setdefault(id(state), (state, []))[1].append(broker)
        self._write_lines(
            "TRACE",
            (line for state, brokers in receivers.values() for line in lines.leader_and_isr_sent(state, brokers)),
        )
        for broker, entries in self._leader_and_isr.items():
            leaders = dict.fromkeys(s.leader for s in entries.values())
            message = LeaderAndIsrRequest(
                controller_id=self._context.broker_id,
                controller_epoch=self._context.epoch,
                broker_epoch=self.epoch_of(broker),
                partition_states=list(entries.values()),
                live_leaders=[
                    LeaderAndIsrLiveLeader(broker_id=leader, host=endpoint.host, port=endpoint.port)
                    for leader in leaders
                    if (info := self._context.brokers.get(leader)) and (endpoint := info.endpoint(self._listener))
                ],
            )
            self._queue(broker, self._versions.leader_and_isr, message)

    def _send_metadata(self) -> None:
        if not self._tell_all:
            return
        context = self._context
        told = dict(self._metadata)
        for topic in context.deleting:  # CTL-55
            told.update(dict.fromkeys(context.partitions_of(topic)))
        all_live = context.live_brokers
        states = [
            self._metadata_of(p, known, all_live)
            for p in told
            if (known := context.leadership.get(p) or (_NO_STATE if context.is_deleting(p) else None))
        ]
        brokers = sorted(context.brokers)
        text = join_ids(brokers, ", ")
        self._write_lines("TRACE", (lines.update_metadata_sent(state, text) for state in states))
        live = [_broker(context.brokers[b]) for b in brokers]
        for broker in brokers:
            message = UpdateMetadataRequest(
                controller_id=context.broker_id,
                controller_epoch=context.epoch,
                broker_epoch=self.epoch_of(broker),
                partition_states=states,
                live_brokers=live,
            )
            self._queue(broker, self._versions.update_metadata, message)

    def _metadata_of(
        self, partition: TopicPartition, state: PartitionState, all_live: Collection[int]
    ) -> UpdateMetadataPartition:
        context = self._context
        unfit = context.unfit_for(partition)
        now = state.leader_and_isr
        leader = -1 if now.leader is None else now.leader
        replicas = context.replicas(partition)
        return UpdateMetadataPartition(
            topic=partition.topic,
            partition=partition.partition,
            controller_epoch=now.controller_epoch,
            leader=_BEING_DELETED if context.is_deleting(partition) else leader,
            leader_epoch=now.leader_epoch,
            isr=list(now.isr),
            zk_version=state.version,
            replicas=list(replicas),
            offline_replicas=[b for b in replicas if b not in all_live or b in unfit],
        )

    def _send_stop_replica(self) -> None:
        kinds = ((False, self._stop), (True, self._delete))
        self._write_lines(
            "TRACE",
            (
                lines.stop_replica_sent(p, self._leader_epoch(p), delete=delete, broker=broker)
                for delete, entries in kinds
                for broker, partitions in entries.items()
                if broker in self._channels
                for p in partitions
            ),
        )
        for broker in {**self._stop, **self._delete}:
            stopped = list(self._stop.get(broker, ()))
            # each deletion by itself, so that one that fails or takes long does not speak for the others
            requests = [(False, stopped)] if stopped else []
            requests += [(True, [p]) for p in self._delete.get(broker, ())]
            for delete, partitions in requests:
                message = StopReplicaRequest(
                    controller_id=self._context.broker_id,
                    controller_epoch=self._context.epoch,
                    broker_epoch=self.epoch_of(broker),
                    delete_partitions=delete,
                    partitions=partitions,
                )
                self._queue(broker, self._versions.stop_replica, message)

    def _leader_epoch(self, partition: TopicPartition) -> int:
        return self._context.leadership.get(partition, _NO_STATE).leader_and_isr.leader_epoch


def _broker(info: BrokerInfo) -> UpdateMetadataBroker:
    endpoints = [
        UpdateMetadataEndpoint(
            port=e.port, host=e.host, listener_name=e.listener, security_protocol=protocol_number(e.protocol)
        )
        for e in info.endpoints
    ]
    return UpdateMetadataBroker(id=info.id, endpoints=endpoints, rack=info.rack)
