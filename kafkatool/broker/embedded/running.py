"""The clusters that ``kt cluster up`` started and that run now: kt's other commands work on the only one, unasked."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from kafkatool.broker.embedded.cluster_files import ClusterFiles
from kafkatool.broker.embedded.ports import HOST
from kafkatool.broker.embedded.zookeeper_process import MAIN


class RunningCluster(NamedTuple):
    """The addresses of ZooKeeper and of all brokers, as ``--zookeeper`` and ``--bootstrap-server`` take them."""

    zookeeper: str
    bootstrap: str


def running_clusters() -> dict[Path, RunningCluster]:
    """Return directory -> addresses of the clusters started from this user's home.

    Those that a program or test made are left out, and those of another HOME: it is somebody else's, or a test's. The
    process table is asked, so that nothing stale is found: a cluster whose ZooKeeper is gone does not run.
    """
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):  # it ended meanwhile, or is another user's
            directory = _directory(process.cmdline())
            if directory is None or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if process.environ().get("HOME") != os.environ.get("HOME"):
                continue
            spec = ClusterFiles(directory).load()
            if spec is not None and spec.offered and spec.complete:
                brokers = ",".join(f"{HOST}:{port}" for _, port in sorted(spec.ports.items()))
                found[directory] = RunningCluster(f"{HOST}:{spec.zookeeper_port}", brokers)
    return found


def _directory(arguments: Sequence[str]) -> Path | None:
    """Return the directory of the cluster whose ZooKeeper has this command line; None: it is something else."""
    if MAIN not in arguments[:-1]:
        return None
    return Path(arguments[arguments.index(MAIN) + 1]).parent.parent
