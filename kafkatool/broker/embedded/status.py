"""What a cluster is and has now: the document of ``kt cluster status``."""

from dataclasses import dataclass
from typing import Any

from kafkatool.broker.embedded.cluster_files import ClusterFiles, ClusterSpec
from kafkatool.broker.embedded.cluster_processes import ClusterProcesses
from kafkatool.broker.embedded.ports import HOST


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """One broker of the cluster; ``pid`` is None while its process does not run."""

    id: int
    host: str
    port: int
    pid: int | None
    log_dirs: list[str]
    state_change_log: str


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The document; ``controller`` is None while there is none.

    ``controller_gauges``: those it wrote last, at ``timestamp_ms``; None when it does not run, or has written none.
    """

    directory: str
    zookeeper: str
    bootstrap: str
    controller: int | None
    brokers: list[BrokerStatus]
    controller_gauges: dict[str, float] | None
    security: dict[str, Any] | None = None


def broker_statuses(spec: ClusterSpec, files: ClusterFiles, processes: ClusterProcesses) -> list[BrokerStatus]:
    """Look which brokers run."""
    return [
        BrokerStatus(
            broker_id,
            HOST,
            port,
            process.pid if (process := processes.broker(broker_id)) else None,
            [str(files.data(broker_id))],
            str(files.state_change_log(broker_id)),
        )
        for broker_id, port in spec.ports.items()
    ]
