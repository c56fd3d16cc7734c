"""The two ways to a cluster's ACLs; only what the chosen one needs is loaded."""

from collections.abc import Iterator
from contextlib import contextmanager

from kafkatool.commands.acls.way import Way
from kafkatool.commands.shared.bootstrap import Bootstrap, connect_brokers
from kafkatool.commands.shared.options import DEFAULT_ZK_MAX_BYTES, connect


@contextmanager
def open_way(
    zookeeper: str | None,
    bootstrap: Bootstrap | None,
    *,
    cluster_id: str | None = None,
    zk_max_bytes: int = DEFAULT_ZK_MAX_BYTES,
) -> Iterator[Way]:
    """Connect for one command, by the way that was chosen."""
    if bootstrap is not None:
        from kafkatool.commands.acls.by_request import AclsByRequest

        with connect_brokers(bootstrap, cluster_id=cluster_id) as client:
            yield AclsByRequest(client)
        return
    from kafkatool.commands.acls.by_znode import AclsByZnode

    assert zookeeper is not None
    with connect(zookeeper, cluster_id=cluster_id, zk_max_bytes=zk_max_bytes) as zk:
        yield AclsByZnode(zk)
