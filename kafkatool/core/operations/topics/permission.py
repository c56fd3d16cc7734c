"""Whether this session may change topics, known before the first of several writes (SEC-25)."""

from collections.abc import Sequence

from kafkatool.core.operations.config_writes import read_configs
from kafkatool.core.zookeeper.session import Create, Op, SetData, ZooKeeper
from kafkatool.core.zookeeper.znodes import ReassignmentZnode, TopicZnode


def check_may_alter(
    zk: ZooKeeper, topics: Sequence[str], *, configs: bool, partitions: bool, replication_factor: bool
) -> None:
    """Raise NoPermissionError where a change of those kinds, of any of the topics, would be refused; nothing is written."""
    writes: list[Op] = []
    if configs:
        writes += [op for read in read_configs(zk, [("topics", topic) for topic in topics]) for op in read.ops]
    if partitions:
        paths = [TopicZnode.path(topic) for topic in topics]
        nodes = zip(paths, zk.get_many(paths), strict=True)
        writes += [SetData(path, b"", node.version) for path, node in nodes if node is not None]
    if replication_factor:
        writes.append(Create(ReassignmentZnode.PATH))
    zk.check_permitted(writes)
