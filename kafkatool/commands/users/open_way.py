"""The two ways to a cluster's SCRAM users; only what the chosen one needs is loaded."""

from functools import partial
from typing import TYPE_CHECKING, Final

from kafkatool.commands.shared import ways
from kafkatool.commands.users.way import Way

if TYPE_CHECKING:
    from kafkatool.core.client.cluster import ClusterClient
    from kafkatool.core.zookeeper.session import ZooKeeper


def _by_znode(zk: "ZooKeeper") -> Way:
    from kafkatool.commands.users.by_znode import UsersByZnode

    return UsersByZnode(zk)


def _by_request(client: "ClusterClient") -> Way:
    from kafkatool.commands.users.by_request import UsersByRequest

    return UsersByRequest(client)


open_way: Final = partial(ways.open_way, _by_znode, _by_request)
"""Connects for one command by the way that was chosen: see ``ways.open_way``."""
