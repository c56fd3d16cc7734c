"""One term of this broker as controller: everything that lives from a won election to resigning (CTL-16, CTL-17).

A term owns the context, the channels and both state machines, and connects the parts that react to events. When it is
over it is dropped whole: a late watch, answer or timer finds ``is_over`` and does nothing (Z-46).
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from kafkatool.broker.controller.context import ControllerContext
from kafkatool.broker.controller.deciding.partition_machine import PartitionStateMachine
from kafkatool.broker.controller.deciding.replica_machine import ReplicaStateMachine
from kafkatool.broker.controller.events import Event, EventQueue
from kafkatool.broker.controller.gauges import Gauges
from kafkatool.broker.controller.telling.channels import Answer, ChannelFactory, Channels, Message
from kafkatool.broker.controller.telling.request_batch import RequestBatch
from kafkatool.broker.controller.work.broker_changes import BrokerChanges
from kafkatool.broker.controller.work.controlled_shutdown import ControlledShutdown
from kafkatool.broker.controller.work.dropped_replicas import DroppedReplicas
from kafkatool.broker.controller.work.notifications import Notifications
from kafkatool.broker.controller.work.preferred_election import PreferredElection
from kafkatool.broker.controller.work.reassignment import Reassignment
from kafkatool.broker.controller.work.rebalance import Rebalance
from kafkatool.broker.controller.work.requested_election import RequestedElection
from kafkatool.broker.controller.work.requested_moves import RequestedMoves
from kafkatool.broker.controller.work.topic_changes import TopicChanges
from kafkatool.broker.controller.work.topic_deletion import TopicDeletion
from kafkatool.broker.controller.writing.zookeeper_writes import FencedZooKeeper
from kafkatool.broker.runtime.timer import Timer
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.state_change_log import StateChangeLog
from kafkatool.core.errors import ZnodeFormatError
from kafkatool.core.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from kafkatool.core.zookeeper.session import Watch, WatchEvent, ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigZnode

log = logging.getLogger(__name__)

_UNCLEAN = "unclean.leader.election.enable"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The things outside of it that a controller works with; the simulator passes its own."""

    zookeeper: ZooKeeper
    config: BrokerConfig
    broker_id: int
    queue: EventQueue
    timer: Timer
    state_change_log: StateChangeLog
    open_channel: Callable[[str], ChannelFactory]  # given the actor its lines begin with
    clock: Callable[[], float]


class Term:
    """The parts of one term, made and connected once the controller epoch is raised. Used by the event thread alone."""

    def __init__(
        self,
        surroundings: Surroundings,
        gauges: Gauges,
        session_is_gone: Callable[[], bool],
        epoch: int,
        epoch_version: int,
    ) -> None:
        """Begin the term. ``session_is_gone``: its session has expired, though the event is not handled yet."""
        self.surroundings = surroundings
        self.is_over = False
        self._deleted: deque[tuple[int, StopReplicaRequest, StopReplicaResponse]] = deque()  # filled by the channels
        self._actor = f"[Controller id={surroundings.broker_id} epoch={epoch}] "
        config = surroundings.config
        self.session = surroundings.zookeeper
        self.zookeeper = FencedZooKeeper(
            surroundings.zookeeper, epoch_version, lambda: self.is_over or session_is_gone()
        )
        self.context = ControllerContext(surroundings.broker_id, epoch)
        self.channels = Channels(surroundings.open_channel(self._actor))
        self.batch = RequestBatch(
            self.context,
            self.channels,
            config.inter_broker_listener_name,
            config.protocol_versions,
            self.write_lines,
            self._on_answer,
            gauges.batches,
        )
        self.partitions = PartitionStateMachine(
            self.context, self.zookeeper, self.batch, self.write_lines, self._unclean_topics
        )
        self.replicas = ReplicaStateMachine(self.context, self.zookeeper, self.batch, self.write_lines)
        shared = (
            self.context, self.session, self.zookeeper, self.batch, self.partitions, self.replicas, self.watch,
        )  # fmt: skip
        self.topic_changes = TopicChanges(*shared)
        dropped = DroppedReplicas(*shared)
        self.reassignment = Reassignment(*shared, self.enqueue, self.write_lines, self.topic_changes, dropped)
        self.requested_moves = RequestedMoves(*shared, self.topic_changes, self.reassignment, dropped)
        self.reassignment.replace = self.requested_moves.replace
        self.deletion = TopicDeletion(*shared, self.topic_changes, self.reassignment, config.delete_topic_enable)
        self.reassignment.on_moved = self.deletion.resume_after_change  # each needs the other (CTL-97)
        self.preferred_election = PreferredElection(*shared, self.deletion)
        self.requested_election = RequestedElection(*shared)
        self.rebalance = Rebalance(self.context, config, surroundings.timer, self.enqueue, self.preferred_election)
        self.broker_changes = BrokerChanges(
            *shared, self.channels, self.write_plain_lines, gauges.broker_changes, self.deletion, self.reassignment
        )
        self.notifications = Notifications(*shared)
        self.controlled_shutdown = ControlledShutdown(*shared)

    def end(self) -> None:
        """End the term (CTL-16): nothing of it reacts, writes or sends any more. Safe to call twice."""
        self.is_over = True
        self.rebalance.stop()
        self.context.forget_all()  # the parts of a term know each other, and the collector does not look at them
        self.channels.close_all()

    # --- what the parts share -----------------------------------------------------------------------------------

    def write_lines(self, level: str, messages: Iterable[str]) -> None:
        """Write lines of this controller into ``state-change.log``."""
        self.surroundings.state_change_log.write(level, (self._actor + m for m in messages))

    def write_plain_lines(self, level: str, messages: Iterable[str]) -> None:
        """Write lines of the two kinds that name no epoch (B9, B10)."""
        actor = f"[Controller id={self.context.broker_id}] "
        self.surroundings.state_change_log.write(level, (actor + m for m in messages))

    def enqueue(self, name: str, run: Callable[[], None]) -> None:
        """Have ``run`` called on the event thread, unless the term is over by then. From any thread."""

        def guarded() -> None:
            if not self.is_over:
                run()

        if not self.is_over:
            self.surroundings.queue.put(Event(name, guarded))

    def watch(self, name: str, run: Callable[[WatchEvent], None]) -> Watch:
        """Return a watch that has ``run`` called on the event thread with what fired."""
        return lambda event: self.enqueue(name, lambda: run(event))

    def _on_answer(self, broker: int, message: Message, answer: Answer) -> None:
        """Make an event of an answer that changes something. On the channel's thread."""
        if isinstance(answer, LeaderAndIsrResponse):
            self.enqueue("LeaderAndIsr answer", lambda: self.broker_changes.on_leader_and_isr(broker, answer))
        elif isinstance(answer, StopReplicaResponse):
            assert isinstance(message, StopReplicaRequest)
            if message.delete_partitions:
                self._deleted.append((broker, message, answer))
                self.enqueue("StopReplica answer", self._on_deleted)
        elif answer.error_code:
            log.info("broker %d answered UpdateMetadata with error %d", broker, answer.error_code)

    def _on_deleted(self) -> None:
        """Handle all the answers that have come: there are many at once, each for one partition.

        Answers to requests that were for a former life of a broker are dropped: it has been asked again, or will be.
        """
        answers = []
        while self._deleted:
            broker, request, answer = self._deleted.popleft()
            if request.broker_epoch == self.batch.epoch_of(broker):
                answers.append((broker, request, answer))
        self.reassignment.on_answers(answers)
        for broker, request, answer in answers:
            self.deletion.on_answer(broker, request, answer)

    def _unclean_topics(self, topics: Collection[str]) -> set[str]:
        """Return the topics that allow unclean leader election, read now (CTL-44)."""
        default = self.surroundings.config.unclean_leader_election_enable
        own = str(self.surroundings.broker_id)
        for found in self._overrides("brokers", [ConfigZnode.DEFAULT, own]):  # a broker's own outranks all brokers'
            default = _is_true(found.get(_UNCLEAN), default)
        named = zip(topics, self._overrides("topics", topics), strict=True)
        return {topic for topic, found in named if _is_true(found.get(_UNCLEAN), default)}

    def _overrides(self, entity: str, names: Iterable[str]) -> list[dict[str, str]]:
        """Return what is configured for each, read now."""
        paths = [ConfigZnode.path(entity, name) for name in names]
        overrides: list[dict[str, str]] = []
        for path, node in zip(paths, self.session.get_many(paths), strict=True):
            try:
                overrides.append(ConfigZnode.decode(path, node.data) if node else {})
            except ZnodeFormatError as e:
                log.error("%s; it counts as having no overrides", e)
                overrides.append({})
        return overrides


def _is_true(text: str | None, otherwise: bool) -> bool:
    return otherwise if text is None else text.strip().lower() == "true"
