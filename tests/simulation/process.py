"""One broker process: its life with the real controller and session, and around them what a broker does (CTL-1, 18 to 22).

A killed process leaves its disk; a stopped one (SIGSTOP) leaves everything as it is and goes on later as if nothing were.
"""

from typing import TYPE_CHECKING

from kafkatool.broker.controller.telling.channels import ControlRequest
from kafkatool.core.errors import KafkatoolError, NoNodeError, VersionConflictError
from kafkatool.core.model.values import LeaderAndIsr, TopicPartition
from kafkatool.core.zookeeper.znodes import IsrChangeZnode, LogDirEventZnode, PartitionStateZnode
from tests.simulation.life import Life, knows_incarnations
from tests.simulation.replicas import Disk, Replicas, Role

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

_REPLICATION_MS = 700.0  # between looks at who is in sync
_LAG_MS = 3000.0  # replica.lag.time.max.ms


class Process(Life):
    """From start to stop, kill included."""

    def __init__(self, cluster: "Cluster", broker_id: int, disk: Disk) -> None:
        self.cluster = cluster
        self.replicas = Replicas(broker_id, disk)
        self._maintaining = False
        self._changed_isrs: dict[TopicPartition, None] = {}
        self._lagging: dict[tuple[TopicPartition, int], float] = {}  # since when
        super().__init__(cluster, broker_id)

    def begin_work(self) -> None:
        self.world.after(self.world.random.random() * _REPLICATION_MS, self._replicate)

    # --- control requests -----------------------------------------------------------------------------------------

    def obey(self, request: ControlRequest) -> object:
        held = set(self.replicas.disk.directories)
        known = self.broker_epoch if knows_incarnations(request) else None
        answer = self.replicas.obey(request, known)
        self.world.note("broker %d is told %s -> %s", self.id, request.message, answer)
        self.cluster.invariants.on_obeyed(self, request, held)
        return answer

    # --- replication ----------------------------------------------------------------------------------------------

    def _replicate(self) -> None:
        if not self.alive:
            return
        self.world.after(_REPLICATION_MS * (0.7 + 0.6 * self.world.random.random()), self._replicate)
        if self.stopped_until <= self.world.now and self.client.connected and not self._maintaining:
            self._maintaining = True
            self.as_broker(self._maintain)
            self._maintaining = False

    def _maintain(self) -> None:
        for partition, role in list(self.replicas.roles.items()):
            if role.leader == self.id and not role.stale and self.replicas.roles.get(partition) is role:
                isr = self._in_sync(partition, role)
                if isr != role.isr:
                    self._write_isr(partition, role, isr)
        if self._changed_isrs and self.world.random.random() < 0.5:
            named, self._changed_isrs = list(self._changed_isrs), {}
            self.zookeeper.create(IsrChangeZnode.PREFIX,
                                  IsrChangeZnode.encode(named), sequential=True)  # fmt: skip

    def _in_sync(self, partition: TopicPartition, role: Role) -> tuple[int, ...]:
        """Return the ISR as it should be: without those that lag, with those that caught up."""
        isr = list(role.isr)
        for broker in role.replicas:
            if broker == self.id:
                continue
            other = self.cluster.processes.get(broker)
            follows = (
                other is not None
                and other.alive
                and other.stopped_until <= self.world.now
                and (known := other.replicas.roles.get(partition)) is not None
                and known.fetching
                and (known.leader, known.leader_epoch) == (self.id, role.leader_epoch)
            )
            key = (partition, broker)
            if follows:
                self._lagging.pop(key, None)
                if broker not in isr and self.world.random.random() < 0.7:
                    isr.append(broker)
            elif broker in isr and self.world.now - self._lagging.setdefault(key, self.world.now) > _LAG_MS:
                isr.remove(broker)
        return tuple(isr)

    def _write_isr(self, partition: TopicPartition, role: Role, isr: tuple[int, ...]) -> None:
        """Write on the version known; if refused, the node is read again, as the real broker does (KAFKA-2729)."""
        path = PartitionStateZnode.path(partition)
        data = PartitionStateZnode.encode(LeaderAndIsr(self.id, role.leader_epoch, isr, role.controller_epoch))
        try:
            version = self.zookeeper.set(path, data, role.zk_version)
        except NoNodeError:
            role.stale = True
            return
        except VersionConflictError:
            node = self.zookeeper.get(path)
            found = PartitionStateZnode.decode(partition, node.data) if node else None
            if node is None or found is None or (found.leader, found.leader_epoch) != (self.id, role.leader_epoch):
                role.stale = True  # until the next LeaderAndIsr (Z-39)
                return
            isr, version = found.isr, node.version
        role.isr, role.zk_version = isr, version
        self._changed_isrs[partition] = None

    def fail_disk(self, partitions: list[TopicPartition]) -> None:
        """Let a log directory fail; the broker tells the controller (Z-47)."""
        self.replicas.fail_disk(partitions)

        def tell() -> None:
            try:
                self.zookeeper.create(LogDirEventZnode.PREFIX,
                                      LogDirEventZnode.encode(self.id), sequential=True)  # fmt: skip
            except KafkatoolError:
                self.world.after(1000.0, lambda: self.as_broker(tell))

        self.as_broker(tell)
