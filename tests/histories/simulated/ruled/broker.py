"""One broker of the simulation under the product's controller: its replication is the product's replica manager."""

from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from kafkatool.broker.controller.telling.channels import ControlRequest, Message
from kafkatool.broker.handlers import leader_and_isr, stop_replica, update_metadata
from kafkatool.broker.replication.partition.partition import Partition
from kafkatool.broker.storage.log.log import Log
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataRequest
from tests.histories.simulated.brokers import Broker, number_of, partition_of
from tests.histories.simulated.ruled.life import RuledLife
from tests.histories.simulated.ruled.replication import PlayedFetchers, PlayedReplicas

if TYPE_CHECKING:
    from tests.histories.simulated.ruled.realm import RuledRealm

_HANDLERS: Final[Mapping[type[Message], Callable[[Any, Any], object]]] = {
    LeaderAndIsrRequest: leader_and_isr.handle,
    UpdateMetadataRequest: update_metadata.handle,
    StopReplicaRequest: stop_replica.handle,
}


class RuledBroker(Broker):
    """Its process comes and goes with its session; what was done to its disk shows at its next start, if that may be."""

    realm: "RuledRealm"
    process: RuledLife
    _was_stopped = False
    _damage: Sequence[Callable[[], None]] = ()
    _died_at = 0.0

    # --- life -------------------------------------------------------------------------------------------------------

    def start(self, *, clean: bool = False) -> None:
        """Start it; whether its logs were closed as they should it knows itself."""
        damage, self._damage = self._damage, ()
        if damage and not self.realm.counts_on(self.id):
            for do_harm in damage:
                do_harm()
        clean, self._was_stopped = self._was_stopped, False
        super().start(clean=clean)

    def _replicate(self) -> None:
        self.realm.start(self.id)
        process, pace = self.realm.processes[self.id], self.realm.world.pace
        self.process, self.zookeeper = process, process.zookeeper
        self._fetchers = PlayedFetchers(self._follows)
        manager = self._manager = PlayedReplicas(
            self.id,
            self,
            self.cache,
            process.zookeeper,
            self._scheduler,
            self._timer,
            lambda: process.broker_epoch,
            self._fetchers,
            self._made,
            self.clock,
            pace,
        )
        self._local, self._delayed, self._appends = manager.partitions, manager.delayed, manager.appends
        self._fetch_sessions, self._fetches = manager.fetch_sessions, manager.fetches
        self.in_sync_writer = manager.isr_writer

    def _begin_to_serve(self) -> None:
        """Wait for the controller's orders: no partition is here before."""
        self._manager.startup()

    def _made(self, partition: Partition) -> None:
        self.partitions[number_of(*partition.tp)] = partition

    @property
    def replicas_ms(self) -> float:
        return self.clock() / self.realm.world.pace  # as PlayedReplicas have it

    def kill(self) -> None:
        if self.alive:
            super().kill()
            self.process.die()
            self._died_at = self.clock()

    def stop(self) -> None:
        """End as it should, as soon as its controller has done what it is at."""
        self.is_stopping = True
        self._fetchers.leaves = True
        self.process.end_soon()

    def stop_when_moved(self) -> None:
        """Ask the controller to move its leaderships away, and end then, or when it has asked often enough."""
        self.is_stopping = True
        self._fetchers.leaves = True
        self.process.stop_orderly()

    def close(self) -> None:
        """Close the logs; the process is about to end."""
        super().stop()
        self._was_stopped = True
        self._died_at = self.clock()

    def freeze(self, ms: float) -> None:
        self.process.stop_for(ms)

    def thaw(self) -> None:
        self.frozen = False
        if self.alive:
            self.process.stopped_until = min(self.process.stopped_until, self.realm.world.now)

    # --- disks: nothing may be lost while the broker counts as in sync, and somebody relies on what it has ----------------

    @property
    def is_damaged(self) -> bool:
        """Tell whether it has lost something, once it starts."""
        return bool(self._damage)

    @property
    def dead_ms(self) -> float:
        return self.clock() - self._died_at

    def spare(self) -> None:
        """Let it have lost nothing after all."""
        self._damage = ()

    def tear(self, manner: str, chance: Random) -> None:
        tear = super().tear
        self._damage = (*self._damage, lambda: tear(manner, chance))

    def garble(self, key: int, size_bytes: int, chance: Random) -> None:
        garble = super().garble
        self._damage = (*self._damage, lambda: garble(key, size_bytes, chance))

    def lose_power(self, chance: Random, *, has_flushed: bool = False) -> None:
        lose_power = super().lose_power
        if has_flushed:
            lose_power(chance)
        else:
            self._damage = (*self._damage, lambda: lose_power(chance))

    # --- what the replica manager asks of the disk --------------------------------------------------------------------

    @property
    def hosted(self) -> Collection[TopicPartition]:
        return self.realm.disks[self.id].directories

    def log_of(self, number: int) -> Log:
        return self.partitions[number].log

    def host(self, partition: TopicPartition) -> None:
        self.realm.disks[self.id].directories[partition] = None

    def drop(self, partition: TopicPartition) -> None:
        if self.realm.disks[self.id].directories.pop(partition, self) is not self:
            self._erase(number_of(*partition))

    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        known = {partition_of(number): found.high_watermark for number, found in self._checkpoints.items()}
        return {partition: offset for partition, offset in known.items() if partition in self.hosted}

    # --- work -------------------------------------------------------------------------------------------------------

    def do(self, work: Callable[[], None]) -> None:
        """Do something of its process."""
        work()

    def step(self, chance: Random) -> None:
        """Do one of the things that a broker's threads do side by side; waiting for ZooKeeper they let others go first."""
        if self.alive and not self.frozen:
            process, step = self.process, super().step
            process.as_broker(lambda: step(chance))

    def _obey(self) -> None:
        """Orders come over the controller's channels, and are obeyed at once."""

    def _shrink(self) -> None:
        """The replica manager does it, when it comes round."""

    def obey(self, request: ControlRequest) -> object:
        """Have the product's handler do what a controller asks for."""
        coordination = self.coordination
        context = SimpleNamespace(
            replica_manager=self._manager,
            groups=coordination.groups,
            on_leadership_change=coordination.on_leadership_change,
            on_partitions_stopped=coordination.on_partitions_stopped,
        )
        call = SimpleNamespace(context=context, header=SimpleNamespace(correlation_id=0))
        return _HANDLERS[type(request.message)](request.message, call)

    def set_aside(self, strays: Collection[TopicPartition]) -> None:
        """Drop replicas that are not assigned here any more."""
        self._manager.control.set_aside(strays)
        self.coordination.on_partitions_stopped(strays)
