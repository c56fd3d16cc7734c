"""The two ways to drain a cluster's brokers; only what the chosen one needs is loaded."""

from functools import partial
from typing import TYPE_CHECKING, Final

from kafkatool.commands.drain.way import DrainWay
from kafkatool.commands.shared import ways

if TYPE_CHECKING:
    from kafkatool.core.client.cluster import ClusterClient
    from kafkatool.core.zookeeper.session import ZooKeeper


def _by_znode(zk: "ZooKeeper") -> DrainWay:
    from kafkatool.commands.drain.by_znode import DrainByZnode

    return DrainByZnode(zk)


def _by_request(client: "ClusterClient") -> DrainWay:
    from kafkatool.commands.drain.by_request import DrainByRequest

    return DrainByRequest(client)


open_way: Final = partial(ways.open_way, _by_znode, _by_request)
"""Connects for one command by the way that was chosen: see ``ways.open_way``."""
