"""``kt drain`` by the cluster's nodes in ZooKeeper."""

from kafkatool.commands.shared.credentials import broker_connections
from kafkatool.commands.shared.options import read_cluster_id
from kafkatool.commands.shared.output import Output
from kafkatool.core.operations.drain.by_znode import ByZnode
from kafkatool.core.operations.reassignment.submission import Prepared
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigChangeZnode


class DrainByZnode:
    """Plans are znodes."""

    def __init__(self, zk: ZooKeeper) -> None:
        self._zk, self.way = zk, ByZnode(zk, broker_connections())

    def cluster_id(self) -> str | None:
        return read_cluster_id(self._zk)

    def show_planned(self, out: Output, prepared: Prepared | None) -> None:
        out.planned(prepared.ops if prepared is not None else (), sequential_paths=(ConfigChangeZnode.PREFIX,))
