"""Marks for deletion."""

import pytest

from kafkatool.core.operations.topics import deletion
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import DeleteTopicsZnode

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.mark.spec("TOP-17")
def test_a_mark_is_set_once(zk: ZooKeeper) -> None:
    deletion.mark_for_deletion(zk, "t")
    with pytest.raises(deletion.MarkedForDeletionError):
        deletion.mark_for_deletion(zk, "t")
    assert zk.children(DeleteTopicsZnode.PATH) == ["t"]
