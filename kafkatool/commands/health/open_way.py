"""The two ways to look at a cluster's health; only what the chosen one needs is loaded."""

from functools import partial
from typing import TYPE_CHECKING, Final

from kafkatool.commands.health.way import Way
from kafkatool.commands.shared import ways

if TYPE_CHECKING:
    from kafkatool.core.client.cluster import ClusterClient
    from kafkatool.core.zookeeper.session import ZooKeeper


def _by_znode(zk: "ZooKeeper") -> Way:
    from kafkatool.commands.health.by_znode import HealthByZnode

    return HealthByZnode(zk)


def _by_request(client: "ClusterClient") -> Way:
    from kafkatool.commands.health.by_request import HealthByRequest

    return HealthByRequest(client)


open_way: Final = partial(ways.open_way, _by_znode, _by_request)
"""Connects for one command by the way that was chosen: see ``ways.open_way``."""
