"""Change a topic's configs: merge, write on the version read, notify the brokers (TOP-14)."""

from collections.abc import Collection, Iterable, Mapping

from kafkatool.core.errors import NoNodeError, RefusedError, VersionConflictError
from kafkatool.core.model.topic_configs import check_configs
from kafkatool.core.operations.config_writes import ConfigWrite, read_configs
from kafkatool.core.operations.topics.creation import ATTEMPTS
from kafkatool.core.zookeeper.session import ZooKeeper


def plan_config_change(
    zk: ZooKeeper,
    topic: str,
    changed: Mapping[str, str],
    removed: Iterable[str] = (),
    *,
    known_to_brokers: Collection[str] = (),
) -> ConfigWrite:
    """Merge the changes with the stored config, removal winning. Raises RefusedError when ``changed`` is not valid.

    What is stored is not judged: a newer Kafka may know more configs.
    """
    (read,) = read_configs(zk, [("topics", topic)])
    check_configs(changed, known_to_brokers)
    return read.setting(changed).dropping(set(removed))


def change_configs(
    zk: ZooKeeper,
    topic: str,
    changed: Mapping[str, str],
    removed: Iterable[str] = (),
    *,
    known_to_brokers: Collection[str] = (),
) -> ConfigWrite:
    """Write the merged config on the version it was read at, then tell the brokers. Raises RefusedError."""
    removed = tuple(removed)
    for _ in range(ATTEMPTS):
        change = plan_config_change(zk, topic, changed, removed, known_to_brokers=known_to_brokers)
        try:
            change.write(zk)
        except (VersionConflictError, NoNodeError):
            continue
        return change
    raise RefusedError(f"the config of topic '{topic}' is being changed by somebody else all the time; try again")
