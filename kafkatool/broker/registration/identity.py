"""The ids of this broker and its cluster: settings, log dirs and ZooKeeper must agree on them (BRK-124).

Source: Kafka 1.1.1 server/KafkaServer.scala, getBrokerIdAndOfflineDirs.
"""

from typing import NamedTuple

from kafkatool.broker.registration.registration import generate_broker_id, get_or_create_cluster_id
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.storage.directories.meta_properties import read_meta_properties
from kafkatool.core.errors import ConfigError
from kafkatool.core.zookeeper.session import ZooKeeper


class Identity(NamedTuple):
    """The broker's id and its cluster's."""

    broker_id: int
    cluster_id: str


def establish_identity(zookeeper: ZooKeeper, config: BrokerConfig) -> Identity:
    """Take ``broker.id``, ``meta.properties`` or, failing both, a fresh number. Raises ConfigError, ZooKeeperError."""
    cluster_id = get_or_create_cluster_id(zookeeper)
    stored = read_meta_properties(config.log_dirs)
    if stored.cluster_id is not None and stored.cluster_id != cluster_id:
        raise ConfigError(
            f"log.dirs hold data of cluster {stored.cluster_id}, but zookeeper.connect={config.zookeeper_connect} "
            f"is cluster {cluster_id}: check both"
        )
    if config.broker_id >= 0:
        if stored.broker_id not in (None, config.broker_id):
            raise ConfigError(
                f"broker.id={config.broker_id}, but log.dirs hold the data of broker {stored.broker_id}: correct "
                "broker.id, or choose other log.dirs"
            )
        return Identity(config.broker_id, cluster_id)
    if stored.broker_id is not None:
        return Identity(stored.broker_id, cluster_id)
    if not config.broker_id_generation_enable:
        raise ConfigError("broker.id is missing, and broker.id.generation.enable=false")
    return Identity(generate_broker_id(zookeeper, config.reserved_broker_max_id), cluster_id)
