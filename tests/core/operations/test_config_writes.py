"""Writes of configs: bound to what was read, and told to the brokers afterwards."""

import pytest

from kafkatool.core.errors import VersionConflictError
from kafkatool.core.operations.config_writes import read_configs
from kafkatool.core.zookeeper.session import Op
from kafkatool.core.zookeeper.znodes import ConfigChangeZnode, ConfigZnode
from tests.core.zookeeper.memory import MemoryEnsemble, MemoryZooKeeper


@pytest.mark.spec("Z-26")
@pytest.mark.parametrize("exists", [True, False])
def test_the_entity_is_written_before_the_notification_and_never_over_another_write(exists: bool) -> None:
    zk = MemoryZooKeeper(MemoryEnsemble())
    path = ConfigZnode.path("topics", "t")
    if exists:
        zk.create(path, b'{"version":1,"config":{"a":"1"},"beside":7}')
    written: list[str] = []

    def note(session: MemoryZooKeeper, op: Op) -> None:
        written.append(op.path)

    zk.memory.ensemble.on_write = note
    (read,) = read_configs(zk, [("topics", "t")])
    read.setting({"b": "2"}).write(zk)
    assert written == [path, f"{ConfigChangeZnode.PREFIX}0000000000"]
    node = zk.get(path)
    assert node is not None
    assert ConfigZnode.decode(path, node.data) == ({"a": "1", "b": "2"} if exists else {"b": "2"})
    assert (b'"beside":7' in node.data) == exists
    with pytest.raises(VersionConflictError):
        read.setting({"c": "3"}).write(zk)
    assert zk.get(path) == node and len(written) == 2
