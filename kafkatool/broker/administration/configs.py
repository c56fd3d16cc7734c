"""Changes of topics' and brokers' settings on behalf of clients: first the config node, then the notification (Z-26).

Any broker may write a topic's config; a broker's own is written by that broker. Source: Kafka 2.3.1
server/AdminManager.scala, zk/AdminZkClient.scala.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum

from kafkatool.broker.administration.topics import AdminError, existing_topics
from kafkatool.broker.settings.config import NO_LIMIT, BrokerConfig, parse_setting
from kafkatool.broker.settings.description import (
    DYNAMIC_RATES,
    DYNAMIC_SETTINGS,
    THREAD_COUNTS,
    BrokerOverrides,
    Setting,
    broker_settings,
    default_settings,
    topic_settings,
)
from kafkatool.broker.settings.dynamic import check_thread_counts, in_force, read_broker_overrides, read_overrides
from kafkatool.core.errors import (
    ConfigError,
    NodeExistsError,
    NoNodeError,
    RefusedError,
    VersionConflictError,
    ZnodeFormatError,
)
from kafkatool.core.model.topic_configs import (
    CONFIGS,
    MAX_COMPACTION_LAG,
    MIN_COMPACTION_LAG,
    check_configs,
    check_names,
    check_together,
)
from kafkatool.core.model.topic_names import InvalidTopicError, check_name
from kafkatool.core.protocol.messages.alter_configs import AlterableConfig
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.incremental_alter_configs import ConfigOperation
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigChangeZnode, ConfigZnode

TOPIC, BROKER = 2, 4
"""Types of resources that have settings."""

_ATTEMPTS = 10  # at a node that others write too
_LISTS = frozenset(name for name, config in CONFIGS.items() if config.kind == "list") | {"log.cleanup.policy"}


class OpType(IntEnum):
    """The operations of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigAdmin:
    """The settings of topics and of one broker. All methods raise AdminError, ZooKeeperError."""

    def __init__(self, zookeeper: ZooKeeper, config: BrokerConfig, broker_id: int) -> None:
        self._zookeeper = zookeeper
        self._config = config
        self._broker_id = broker_id

    def topics_among(self, resources: Iterable[tuple[int, str]]) -> frozenset[str]:
        """Return the topics that there are of the resources (type, name) of a request, as the other methods want them."""
        return existing_topics(self._zookeeper, (name for kind, name in resources if kind == TOPIC))

    def broker_overrides(self) -> BrokerOverrides:
        """Return what is set at run time of this broker's settings, as ``describe`` wants it."""
        return read_broker_overrides(self._zookeeper, self._broker_id)

    def describe(self, kind: int, name: str, topics: Collection[str], dynamic: BrokerOverrides) -> list[Setting]:
        """List all settings of a resource. The empty broker name stands for all brokers: what is set for them."""
        self._check_resource(kind, name, topics)
        if kind == TOPIC:
            return topic_settings(self._config, read_overrides(self._zookeeper, "topics", name), dynamic)
        return broker_settings(self._config, dynamic) if name else default_settings(dynamic.default)

    def replace(
        self, kind: int, name: str, topics: Collection[str], values: Sequence[AlterableConfig], *, validate_only: bool
    ) -> None:
        """Give the resource exactly these settings; all others go back to their default."""
        self._check_resource(kind, name, topics)
        _refuse_nulls(c.name for c in values if c.value is None)
        wanted = {c.name: c.value or "" for c in values}
        self._write(kind, name, lambda _: wanted, validate_only=validate_only)

    def change(
        self, kind: int, name: str, topics: Collection[str], changes: Sequence[ConfigOperation], *, validate_only: bool
    ) -> None:
        """Change single settings; the others stay."""
        self._check_resource(kind, name, topics)
        if twice := [n for n, count in Counter(c.name for c in changes).items() if count > 1]:
            raise AdminError(ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys : {','.join(twice)}")
        _refuse_nulls(c.name for c in changes if c.value is None and c.config_operation != OpType.DELETE)
        if unknown := [o for c in changes if (o := c.config_operation) not in set(OpType)]:
            raise AdminError(ErrorCode.INVALID_REQUEST, f"Unknown operation {unknown[0]} on a config")
        inherited: dict[str, str] = {}
        if any(c.config_operation in (OpType.APPEND, OpType.SUBTRACT) for c in changes):
            dynamic = self.broker_overrides()
            of_topic = topic_settings(self._config, {}, dynamic)
            settings = of_topic if kind == TOPIC else broker_settings(self._config, dynamic)
            inherited = {s.name: s.value or "" for s in settings}
        self._write(kind, name, lambda before: _changed(before, changes, inherited), validate_only=validate_only)

    def _check_resource(self, kind: int, name: str, topics: Collection[str]) -> None:
        if kind == TOPIC:
            try:
                check_name(name)
            except InvalidTopicError as e:
                raise AdminError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(e)) from e
            if name not in topics:
                raise AdminError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
        elif kind != BROKER:
            raise AdminError(
                ErrorCode.INVALID_REQUEST, f"Only topics and brokers have configs here, not resources of type {kind}"
            )
        elif name and name != str(self._broker_id):
            raise AdminError(
                ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {self._broker_id}, but received {name}"
            )

    def _write(
        self, kind: int, name: str, update: Callable[[dict[str, str]], Mapping[str, str]], *, validate_only: bool
    ) -> None:
        entity = "topics" if kind == TOPIC else "brokers"
        name = name or ConfigZnode.DEFAULT
        path = ConfigZnode.path(entity, name)
        for _ in range(_ATTEMPTS):
            node = self._zookeeper.get(path)
            try:
                before = ConfigZnode.decode(path, node.data) if node else {}
            except ZnodeFormatError:
                before = {}  # an unreadable node counts as no overrides (Z-35)
            after = update(dict(before))
            _check(entity, name, {n: v for n, v in after.items() if before.get(n) != v}, after)
            if kind == BROKER and not {*before, *after}.isdisjoint(THREAD_COUNTS):
                self._check_threads(name, after)
            if validate_only:
                return
            data = ConfigZnode.encode(after, node.data if node else b"")
            try:
                if node is None:
                    self._zookeeper.create(path, data, make_parents=True)
                else:
                    self._zookeeper.set(path, data, node.version)
            except (NodeExistsError, NoNodeError, VersionConflictError):
                continue  # somebody else wrote meanwhile: decide on what is there now
            told = ConfigChangeZnode.encode(ConfigZnode.entity_path(entity, name))
            self._zookeeper.create(ConfigChangeZnode.PREFIX, told, sequential=True, make_parents=True)
            return
        raise AdminError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"the config of {name} is being changed by somebody else all the time"
        )

    def _check_threads(self, name: str, after: Mapping[str, str]) -> None:
        """Hold the numbers of threads this broker would have against those it has."""
        now = self.broker_overrides()
        then = now._replace(default=after) if name == ConfigZnode.DEFAULT else now._replace(own=after)
        try:
            check_thread_counts(in_force(self._config, now), in_force(self._config, then))
        except ConfigError as e:
            raise AdminError(ErrorCode.INVALID_REQUEST, str(e)) from e


def _refuse_nulls(names: Iterable[str]) -> None:
    if nulls := list(names):
        raise AdminError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(nulls)}")


def _changed(
    before: dict[str, str], changes: Sequence[ConfigOperation], inherited: Mapping[str, str]
) -> dict[str, str]:
    after = dict(before)
    for change in changes:
        name, op, value = change.name, change.config_operation, change.value
        if op == OpType.SET:
            after[name] = value or ""
        elif op == OpType.DELETE:
            after.pop(name, None)
        else:
            if name not in _LISTS:
                verb = OpType(op).name.lower()
                raise AdminError(
                    ErrorCode.INVALID_REQUEST, f"Config value {verb} is not allowed for config key: {name}"
                )
            have = _items(after.get(name, inherited.get(name, "")))
            given = _items(value or "")
            kept = have + [i for i in given if i not in have]
            if op == OpType.SUBTRACT:
                kept = [i for i in have if i not in given]
            after[name] = ",".join(kept)
    return after


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _check(entity: str, name: str, changed: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Check what changed only: of what was there before, a newer Kafka may know more."""
    try:
        if entity == "topics":
            check_names(changed)
            check_configs(changed)
            if not changed.keys().isdisjoint((MIN_COMPACTION_LAG, MAX_COMPACTION_LAG)):
                check_together(after)
        else:
            _check_broker_settings(changed, for_all=name == ConfigZnode.DEFAULT)
    except (ConfigError, RefusedError) as e:
        unknown = entity == "topics" and any(config not in CONFIGS for config in changed)
        code = ErrorCode.INVALID_CONFIG if unknown else ErrorCode.INVALID_REQUEST
        raise AdminError(code, str(e)) from e


def _check_broker_settings(changed: Mapping[str, str], *, for_all: bool) -> None:
    if fixed := sorted(changed.keys() - DYNAMIC_SETTINGS - set(DYNAMIC_RATES)):
        raise RefusedError(f"Cannot update these configs dynamically: {', '.join(fixed)}")
    rates = sorted(changed.keys() & set(DYNAMIC_RATES))
    if for_all and rates:
        raise RefusedError(
            f"Cannot update these configs at default cluster level, broker id must be specified: {', '.join(rates)}"
        )
    for name, value in changed.items():
        if name in DYNAMIC_SETTINGS:
            parse_setting(name, value)
        elif not (value.strip().isascii() and value.strip().isdecimal() and int(value) <= NO_LIMIT):
            raise RefusedError(f"Invalid value {value} for configuration {name}: expected bytes per second")
