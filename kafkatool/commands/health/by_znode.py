"""The health of a cluster by its nodes in ZooKeeper; brokers are asked for what only they know."""

from collections.abc import Collection, Sequence

from kafkatool.commands.shared.credentials import broker_connections
from kafkatool.commands.shared.options import show_planned
from kafkatool.commands.shared.output import Output
from kafkatool.core.errors import RefusedError
from kafkatool.core.operations.config_writes import ConfigWrite
from kafkatool.core.operations.health import forgotten
from kafkatool.core.operations.health.forgotten import Entity
from kafkatool.core.operations.health.reading import Reading, read
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigChangeZnode


class HealthByZnode:
    """Throttles are configs in nodes, each written on the version that was read."""

    def __init__(self, zk: ZooKeeper) -> None:
        self._zk, self._connections = zk, broker_connections()

    def note_unreachable(self, out: Output) -> None:
        """Say at once that no broker can be asked, and what to give: what follows is told by ZooKeeper alone."""
        try:
            self._connections.access.check(read_cluster(self._zk, [], states=False).brokers.values())
        except RefusedError as e:
            out.note(f"kt: warning: no broker can be asked: {e}")

    def look(self) -> Reading:
        return read(self._zk, self._connections)

    def take_off(self, entity: Entity, reading: Reading) -> None:
        for write in self._removal([entity], reading):
            write.write(self._zk)

    def dry_run_take_off(self, out: Output, entities: Sequence[Entity], reading: Reading) -> None:
        ops = [op for write in self._removal(entities, reading) for op in write.ops]
        show_planned(out, self._zk, ops, sequential_paths=(ConfigChangeZnode.PREFIX,))

    def _removal(self, entities: Collection[Entity], reading: Reading) -> list[ConfigWrite]:
        found = {entity: keys for entity, keys in reading.throttles.items() if entity in entities}
        return forgotten.plan_removal(self._zk, found)
