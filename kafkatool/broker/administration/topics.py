"""Topics made, grown and deleted on behalf of clients: the checks, and the znodes written (BRK-118, 166).

The controller sees the nodes and does the rest. Source: Kafka 1.1.1 server/AdminManager.scala, zk/AdminZkClient.scala.
"""

import logging
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from kafkatool.broker.administration.waiting_topics import TopicPurgatory
from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.runtime.timer import Timer
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.core.errors import ConfigError, KafkatoolError, NodeExistsError, RefusedError, ZooKeeperError
from kafkatool.core.model.assignment import MAX_PARTITIONS, assign_replicas
from kafkatool.core.model.topic_configs import check_configs
from kafkatool.core.model.topic_names import (
    OFFSETS_TOPIC,
    TRANSACTION_TOPIC,
    InvalidTopicError,
    check_collision,
    check_name,
)
from kafkatool.core.model.values import Assignment
from kafkatool.core.operations.topics.creation import TopicExistsError, commit_creation, plan_nodes
from kafkatool.core.operations.topics.growth import TopicMissingError, grow, plan_growth
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import DeleteTopicsZnode, ReassignmentZnode, TopicZnode

log = logging.getLogger(__name__)


class TopicError(KafkatoolError):
    """A topic that cannot be created or deleted, with the code that says so on the wire."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create: either ``assignment``, or both counts."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignment: Assignment | None = None
    configs: Mapping[str, str] = field(default_factory=dict)


class TopicAdmin:
    """The changes that handlers make to topics; thread-safe. ``waiting`` parks requests until the controller is done."""

    def __init__(self, zookeeper: ZooKeeper, config: BrokerConfig, metadata_cache: MetadataCache, timer: Timer) -> None:
        self._zookeeper = zookeeper
        self._config = config
        self._metadata_cache = metadata_cache
        self.waiting = TopicPurgatory(metadata_cache, timer)

    # --- topics made without being asked for --------------------------------------------------------------------

    def unknown_topic_code(self, name: str) -> ErrorCode:
        """Return the code for a topic that does not exist and is not to be made."""
        try:
            check_name(name)
        except InvalidTopicError:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def auto_create(self, name: str) -> ErrorCode:
        """Make a topic with the broker's defaults; LEADER_NOT_AVAILABLE when it is on its way (BRK-118)."""
        if name == TRANSACTION_TOPIC:  # of no use while transactions are not served
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        config = self._config
        return self._create_on_demand(
            NewTopic(name=name, partitions=config.num_partitions, replication_factor=config.default_replication_factor)
        )

    def create_internal_offsets_topic(self) -> ErrorCode:
        """Make ``__consumer_offsets`` with the offsets.topic settings, unless there are too few brokers (BRK-166)."""
        config = self._config
        overrides = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        }
        return self._create_on_demand(
            NewTopic(
                name=OFFSETS_TOPIC,
                partitions=config.offsets_topic_num_partitions,
                replication_factor=config.offsets_topic_replication_factor,
                configs=overrides,
            )
        )

    def count_offsets_partitions(self) -> int | None:
        """Count the partitions of ``__consumer_offsets`` in its assignment; None: there is no such topic (GRP-2).

        Raises ZooKeeperError, ZnodeFormatError.
        """
        node = self._zookeeper.get(TopicZnode.path(OFFSETS_TOPIC))
        return None if node is None else len(TopicZnode.decode(OFFSETS_TOPIC, node.data).assignment) or None

    def _create_on_demand(self, topic: NewTopic) -> ErrorCode:
        try:
            self.create(topic)
        except TopicError as e:
            if e.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                log.warning("topic %s cannot be created on demand: %s", topic.name, e)
                return e.code
        except ZooKeeperError as e:
            log.warning("topic %s could not be created on demand: %s", topic.name, e)
        return ErrorCode.LEADER_NOT_AVAILABLE

    # --- topics asked for ---------------------------------------------------------------------------------------

    def create(self, topic: NewTopic, *, validate_only: bool = False) -> None:
        """Check the topic and write its nodes. Raises TopicError, ZooKeeperError."""
        self._check_name(topic.name)
        assignment = self._assignment(topic)
        try:
            check_configs(topic.configs)
        except (ConfigError, RefusedError) as e:
            raise TopicError(ErrorCode.INVALID_CONFIG, str(e)) from e
        if not validate_only:
            self._write(topic, assignment)
            log.info("created topic %s with assignment %s", topic.name, assignment)

    def grow(
        self, name: str, count: int, lists: Sequence[tuple[int, ...]] | None, *, validate_only: bool = False
    ) -> None:
        """Bring a topic to ``count`` partitions; ``lists``: replicas of those added. Raises TopicError, ZooKeeperError."""
        try:
            check_name(name)  # it becomes part of a path
        except InvalidTopicError as e:
            raise TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.") from e
        topic, mark, moving = self._zookeeper.get_many(
            [TopicZnode.path(name), DeleteTopicsZnode.topic_path(name), ReassignmentZnode.PATH]
        )
        if topic is None:
            raise TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        if mark is not None:
            raise TopicError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
        if moving is not None and any(p.topic == name for p in ReassignmentZnode.decode(moving.data)):
            raise TopicError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
                f"A partition reassignment is in progress for the topic '{name}'.",
            )
        existing = TopicZnode.decode(name, topic.data).assignment
        if count <= len(existing):
            why = f"Topic already has {count} partitions."
            if count < len(existing):
                why = f"Topic currently has {len(existing)} partitions, which is higher than the requested {count}."
            raise TopicError(ErrorCode.INVALID_PARTITIONS, why)
        added = count - len(existing)
        if lists is not None and len(lists) != added:
            raise TopicError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Increasing the number of partitions by {added} but {len(lists)} assignments provided.",
            )
        groups = None if lists is None else [*(existing[p] for p in sorted(existing)), *lists]
        try:
            (plan_growth if validate_only else grow)(self._zookeeper, name, count, groups=groups)
        except TopicMissingError as e:
            raise TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(e)) from e
        except RefusedError as e:
            code = ErrorCode.INVALID_PARTITIONS if lists is None else ErrorCode.INVALID_REPLICA_ASSIGNMENT
            raise TopicError(code, str(e)) from e
        if not validate_only:
            log.info("topic %s grows from %d to %d partitions", name, len(existing), count)

    def delete(self, name: str) -> None:
        """Mark a topic for deletion; marked already is success. Raises TopicError, ZooKeeperError."""
        if name not in self._metadata_cache.snapshot.partitions:
            raise TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
        try:
            self._zookeeper.create(DeleteTopicsZnode.topic_path(name))
        except NodeExistsError:
            pass  # the earlier request's deletion serves this one as well

    def _check_name(self, name: str) -> None:
        existing = self._metadata_cache.snapshot.partitions
        if name in existing:
            raise TopicError(ErrorCode.TOPIC_ALREADY_EXISTS, str(TopicExistsError(name)))
        try:
            check_name(name)
            check_collision(name, existing)
        except InvalidTopicError as e:
            raise TopicError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(e)) from e

    def _assignment(self, topic: NewTopic) -> Assignment:
        brokers = self._metadata_cache.snapshot.brokers
        if topic.assignment is not None:
            _check_assignment(topic.assignment, brokers.keys())
            return topic.assignment
        partitions, factor = topic.partitions or 0, topic.replication_factor or 0
        if partitions <= 0:
            raise TopicError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
        if partitions > MAX_PARTITIONS:
            raise TopicError(ErrorCode.INVALID_PARTITIONS, f"Number of partitions must be at most {MAX_PARTITIONS}.")
        if factor <= 0:
            raise TopicError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
        if factor > len(brokers):
            raise TopicError(
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
            raise TopicError(ErrorCode.TOPIC_ALREADY_EXISTS, str(e)) from e
        except InvalidTopicError as e:
            raise TopicError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(e)) from e
        except RefusedError as e:  # others write this topic's nodes all the time
            raise TopicError(ErrorCode.UNKNOWN_SERVER_ERROR, str(e)) from e


def _check_assignment(assignment: Assignment, live: Collection[int]) -> None:
    refused = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    if sorted(assignment) != list(range(len(assignment))) or not assignment:
        raise TopicError(refused, "partitions must be numbered from 0 without gaps")
    sizes = {len(replicas) for replicas in assignment.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise TopicError(refused, "all partitions need equally many replicas, at least 1")
    for partition, replicas in assignment.items():
        if len(set(replicas)) < len(replicas):
            raise TopicError(refused, f"partition {partition} lists a broker twice: {list(replicas)}")
        if unknown := [r for r in replicas if r not in live]:
            raise TopicError(refused, f"partition {partition} is assigned to brokers that are not alive: {unknown}")
