"""Brokers that start, die, or come back under the same id, and replicas that fail (CTL-30 to CTL-48, CTL-122).

Source: Kafka 0.10.2.1 controller/KafkaController.scala; incarnations: 2.8.0.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from kafkatool.broker.controller.gauges import Durations
from kafkatool.broker.controller.states import PartitionStatus, ReplicaStatus
from kafkatool.broker.controller.telling import transition_lines as lines
from kafkatool.broker.controller.telling.channels import Channels
from kafkatool.broker.controller.telling.request_batch import IllegalBatchError
from kafkatool.broker.controller.work.part import Part
from kafkatool.broker.controller.work.reassignment import Reassignment
from kafkatool.broker.controller.work.topic_deletion import TopicDeletion
from kafkatool.core.errors import KafkatoolError, TermOverError
from kafkatool.core.model.values import BrokerInfo, TopicPartition, join_ids
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from kafkatool.core.zookeeper.cluster_view import decode_brokers
from kafkatool.core.zookeeper.session import WatchEvent
from kafkatool.core.zookeeper.znodes import BrokersZnode, BrokerZnode

log = logging.getLogger(__name__)


@dataclass(eq=False)
class BrokerChanges(Part):
    """Keeps the context's brokers like ``/brokers/ids`` and does what follows from a change.

    Owns the context's ``failed_replicas``.
    """

    channels: Channels
    write_plain_lines: Callable[[str, Iterable[str]], None]
    durations: Durations
    deletion: TopicDeletion
    reassignment: Reassignment
    _too_new: set[int] = field(default_factory=set, init=False)  # those there is an error line about

    def watch(self) -> list[str]:
        """Set the watch on ``/brokers/ids`` and return its children, as text."""
        watch = self.watch_on("broker change", self._on_change)
        return self.session.children(BrokersZnode.PATH, watch) or []

    def read(self, names: Collection[str]) -> dict[int, BrokerInfo]:
        """Read the registered brokers; a node that is gone or unreadable counts as absent (Z-7, Z-35 to 37)."""
        for name in names:
            if not name.isdecimal():
                log.warning("%s/%s is no broker id: skipped", BrokersZnode.PATH, name)
        ids = sorted(int(n) for n in names if n.isdecimal())
        found = decode_brokers(ids, self.session.get_many([BrokerZnode.path(i) for i in ids]))
        too_new = {b for b, info in found.items() if info.asks_for_isr_changes}
        if too_new - self._too_new:
            log.error(
                "brokers %s speak inter.broker.protocol.version 2.7 or newer: they leave changes of the ISR to the "
                "controller, and this one does not serve them; set it to 2.6 or older there",
                join_ids(sorted(too_new)),
            )
        self._too_new = too_new
        return found

    def _on_change(self, _: WatchEvent) -> None:
        try:
            with self.durations.timed():
                names = self.watch()
                log.info(
                    "Broker change listener fired for path %s with children %s",
                    BrokersZnode.PATH,
                    ",".join(sorted(names)),  # as text: 1,10,2
                )
                self._apply(self.read(names))
        except (TermOverError, IllegalBatchError):
            raise
        except KafkatoolError:
            log.exception("Error while handling broker changes")  # only this event ends (CTL-121)

    def _apply(self, current: dict[int, BrokerInfo]) -> None:
        context = self.context
        known = context.brokers
        new = current.keys() - known.keys()
        dead = known.keys() - current.keys()
        bounced = {b for b in current.keys() & known.keys() if (current[b].epoch or 0) > (known[b].epoch or 0)}
        log.info(
            "Newly added brokers: %s, deleted brokers: %s, all live brokers: %s",
            join_ids(sorted(new | bounced)),
            join_ids(sorted(dead | bounced)),
            join_ids(sorted(current)),
        )
        for broker in dead | bounced:
            self.channels.close(broker)
        if bounced:  # it died and came back between two reads: its old life ends first (CTL-35)
            context.brokers = {b: info for b, info in current.items() if b not in new | bounced}
            context.brokers.update({b: known[b] for b in dead})
            self._on_failure(bounced)
        context.brokers = current
        for broker in sorted(current):
            self.channels.open(current[broker])
        if new | bounced:
            self._on_startup(new | bounced)
        if dead:
            self._on_failure(dead)

    # --- start --------------------------------------------------------------------------------------------------

    def _on_startup(self, brokers: Collection[int]) -> None:
        context = self.context
        log.info("New broker startup callback for %s", join_ids(sorted(brokers)))
        self._forget_life(brokers)
        with self.batch.filling():  # before any LeaderAndIsr: whoever follows must know where (CTL-31)
            self.batch.add_metadata(context.leadership)
        topics = {p.topic: None for b in sorted(brokers) for p in context.partitions_on(b)}
        with self.batch.filling():
            self.replicas.move(context.replicas_on(sorted(brokers), ReplicaStatus.ONLINE), ReplicaStatus.ONLINE)
            self.partitions.bring_online()
        self.reassignment.on_brokers_started(brokers)
        self.deletion.resume_after_change(topics)

    # --- failure ------------------------------------------------------------------------------------------------

    def _on_failure(self, brokers: Collection[int]) -> None:
        context = self.context
        lost: dict[TopicPartition, list[int]] = {}
        self._forget_life(brokers)
        for broker in sorted(brokers):
            for partition in context.partitions_on(broker):
                lost.setdefault(partition, []).append(broker)
        self.on_replicas_lost(lost)
        self.reassignment.on_brokers_lost(sorted(brokers))

    def _forget_life(self, brokers: Collection[int]) -> None:
        """Drop what was noted of the brokers in the life that has ended."""
        context, gone = self.context, set(brokers)
        context.shutting_down -= gone
        context.failed_replicas = {p: left for p, failed in context.failed_replicas.items() if (left := failed - gone)}

    def on_replicas_lost(self, lost: dict[TopicPartition, list[int]]) -> None:
        """Deal with replicas that serve no more, lost with their broker or its log directory (CTL-39, CTL-122)."""
        context = self.context
        kept = {p: brokers for p, brokers in lost.items() if not context.is_deleting(p)}
        leaderless = [p for p, brokers in kept.items() if context.leader(p) in brokers]
        with self.batch.filling():
            self.partitions.move(leaderless, PartitionStatus.OFFLINE)
            self.partitions.bring_online()
            self.replicas.move(
                {
                    p: [b for b in brokers if context.may_become(p, b, ReplicaStatus.OFFLINE)]
                    for p, brokers in kept.items()
                },
                ReplicaStatus.OFFLINE,
            )
            if not leaderless:
                self.batch.add_metadata()
        self.deletion.fail({p: brokers for p, brokers in lost.items() if context.is_deleting(p)})

    # --- log directories ----------------------------------------------------------------------------------------

    def on_leader_and_isr(self, broker: int, answer: LeaderAndIsrResponse) -> None:
        """Note failed replicas: code 56, the log directory is gone (CTL-122). Codes 11 and 3 are expected (CTL-61)."""
        context = self.context
        if answer.error_code:
            self.write_plain_lines("ERROR", [lines.leader_and_isr_refused(answer, broker)])
            return
        if broker not in context.brokers:
            return
        newly = []
        for entry in answer.partitions:
            partition = TopicPartition(entry.topic, entry.partition)
            if entry.error_code == ErrorCode.NONE:
                if failed := context.failed_replicas.get(partition):
                    failed.discard(broker)
                    if not failed:
                        del context.failed_replicas[partition]
            elif entry.error_code == ErrorCode.KAFKA_STORAGE_ERROR and context.knows(partition):
                failed = context.failed_replicas.setdefault(partition, set())
                if broker not in failed:
                    newly.append(partition)
                failed.add(broker)
        if newly:
            self.write_plain_lines("INFO", [lines.replicas_offline(newly, broker)])
            self.on_replicas_lost({p: [broker] for p in newly if broker in context.replicas(p)})
