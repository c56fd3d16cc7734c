"""Runs ``kt topics …`` in this process against a test's ZooKeeper."""

from click.testing import CliRunner, Result

from kafkatool.commands.main import kt
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.core.zookeeper import cluster_nodes as nodes

GROWTH = (
    "WARNING: If partitions are increased for a topic that has a key, the partition logic or ordering of the "
    "messages will be affected\n"
)
COLLISION = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
    "To avoid issues it is best to use either, but not both.\n"
)
NOT_A_PAIR = 'Invalid topic config: all configs to be added must be in the format "key=val".'
FAILED = "Error while executing topic command : "


def topics(zk_connect: str, action: str, *args: object) -> Result:
    return CliRunner().invoke(kt, ["topics", action, "--zookeeper", zk_connect, *map(str, args)])


def answer(zk_connect: str, action: str, *args: object) -> str:
    """Return stdout of a command that must succeed."""
    result = topics(zk_connect, action, *args)
    assert result.exit_code == 0, result.output
    return result.stdout


def refusal(zk_connect: str, action: str, *args: object) -> str:
    """Return stdout of a command that must be refused, without Kafka's prefix of the last line."""
    result = topics(zk_connect, action, *args)
    assert result.exit_code == 1, result.output
    before, prefix, why = result.stdout.rpartition(FAILED)
    assert prefix, result.output
    return before + why.rstrip("\n")


def make_orders(zk: ZooKeeper) -> None:
    """Make four brokers and ``orders`` with two partitions, partition 1 led by 3 after 2 went out of sync."""
    nodes.make_cluster(
        zk,
        brokers=(1, 2, 3, 4),
        topics={"orders": {0: (1, 2, 3), 1: (2, 3, 4)}},
        states={TopicPartition("orders", 1): (3, (4, 3))},
    )
