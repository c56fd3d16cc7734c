import pytest

from kafkatool.core.zookeeper.session import ZooKeeper
from tests.core.zookeeper import cluster_nodes as nodes


@pytest.fixture
def cluster(zk: ZooKeeper) -> ZooKeeper:
    """Make registered brokers and the topic t with one partition."""
    nodes.make_cluster(zk, topics={"t": {0: (1, 2)}})
    return zk
