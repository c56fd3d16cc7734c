"""What the tests of brokers and controllers start from."""

import pytest

from kafkatool.broker.registration.registration import make_base_paths
from kafkatool.core.zookeeper.session import ZooKeeper


@pytest.fixture
def base(zk: ZooKeeper) -> ZooKeeper:
    """Return the test's session, with the persistent nodes that every cluster has."""
    make_base_paths(zk)
    return zk
