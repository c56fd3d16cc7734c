"""Change a topic's configs: merge, write on the version read, notify the brokers (TOP-14)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafkatool.core.errors import NodeExistsError, NoNodeError, RefusedError, VersionConflictError
from kafkatool.core.model.topic_configs import check_configs
from kafkatool.core.operations.topics.creation import ATTEMPTS
from kafkatool.core.zookeeper.session import Create, SetData, ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigChangeZnode, ConfigZnode


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A topic's whole new config (TOP-14). ``ops``: the config node, then the notification, whose node is sequential."""

    topic: str
    configs: Mapping[str, str]
    ops: tuple[Create | SetData, Create]


def plan_config_change(
    zk: ZooKeeper, topic: str, changed: Mapping[str, str], removed: Iterable[str] = ()
) -> ConfigChange:
    """Merge the changes with the stored config, removal winning. Raises RefusedError when ``changed`` is not valid.

    What is stored is not judged: a newer Kafka may know more configs.
    """
    path = ConfigZnode.path("topics", topic)
    node = zk.get(path)
    before = ConfigZnode.decode(path, node.data) if node else {}
    gone = set(removed)
    configs = {k: v for k, v in {**before, **changed}.items() if k not in gone}
    check_configs(changed)
    data = ConfigZnode.encode(configs, node.data if node else b"")
    write = Create(path, data) if node is None else SetData(path, data, node.version)
    notify = Create(ConfigChangeZnode.PREFIX, ConfigChangeZnode.encode(ConfigZnode.entity_path("topics", topic)))
    return ConfigChange(topic, configs, (write, notify))


def change_configs(zk: ZooKeeper, topic: str, changed: Mapping[str, str], removed: Iterable[str] = ()) -> ConfigChange:
    """Write the merged config on the version it was read at, then tell the brokers. Raises RefusedError."""
    removed = tuple(removed)
    for _ in range(ATTEMPTS):
        change = plan_config_change(zk, topic, changed, removed)
        write, notify = change.ops
        try:
            if isinstance(write, SetData):
                zk.set(write.path, write.data, write.version)
            else:
                zk.create(write.path, write.data, make_parents=True)
        except (VersionConflictError, NodeExistsError, NoNodeError):
            continue
        zk.create(notify.path, notify.data, sequential=True, make_parents=True)
        return change
    raise RefusedError(f"the config of topic '{topic}' is being changed by somebody else all the time; try again")
