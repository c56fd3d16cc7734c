"""Changes of topics' and brokers' settings on behalf of clients: first the config node, then the notification (Z-26).

Any broker may write a topic's config; a broker's own is written by that broker. Source: Kafka 2.3.1
server/AdminManager.scala, zk/AdminZkClient.scala.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from kafkatool.broker.administration.topics import TopicError
from kafkatool.broker.settings.config import NO_LIMIT, BrokerConfig
from kafkatool.broker.settings.description import DYNAMIC_RATES, Setting, broker_settings, topic_settings
from kafkatool.broker.settings.dynamic import read_overrides
from kafkatool.core.errors import (
    NodeExistsError,
    NoNodeError,
    RefusedError,
    VersionConflictError,
    ZnodeFormatError,
)
from kafkatool.core.model.topic_configs import CONFIGS, check_configs, check_names
from kafkatool.core.model.topic_names import InvalidTopicError, check_name
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigChangeZnode, ConfigZnode, TopicZnode

TOPIC, BROKER = 2, 4
"""Types of resources that have settings."""

_ATTEMPTS = 10  # at a node that others write too
_LISTS = frozenset(name for name, config in CONFIGS.items() if config.kind == "list")


class ConfigRequestError(TopicError):
    """A change that is refused, with the code that says so on the wire."""


class OpType(IntEnum):
    """The operations of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """One operation on one setting."""

    name: str
    op: int
    value: str | None


class ConfigAdmin:
    """The settings of topics and of one broker. All methods raise ConfigRequestError, ZooKeeperError."""

    def __init__(self, zookeeper: ZooKeeper, config: BrokerConfig, broker_id: int) -> None:
        self._zookeeper = zookeeper
        self._config = config
        self._broker_id = broker_id

    def describe(self, kind: int, name: str) -> list[Setting]:
        """List all settings of a resource. The empty broker name stands for the cluster, which has none here."""
        self._check_resource(kind, name, what="describe")
        if kind == TOPIC:
            return topic_settings(self._config, read_overrides(self._zookeeper, "topics", name))
        if not name:
            return []
        return broker_settings(self._config, read_overrides(self._zookeeper, "brokers", name))

    def replace(self, kind: int, name: str, values: Sequence[tuple[str, str | None]], *, validate_only: bool) -> None:
        """Give the resource exactly these settings; all others go back to their default."""
        self._check_resource(kind, name, what="alter")
        _refuse_nulls(name for name, value in values if value is None)
        wanted = {name: value or "" for name, value in values}
        self._write(kind, name, lambda _: wanted, validate_only=validate_only)

    def change(self, kind: int, name: str, changes: Sequence[Change], *, validate_only: bool) -> None:
        """Change single settings; the others stay."""
        self._check_resource(kind, name, what="alter")
        if twice := [n for n, count in Counter(c.name for c in changes).items() if count > 1]:
            raise ConfigRequestError(
                ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys : {','.join(twice)}"
            )
        _refuse_nulls(c.name for c in changes if c.value is None and c.op != OpType.DELETE)
        if unknown := [c.op for c in changes if c.op not in set(OpType)]:
            raise ConfigRequestError(ErrorCode.INVALID_REQUEST, f"Unknown operation {unknown[0]} on a config")
        inherited = {s.name: s.value or "" for s in topic_settings(self._config, {})} if kind == TOPIC else {}
        self._write(kind, name, lambda before: _changed(before, changes, inherited), validate_only=validate_only)

    def _check_resource(self, kind: int, name: str, *, what: str) -> None:
        if kind == TOPIC:
            try:
                check_name(name)
            except InvalidTopicError as e:
                raise ConfigRequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(e)) from e
            if self._zookeeper.get(TopicZnode.path(name)) is None:
                raise ConfigRequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
        elif kind != BROKER:
            raise ConfigRequestError(
                ErrorCode.INVALID_REQUEST, f"Only topics and brokers have configs here, not resources of type {kind}"
            )
        elif not name and what == "alter":
            raise ConfigRequestError(
                ErrorCode.INVALID_REQUEST, "Defaults for all brokers of the cluster are not supported: name a broker"
            )
        elif name and name != str(self._broker_id):
            raise ConfigRequestError(
                ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {self._broker_id}, but received {name}"
            )

    def _write(
        self, kind: int, name: str, update: Callable[[dict[str, str]], Mapping[str, str]], *, validate_only: bool
    ) -> None:
        entity = "topics" if kind == TOPIC else "brokers"
        path = ConfigZnode.path(entity, name)
        for _ in range(_ATTEMPTS):
            node = self._zookeeper.get(path)
            try:
                before = ConfigZnode.decode(path, node.data) if node else {}
            except ZnodeFormatError:
                before = {}  # an unreadable node counts as no overrides (Z-35)
            after = update(dict(before))
            _check(kind, {n: v for n, v in after.items() if before.get(n) != v})
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
        raise ConfigRequestError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"the config of {name} is being changed by somebody else all the time"
        )


def _refuse_nulls(names: Iterable[str]) -> None:
    if nulls := list(names):
        raise ConfigRequestError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(nulls)}")


def _changed(before: dict[str, str], changes: Sequence[Change], inherited: Mapping[str, str]) -> dict[str, str]:
    after = dict(before)
    for name, op, value in changes:
        if op == OpType.SET:
            after[name] = value or ""
        elif op == OpType.DELETE:
            after.pop(name, None)
        else:
            if name not in _LISTS:
                verb = OpType(op).name.lower()
                raise ConfigRequestError(
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


def _check(kind: int, changed: Mapping[str, str]) -> None:
    """Check what changed only: of what was there before, a newer Kafka may know more."""
    try:
        if kind == TOPIC:
            check_names(changed)
            check_configs(changed)
        else:
            _check_rates(changed)
    except RefusedError as e:
        unknown = kind == TOPIC and any(name not in CONFIGS for name in changed)
        code = ErrorCode.INVALID_CONFIG if unknown else ErrorCode.INVALID_REQUEST
        raise ConfigRequestError(code, str(e)) from e


def _check_rates(changed: Mapping[str, str]) -> None:
    if fixed := sorted(changed.keys() - set(DYNAMIC_RATES)):
        raise RefusedError(f"Cannot update these configs dynamically: {', '.join(fixed)}")
    for name, value in changed.items():
        if not (value.strip().isascii() and value.strip().isdecimal() and int(value) <= NO_LIMIT):
            raise RefusedError(f"Invalid value {value} for configuration {name}: expected bytes per second")
