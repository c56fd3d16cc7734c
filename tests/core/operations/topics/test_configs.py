"""Configs changed while somebody else changes them."""

import pytest

from kafkatool.core.errors import RefusedError
from kafkatool.core.operations.topics import configs
from kafkatool.core.zookeeper.session import Node, ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigChangeZnode, ConfigZnode
from tests.core.operations.topics.interfering import interfering

CONFIG = ConfigZnode.path("topics", "t")
pytestmark = pytest.mark.usefixtures("cluster")


@pytest.mark.spec("TOP-14")
def test_a_config_somebody_else_changed_is_merged_again(zk: ZooKeeper) -> None:
    zk.create(CONFIG, b'{"version":1,"config":{"flush.ms":"1"}}')
    theirs = b'{"version":1,"config":{"flush.ms":"1","retention.ms":"7"}}'
    change = configs.change_configs(interfering(zk, lambda: zk.set(CONFIG, theirs, 0)), "t", {"segment.ms": "5"})
    assert change.config == {"flush.ms": "1", "retention.ms": "7", "segment.ms": "5"}
    assert len(zk.children(ConfigChangeZnode.PATH) or ()) == 1


@pytest.mark.spec("TOP-14")
def test_the_brokers_are_told_when_the_config_is_written(zk: ZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    zk.create(CONFIG, b'{"version":1,"config":{}}')
    create, found = zk.create, list[Node | None]()

    def looking(path: str, data: bytes = b"", **more: bool) -> str:
        if path == ConfigChangeZnode.PREFIX:
            found.append(zk.get(CONFIG))
        return create(path, data, **more)

    monkeypatch.setattr(zk, "create", looking)
    configs.change_configs(zk, "t", {"segment.ms": "5"})
    assert [node and node.data for node in found] == [b'{"version":1,"config":{"segment.ms":"5"}}']


@pytest.mark.spec("TOP-14")
def test_a_config_that_never_rests_is_given_up(zk: ZooKeeper) -> None:
    zk.create(CONFIG, b'{"version":1,"config":{}}')
    with pytest.raises(RefusedError, match="all the time"):
        configs.change_configs(interfering(zk, lambda: zk.set(CONFIG, b"{}", -1), 99), "t", {"segment.ms": "5"})
    assert zk.children(ConfigChangeZnode.PATH) == []
