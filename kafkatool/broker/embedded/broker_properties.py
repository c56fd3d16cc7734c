"""The properties of an embedded cluster's brokers: Kafka's, but for what tests and laptops need otherwise."""

from collections.abc import Iterable, Mapping

from kafkatool.broker.embedded.cluster_files import ClusterFiles, ClusterSpec
from kafkatool.broker.embedded.ports import HOST
from kafkatool.broker.embedded.slips import refuse_unknown
from kafkatool.core.errors import RefusedError

_CLUSTERS_OWN = (
    "broker.id",
    "listeners",
    "log.dirs",
    "log.dir",
    "kt.log.dir",
    "kt.fault.socket",
    "zookeeper.connect",
    "kt.jaas.config",
)


def check_options(options: Iterable[str]) -> None:
    """Raise RefusedError for the names of properties that the cluster sets itself, or that no broker reads."""
    if own := [name for name in options if name in _CLUSTERS_OWN]:
        raise RefusedError(f"{', '.join(own)} of an embedded cluster's brokers cannot be set: the cluster sets it")
    if options:
        refuse_unknown(options)


def broker_properties(
    broker_id: int, spec: ClusterSpec, files: ClusterFiles, secured: Mapping[str, str]
) -> dict[str, str]:
    """Return what server.properties of the broker says; ``secured``: what a secured cluster adds. Options win."""
    at_most_three = min(3, len(spec.ports))
    return {
        "broker.id": str(broker_id),
        "listeners": f"PLAINTEXT://{HOST}:{spec.ports[broker_id]}",
        "log.dirs": str(files.data(broker_id)),
        "kt.log.dir": str(files.logs(broker_id)),
        "kt.fault.socket": str(files.fault_socket(broker_id)),
        "zookeeper.connect": f"{HOST}:{spec.zookeeper_port}",
        "zookeeper.connection.timeout.ms": "120000",
        # Other than in production, for a cluster for tests and laptops:
        "zookeeper.session.timeout.ms": "3000",
        "delete.topic.enable": "true",
        "unclean.leader.election.enable": "false",
        "offsets.topic.replication.factor": str(at_most_three),
        "offsets.topic.num.partitions": "10",
        "transaction.state.log.replication.factor": str(at_most_three),
        "transaction.state.log.min.isr": str(min(2, len(spec.ports))),
        "transaction.state.log.num.partitions": "10",
        "group.initial.rebalance.delay.ms": "0",
        "replica.fetch.wait.max.ms": "100",  # for so long, at worst, a new topic's first record waits for its followers
        "controlled.shutdown.retry.backoff.ms": "300",
        **secured,
        **spec.options,
    }
