"""The two ways to a cluster's ACLs; only what the chosen one needs is loaded."""

from functools import partial
from typing import TYPE_CHECKING, Final

from kafkatool.commands.acls.way import Way
from kafkatool.commands.shared import ways

if TYPE_CHECKING:
    from kafkatool.core.client.cluster import ClusterClient
    from kafkatool.core.zookeeper.session import ZooKeeper


def _by_znode(zk: "ZooKeeper") -> Way:
    from kafkatool.commands.acls.by_znode import AclsByZnode

    return AclsByZnode(zk)


def _by_request(client: "ClusterClient") -> Way:
    from kafkatool.commands.acls.by_request import AclsByRequest

    return AclsByRequest(client)


open_way: Final = partial(ways.open_way, _by_znode, _by_request)
"""Connects for one command by the way that was chosen: see ``ways.open_way``."""
