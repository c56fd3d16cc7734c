"""Config changes at run time: /config/changes is watched, the entity each change names is read again (BRK-125).

Z-27 to Z-29. A notification is only a trigger; what counts is the entity's node. Source: Kafka 1.1.1
server/DynamicConfigManager.scala, common/ZkNodeChangeNotificationListener.scala.
"""

import contextlib
import dataclasses
import logging
import re
import time
from collections.abc import Callable, Mapping

from kafkatool.broker.runtime.woken_thread import WokenThread
from kafkatool.broker.settings.config import BrokerConfig, parse_setting
from kafkatool.broker.settings.description import DYNAMIC_SETTINGS, THREAD_COUNTS, BrokerOverrides
from kafkatool.core.errors import ConfigError, NoNodeError, VersionConflictError, ZnodeFormatError, ZooKeeperError
from kafkatool.core.zookeeper.session import WatchEvent, ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigChangeZnode, ConfigZnode

log = logging.getLogger(__name__)

EXPIRY_MS = 15 * 60 * 1000
_ROOT = ConfigChangeZnode.PATH.rpartition("/")[0]  # entities are beside the notifications of their changes
_NUMBERED = re.compile(r"config_change_(\d+)")

OnChange = Callable[[str, Mapping[str, str]], None]


def read_overrides(zookeeper: ZooKeeper, entity_type: str, name: str) -> dict[str, str]:
    """Read an entity's overrides; none when its node is absent or unreadable (Z-25, Z-35). Raises ZooKeeperError."""
    return _overrides_at(zookeeper, ConfigZnode.path(entity_type, name))


def _overrides_at(zookeeper: ZooKeeper, path: str) -> dict[str, str]:
    node = zookeeper.get(path)
    try:
        return ConfigZnode.decode(path, node.data) if node else {}
    except ZnodeFormatError as e:
        log.warning("%s; it counts as having no overrides", e)
        return {}


def read_broker_overrides(zookeeper: ZooKeeper, broker_id: int) -> BrokerOverrides:
    """Read what ZooKeeper has of that broker's settings, and of all brokers'. Raises ZooKeeperError."""
    own, default = (read_overrides(zookeeper, "brokers", name) for name in (str(broker_id), ConfigZnode.DEFAULT))
    return BrokerOverrides(_usable(own), _usable(default))


def _usable(overrides: Mapping[str, str]) -> dict[str, str]:
    """Leave out what cannot be read: one slip must not undo what was set beside it."""
    found = {}
    for name, text in overrides.items():
        try:
            if name in DYNAMIC_SETTINGS:
                parse_setting(name, text)
            found[name] = text
        except ConfigError as e:
            log.error("a broker's setting in ZooKeeper cannot be used and is ignored: %s", e)
    return found


def in_force(config: BrokerConfig, overrides: BrokerOverrides) -> BrokerConfig:
    """Return the config with what ZooKeeper has of the settings that may change at run time."""
    texts = {**_usable(overrides.default), **_usable(overrides.own)}
    changed = {n.replace(".", "_"): parse_setting(n, text) for n, text in texts.items() if n in DYNAMIC_SETTINGS}
    return dataclasses.replace(config, **changed)


def check_thread_counts(before: BrokerConfig, after: BrokerConfig) -> None:
    """Refuse a leap in the number of threads, which is more likely a slip. Raises ConfigError in Kafka's words."""
    for name in THREAD_COUNTS:
        old, new = (getattr(config, name.replace(".", "_")) for config in (before, after))
        why = f"Dynamic thread count update validation failed for {name}={new}, value should"
        if new < old // 2:
            raise ConfigError(f"{why} be at least half the current value {old}")
        if new > old * 2:
            raise ConfigError(f"{why} not be greater than double the current value {old}")


def read_quota_entities(zookeeper: ZooKeeper) -> dict[tuple[str, str], dict[str, str]]:
    """Read the overrides of all clients and users by (entity type, name in an entity path). Raises ZooKeeperError."""
    clients, users = (zookeeper.children(f"{_ROOT}/{kind}") or [] for kind in ("clients", "users"))
    below = zookeeper.children_many([f"{_ROOT}/users/{user}/clients" for user in users])
    names = [("clients", client) for client in clients] + [("users", user) for user in users]
    names += [
        ("users", f"{user}/clients/{client}")
        for user, found in zip(users, below, strict=True)
        for client in found or ()
    ]
    return {(kind, name): _overrides_at(zookeeper, f"{_ROOT}/{kind}/{name}") for kind, name in names}


class DynamicConfig:
    """The thread that follows /config/changes. ``on_change`` has one function by entity type (``topics``, ``brokers``,
    ``clients``, ``users``), which gets the entity's name as its node has it, and all its overrides.
    """

    def __init__(
        self, zookeeper: ZooKeeper, on_change: Mapping[str, OnChange], *, name: str = "dynamic-config"
    ) -> None:
        self._zookeeper = zookeeper
        self._on_change = on_change
        self._last_handled = -1
        self._skipped: set[str] = set()  # children with other names, which a line has told of
        self._thread = WokenThread(self._pass, name=name, expected=ZooKeeperError, on_error=self._on_error)

    def start(self) -> None:
        """Handle all notifications there are, then follow. Raises ZooKeeperError."""
        self._pass()
        self._thread.start()

    def stop(self) -> None:
        """Follow no more."""
        self._thread.stop()

    def new_session(self) -> None:
        """Handle everything again: all watches are gone (Z-27)."""
        self._last_handled = -1
        self._thread.wake()

    def _on_watch(self, event: WatchEvent) -> None:
        self._thread.wake()

    def _on_error(self, error: Exception) -> None:
        log.warning("config changes could not be read, trying again: %s", error)

    def _pass(self) -> None:
        children = self._zookeeper.children(ConfigChangeZnode.PATH, self._on_watch) or []
        strange = {c for c in children if not _NUMBERED.fullmatch(c)}
        if new := strange - self._skipped:
            log.warning(
                "no config changes, skipped: %s", ", ".join(sorted(f"{ConfigChangeZnode.PATH}/{c}" for c in new))
            )
        self._skipped = strange
        numbered = sorted((int(m[1]), c) for c in children if (m := _NUMBERED.fullmatch(c)))
        paths = [f"{ConfigChangeZnode.PATH}/{child}" for _, child in numbered]
        for (number, _), path, node in zip(numbered, paths, self._zookeeper.get_many(paths), strict=True):
            if node is None:
                continue
            if number > self._last_handled:
                self._handle(path, node.data)
                self._last_handled = number
            if node.ctime_ms < time.time() * 1000 - EXPIRY_MS:
                with contextlib.suppress(NoNodeError, VersionConflictError):  # another broker was quicker (Z-29)
                    self._zookeeper.delete(path)

    def _handle(self, path: str, data: bytes) -> None:
        """Tell the entity's owner of the change. A bad one, or one that cannot be applied, blocks no later ones (Z-28)."""
        try:
            changed = ConfigChangeZnode.decode(data)
        except ZnodeFormatError as e:
            log.error("%s is skipped: %s", path, e)
            return
        if changed is None:
            return  # it names nothing (Z-36)
        entity_type, _, name = changed.partition("/")
        on_change = self._on_change.get(entity_type)
        if on_change is None or not name:
            log.warning("%s is skipped: entities of type %r are not followed", path, entity_type)
            return
        # The name is spelled as in the notification: encoded, as its node is.
        overrides = _overrides_at(self._zookeeper, f"{_ROOT}/{entity_type}/{name}")
        told = {k: "[hidden]" if k.startswith("SCRAM-") else v for k, v in overrides.items()}  # a credential is no news
        log.info("config of %s/%s is now %s", entity_type, name, told)
        try:
            on_change(name, overrides)
        except Exception:  # the owner of the config may fail on a value; the next change must still come through
            log.exception("the new config of %s/%s could not be applied", entity_type, name)
