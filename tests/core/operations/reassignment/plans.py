"""A topic of nine partitions, plans for it, and what ZooKeeper holds of configs and their changes."""

from collections.abc import Mapping, Sequence

from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.reassignment.runs.saved_run import plan_hash
from kafkatool.core.planner.plan_files import plan_json
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigChangeZnode, ConfigZnode

NINE = {0: (1,), 1: (2,), 2: (3,), 3: (1,), 4: (2,), 5: (3,), 6: (1,), 7: (2,), 8: (3,)}


def tp(number: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, number)


def plan(moves: Mapping[int, Sequence[int]], topic: str = "t") -> dict[TopicPartition, tuple[int, ...]]:
    return {tp(p, topic): tuple(r) for p, r in moves.items()}


def way_back_text(goal: Mapping[int, Sequence[int]], before: Mapping[int, Sequence[int]]) -> str:
    """Return what the file of the way back holds of a plan for ``goal``."""
    return plan_json(plan(before), plan_sha256=plan_hash(plan(goal))) + "\n"


def config(zk: ZooKeeper, entity_type: str, name: str) -> dict[str, str] | None:
    path = ConfigZnode.path(entity_type, name)
    node = zk.get(path)
    return ConfigZnode.decode(path, node.data) if node else None


def changes(zk: ZooKeeper) -> list[str]:
    names = sorted(zk.children(ConfigChangeZnode.PATH) or [])
    found = zk.get_many([f"{ConfigChangeZnode.PATH}/{n}" for n in names])
    return [entity for node in found if node and (entity := ConfigChangeZnode.decode(node.data))]
