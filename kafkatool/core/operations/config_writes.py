"""Changes to the configs of topics, brokers and clients, each bound to the version read and told to the brokers (TOP-14)."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from kafkatool.core.errors import NodeExistsError, NoNodeError, VersionConflictError
from kafkatool.core.zookeeper.session import Create, Node, Op, SetData, ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigChangeZnode, ConfigZnode

_ATTEMPTS = 10  # at a node that others write too


@dataclass(frozen=True, slots=True)
class ConfigWrite:
    """The config of one entity as it was read and as it shall be. ``before`` None: the node is not there yet."""

    entity_type: str
    name: str
    before: Node | None
    config: Mapping[str, str]

    @property
    def path(self) -> str:
        return ConfigZnode.path(self.entity_type, self.name)

    @property
    def stored(self) -> Mapping[str, str]:
        """Return the config as it was read."""
        return ConfigZnode.decode(self.path, self.before.data) if self.before else {}

    @property
    def data(self) -> bytes:
        return ConfigZnode.encode(self.config, self.before.data if self.before else b"")

    @property
    def notification(self) -> Create:
        """Return the change notification that follows (TOP-14); its node is sequential."""
        change = ConfigChangeZnode.encode(ConfigZnode.entity_path(self.entity_type, self.name))
        return Create(ConfigChangeZnode.PREFIX, change)

    @property
    def ops(self) -> tuple[Op, Op]:
        """Return both writes, for showing them (COM-6X)."""
        if self.before is None:
            return Create(self.path, self.data), self.notification
        return SetData(self.path, self.data, self.before.version), self.notification

    def setting(self, changes: Mapping[str, str]) -> Self:
        """Return the write that sets those keys and keeps the others."""
        return replace(self, config={**self.config, **changes})

    def dropping(self, keys: Collection[str]) -> Self:
        """Return the write that drops those keys."""
        return replace(self, config={k: v for k, v in self.config.items() if k not in keys})

    def write(self, zk: ZooKeeper) -> Node:
        """Write it and tell the brokers. Return the node as it is then, so that the next write can be bound to it.

        Raises VersionConflictError, also if the node was created meanwhile, and NoNodeError if it was removed.
        """
        if self.before is None:
            try:
                zk.create(self.path, self.data, make_parents=True)
            except NodeExistsError as e:
                raise VersionConflictError(
                    f"znode {self.path} was created by somebody else meanwhile; try again"
                ) from e
            version = 0
        else:
            version = zk.set(self.path, self.data, self.before.version)
        self.notify(zk)
        return Node(self.data, version, 0, 0, 0, 0)

    def notify(self, zk: ZooKeeper) -> None:
        """Tell the brokers of it."""
        zk.create(self.notification.path, self.notification.data, sequential=True, make_parents=True)


def change_config(
    zk: ZooKeeper, entity_path: str, update: Callable[[dict[str, str]], Mapping[str, str]]
) -> Mapping[str, str]:
    """Change the config of an entity, named as in notifications, as ``update`` makes it of what is there; tell the brokers.

    Whoever writes meanwhile loses nothing: it is read and decided again. What stays as it is is neither written nor told.
    Raises VersionConflictError when others write all the time.
    """
    path = ConfigZnode.path_of(entity_path)
    for _ in range(_ATTEMPTS):
        node = zk.get(path)
        before = ConfigZnode.decode(path, node.data) if node else {}
        after = update(dict(before))
        if after == before:
            return after
        data = ConfigZnode.encode(after, node.data if node else b"")
        try:
            if node is None:
                zk.create(path, data, make_parents=True)
            else:
                zk.set(path, data, node.version)
        except (NodeExistsError, NoNodeError, VersionConflictError):
            continue
        zk.create(ConfigChangeZnode.PREFIX, ConfigChangeZnode.encode(entity_path), sequential=True, make_parents=True)
        return after
    raise VersionConflictError(f"znode {path} is being changed by somebody else all the time; try again")


def read_configs(zk: ZooKeeper, entities: Sequence[tuple[str, str]]) -> list[ConfigWrite]:
    """Read configs by type and name of their entity, as writes that change nothing."""
    nodes = zk.get_many([ConfigZnode.path(entity_type, name) for entity_type, name in entities])
    reads = [ConfigWrite(*entity, node, {}) for entity, node in zip(entities, nodes, strict=True)]
    return [read.setting(read.stored) for read in reads]
