"""The two ways to one cluster, for commands that act by either: its ZooKeeper's nodes, or requests to its brokers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from kafkatool.commands.shared.bootstrap import Bootstrap, connect_brokers
from kafkatool.commands.shared.options import DEFAULT_ZK_MAX_BYTES, connect

if TYPE_CHECKING:
    from kafkatool.core.client.cluster import ClusterClient
    from kafkatool.core.zookeeper.session import ZooKeeper

_Way = TypeVar("_Way")


@contextmanager
def open_way(
    by_znode: "Callable[[ZooKeeper], _Way]",
    by_request: "Callable[[ClusterClient], _Way]",
    zookeeper: str | None,
    bootstrap: Bootstrap | None,
    *,
    cluster_id: str | None = None,
    zk_max_bytes: int = DEFAULT_ZK_MAX_BYTES,
) -> Iterator[_Way]:
    """Connect for one command by the way that was chosen; give what acts by it. Raises as ``connect`` does."""
    if bootstrap is not None:
        with connect_brokers(bootstrap, cluster_id=cluster_id) as client:
            yield by_request(client)
        return
    assert zookeeper is not None
    with connect(zookeeper, cluster_id=cluster_id, zk_max_bytes=zk_max_bytes) as zk:
        yield by_znode(zk)
