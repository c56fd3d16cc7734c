"""Topics made, grown and deleted on behalf of clients: the checks, and the znodes written (BRK-118, 166).

The controller sees the nodes and does the rest. Source: Kafka 1.1.1 server/AdminManager.scala, zk/AdminZkClient.scala.
"""

import logging
import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafkatool.broker.administration.waiting_topics import TopicPurgatory
from kafkatool.broker.limits import Limit, Limits
from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.runtime.allowance import Allowance
from kafkatool.broker.runtime.timer import Timer
from kafkatool.broker.security.principal import Principal
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.settings.description import Setting, topic_settings
from kafkatool.broker.settings.dynamic import read_broker_overrides
from kafkatool.core.errors import ConfigError, KafkatoolError, NodeExistsError, RefusedError, ZooKeeperError
from kafkatool.core.model.assignment import MAX_PARTITIONS, assign_replicas
from kafkatool.core.model.topic_configs import check_configs
from kafkatool.core.model.topic_names import (
    OFFSETS_TOPIC,
    TRANSACTION_TOPIC,
    InvalidTopicError,
    check_collision,
    check_name,
    fold,
    is_legal,
)
from kafkatool.core.model.values import Assignment, TopicPartition, join_ids
from kafkatool.core.operations.topics.creation import TopicExistsError, commit_creation, plan_nodes, registered_brokers
from kafkatool.core.operations.topics.growth import TopicMissingError, grow, plan_growth
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import DeleteTopicsZnode, ReassignmentZnode, TopicZnode

log = logging.getLogger(__name__)


_ASKED_AT_ONCE = 1000


class AdminError(KafkatoolError):
    """A change that is refused, with the code that says so on the wire."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


AUTO_CREATED_A_SECOND: Final = 10
"""Topics that Metadata requests of one principal make (SEC-100)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create: an ``assignment``, or the counts, None for this broker's default (KIP-464)."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignment: Assignment | None = None
    configs: Mapping[str, str] = field(default_factory=dict)


class CreatedTopic(NamedTuple):
    """What was made, or would be."""

    partitions: int
    replication_factor: int


def existing_topics(zookeeper: ZooKeeper, names: Iterable[str]) -> frozenset[str]:
    """Return which of the topics there are, a thousand in one pass: a request may name very many. Raises ZooKeeperError.

    What the controller has told this broker does not say it: a topic may have been made a moment ago.
    """
    legal = [name for name in dict.fromkeys(names) if is_legal(name)]
    found: list[str] = []
    for start in range(0, len(legal), _ASKED_AT_ONCE):
        asked = legal[start : start + _ASKED_AT_ONCE]
        nodes = zookeeper.get_many([TopicZnode.path(name) for name in asked])
        found += (name for name, node in zip(asked, nodes, strict=True) if node is not None)
    return frozenset(found)


class TopicAdmin:
    """The changes that handlers make to topics; thread-safe. ``waiting`` parks requests until the controller is done."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        config: BrokerConfig,
        broker_id: int,
        metadata_cache: MetadataCache,
        timer: Timer,
        *,
        limits: Limits | None = None,
    ) -> None:
        self._limits = limits or Limits()
        # what one request may make, its principal may have saved
        at_once = max(config.kt_max_auto_created_topics_per_request, AUTO_CREATED_A_SECOND)
        self._auto_creations = Allowance(at_once, AUTO_CREATED_A_SECOND)
        self._zookeeper = zookeeper
        self._broker_id = broker_id
        self._config = config
        self._metadata_cache = metadata_cache
        self._alike: tuple[object, Mapping[str, list[str]]] = (None, {})
        self.waiting = TopicPurgatory(metadata_cache, timer)

    # --- topics made without being asked for --------------------------------------------------------------------

    def unknown_topic_code(self, name: str) -> ErrorCode:
        """Return the code for a topic that does not exist and is not to be made."""
        try:
            check_name(name)
        except InvalidTopicError:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def auto_create(self, name: str, principal: Principal) -> ErrorCode:
        """Make a topic with the broker's defaults; LEADER_NOT_AVAILABLE when it is on its way (BRK-118).

        So it is, too, when the principal makes them too fast: it is made when it is asked for again (SEC-100).
        """
        if not self._auto_creations.take(principal):
            self._limits.reached(Limit.TOPICS_A_SECOND, principal, key=principal)
            return ErrorCode.LEADER_NOT_AVAILABLE
        return self._create_on_demand(NewTopic(name=name), lambda: self._auto_creations.give_back(principal))

    def create_internal_offsets_topic(self) -> ErrorCode:
        """Make ``__consumer_offsets`` with the offsets.topic settings, unless there are too few brokers (BRK-166)."""
        config = self._config
        return self._create_on_demand(
            NewTopic(
                name=OFFSETS_TOPIC,
                partitions=config.offsets_topic_num_partitions,
                replication_factor=config.offsets_topic_replication_factor,
                configs={
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(config.offsets_topic_segment_bytes),
                },
            )
        )

    def create_transaction_topic(self) -> ErrorCode:
        """Make ``__transaction_state`` with its settings, unless there are too few brokers (TXN-3, 4)."""
        config = self._config
        factor = config.transaction_state_log_replication_factor
        min_isr = config.transaction_state_log_min_isr
        if min_isr > factor:
            log.warning(
                "transaction.state.log.min.isr=%d cannot be met with transaction.state.log.replication.factor=%d: "
                "%s gets min.insync.replicas=%d",
                min_isr,
                factor,
                TRANSACTION_TOPIC,
                factor,
            )
        return self._create_on_demand(
            NewTopic(
                name=TRANSACTION_TOPIC,
                partitions=config.transaction_state_log_num_partitions,
                replication_factor=factor,
                configs={
                    "cleanup.policy": "compact",
                    "compression.type": "uncompressed",
                    "min.insync.replicas": str(min(min_isr, factor)),
                    "segment.bytes": str(config.transaction_state_log_segment_bytes),
                    "unclean.leader.election.enable": "false",
                },
            )
        )

    def create_internal(self, name: str) -> ErrorCode:
        """Make one of Kafka's own topics."""
        return self.create_internal_offsets_topic() if name == OFFSETS_TOPIC else self.create_transaction_topic()

    def count_partitions(self, topic: str) -> int | None:
        """Count the partitions of a topic in its assignment; None: there is no such topic (GRP-2).

        Raises ZooKeeperError, ZnodeFormatError.
        """
        node = self._zookeeper.get(TopicZnode.path(topic))
        return None if node is None else len(TopicZnode.decode(topic, node.data).assignment) or None

    def find_deleted(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Return which of them were deleted, or are about to be. Raises ZooKeeperError, ZnodeFormatError."""
        topics = sorted({partition.topic for partition in partitions})
        nodes = self._zookeeper.get_many([*map(TopicZnode.path, topics), *map(DeleteTopicsZnode.topic_path, topics)])
        there: dict[str, Collection[int]] = {}
        for topic, node, mark in zip(topics, nodes, nodes[len(topics) :], strict=False):
            there[topic] = TopicZnode.decode(topic, node.data).assignment if node is not None and mark is None else ()
        return frozenset(partition for partition in partitions if partition.partition not in there[partition.topic])

    def _create_on_demand(self, topic: NewTopic, nothing_made: Callable[[], object] = lambda: None) -> ErrorCode:
        try:
            self.create(topic)
        except AdminError as e:
            nothing_made()
            if e.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                log.warning("topic %s cannot be created on demand: %s", topic.name, e)
                return e.code
        except ZooKeeperError as e:
            log.warning("topic %s could not be created on demand: %s", topic.name, e)
        return ErrorCode.LEADER_NOT_AVAILABLE

    # --- topics asked for ---------------------------------------------------------------------------------------

    def create(self, topic: NewTopic, *, validate_only: bool = False) -> CreatedTopic:
        """Check the topic, write its nodes, say what it is. Raises AdminError, ZooKeeperError."""
        existing = self._metadata_cache.snapshot.partitions
        if topic.name in existing:
            raise AdminError(ErrorCode.TOPIC_ALREADY_EXISTS, str(TopicExistsError(topic.name)))
        try:
            check_name(topic.name)
            check_collision(topic.name, self._alike_in(existing).get(fold(topic.name), ()))
        except InvalidTopicError as e:
            raise AdminError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(e)) from e
        assignment = self._assignment(topic)
        try:
            check_configs(topic.configs)
        except (ConfigError, RefusedError) as e:
            raise AdminError(ErrorCode.INVALID_CONFIG, str(e)) from e
        if not validate_only:
            self._write(topic, assignment)
            log.info("created topic %s with assignment %s", topic.name, assignment)
        return CreatedTopic(len(assignment), len(assignment[0]))

    def inherited_settings(self) -> list[Setting]:
        """List the settings of a topic that has none of its own. Raises ZooKeeperError."""
        return topic_settings(self._config, {}, read_broker_overrides(self._zookeeper, self._broker_id))

    def _alike_in(self, existing: Collection[str]) -> Mapping[str, list[str]]:
        """Return the topics by how their metrics are named; once for all that a request lists."""
        known, alike = self._alike
        if known is not existing:
            grouped = defaultdict[str, list[str]](list)
            for name in existing:
                grouped[fold(name)].append(name)
            self._alike = existing, grouped
            return grouped
        return alike

    def existing(self, names: Iterable[str]) -> frozenset[str]:
        """Return which of the topics there are. Raises ZooKeeperError."""
        return existing_topics(self._zookeeper, names)

    def grow(
        self, name: str, count: int, lists: Sequence[tuple[int, ...]] | None, *, validate_only: bool = False
    ) -> None:
        """Bring a topic to ``count`` partitions; ``lists``: replicas of those added. Raises AdminError, ZooKeeperError."""
        try:
            check_name(name)  # it becomes part of a path
        except InvalidTopicError as e:
            raise AdminError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.") from e
        topic, mark, moving = self._zookeeper.get_many(
            [TopicZnode.path(name), DeleteTopicsZnode.topic_path(name), ReassignmentZnode.PATH]
        )
        if topic is None:
            raise AdminError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        if mark is not None:
            raise AdminError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
        if moving is not None and any(p.topic == name for p in ReassignmentZnode.decode(moving.data)):
            raise AdminError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
                f"A partition reassignment is in progress for the topic '{name}'.",
            )
        existing = TopicZnode.decode(name, topic.data).assignment
        if count <= len(existing):
            why = f"Topic already has {count} partitions."
            if count < len(existing):
                why = f"Topic currently has {len(existing)} partitions, which is higher than the requested {count}."
            raise AdminError(ErrorCode.INVALID_PARTITIONS, why)
        added = count - len(existing)
        if lists is not None:
            self._check_lists(lists, added)
        groups = None if lists is None else [*(existing[p] for p in sorted(existing)), *lists]
        try:
            (plan_growth if validate_only else grow)(self._zookeeper, name, count, groups=groups)
        except TopicMissingError as e:
            raise AdminError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(e)) from e
        except RefusedError as e:
            code = ErrorCode.INVALID_PARTITIONS if lists is None else ErrorCode.INVALID_REPLICA_ASSIGNMENT
            raise AdminError(code, str(e)) from e
        if not validate_only:
            log.info("topic %s grows from %d to %d partitions", name, len(existing), count)

    def _check_lists(self, lists: Sequence[tuple[int, ...]], added: int) -> None:
        """Check that a request's lists name registered brokers, for each added partition one. Raises AdminError.

        In the order and the words of Kafka 2.8.2, which are not those of its tool that writes to ZooKeeper.
        """
        live = {broker.id for broker in registered_brokers(self._zookeeper)}
        why = None
        if unknown := sorted({broker for replicas in lists for broker in replicas} - live):
            why = f"Unknown broker(s) in replica assignment: {join_ids(unknown, ', ')}."
        elif len(lists) != added:
            why = f"Increasing the number of partitions by {added} but {len(lists)} assignments provided."
        if why:
            raise AdminError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)

    def delete(self, name: str) -> None:
        """Mark a topic for deletion; marked already is success. Raises AdminError, ZooKeeperError."""
        if name not in self._metadata_cache.snapshot.partitions:
            raise AdminError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
        try:
            self._zookeeper.create(DeleteTopicsZnode.topic_path(name))
        except NodeExistsError:
            pass  # the earlier request's deletion serves this one as well

    def _assignment(self, topic: NewTopic) -> Assignment:
        brokers = self._metadata_cache.snapshot.brokers
        if topic.assignment is not None:
            _check_assignment(topic.assignment, brokers.keys())
            return topic.assignment
        config = self._config
        partitions = config.num_partitions if topic.partitions is None else topic.partitions
        factor = config.default_replication_factor if topic.replication_factor is None else topic.replication_factor
        if partitions <= 0:
            raise AdminError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
        if partitions > MAX_PARTITIONS:
            raise AdminError(ErrorCode.INVALID_PARTITIONS, f"Number of partitions must be at most {MAX_PARTITIONS}.")
        if factor <= 0:
            raise AdminError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
        if factor > len(brokers):
            raise AdminError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Replication factor: {factor} larger than available brokers: {len(brokers)}.",
            )
        live = [brokers[i] for i in sorted(brokers)]
        start, shift = random.randrange(len(live)), random.randrange(len(live))
        rack_aware = all(b.rack is not None for b in live)
        return assign_replicas(live, partitions, factor, start_index=start, replica_shift=shift, rack_aware=rack_aware)

    def _write(self, topic: NewTopic, assignment: Assignment) -> None:
        zookeeper = self._zookeeper
        try:
            commit_creation(zookeeper, plan_nodes(zookeeper, topic.name, assignment, topic.configs))
        except TopicExistsError as e:
            raise AdminError(ErrorCode.TOPIC_ALREADY_EXISTS, str(e)) from e
        except InvalidTopicError as e:
            raise AdminError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(e)) from e
        except RefusedError as e:  # others write this topic's nodes all the time
            raise AdminError(ErrorCode.UNKNOWN_SERVER_ERROR, str(e)) from e


def _check_assignment(assignment: Assignment, live: Collection[int]) -> None:
    refused = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    if sorted(assignment) != list(range(len(assignment))) or not assignment:
        raise AdminError(refused, "partitions must be numbered from 0 without gaps")
    sizes = {len(replicas) for replicas in assignment.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise AdminError(refused, "all partitions need equally many replicas, at least 1")
    for partition, replicas in assignment.items():
        if len(set(replicas)) < len(replicas):
            raise AdminError(refused, f"partition {partition} lists a broker twice: {list(replicas)}")
        if unknown := [r for r in replicas if r not in live]:
            raise AdminError(refused, f"partition {partition} is assigned to brokers that are not alive: {unknown}")
