"""The controller of the simulation: the product's elections, written to ZooKeeper and told at once, heard in their order."""

from collections.abc import Mapping

from kafkatool.broker.controller.deciding.leader_selection import elect_offline, first_leader, without_replicas
from kafkatool.core.model.values import LeaderAndIsr
from kafkatool.core.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartition,
    UpdateMetadataRequest,
)
from kafkatool.core.zookeeper.operations import SetData
from kafkatool.core.zookeeper.znodes import PartitionStateZnode
from tests.broker.replication.world import role
from tests.core.zookeeper.memory import MemoryEnsemble, MemoryZooKeeper
from tests.histories.simulated.brokers import BROKERS, PARTITIONS, Broker, partition_of

_EPOCH = 1


def replicas_of(key: int) -> tuple[int, ...]:
    """Return the assigned replicas: each broker is preferred for as many keys."""
    first = key % len(BROKERS)
    return BROKERS[first:] + BROKERS[:first]


class Controller:
    """It never dies, and hears of brokers when their sessions end and begin."""

    def __init__(self, ensemble: MemoryEnsemble, brokers: Mapping[int, Broker]) -> None:
        self._zookeeper = MemoryZooKeeper(ensemble)
        self._brokers = brokers
        self.live = set(BROKERS)
        for key in PARTITIONS:
            chosen = first_leader(replicas_of(key), self.live)
            assert chosen is not None  # all are live
            state = LeaderAndIsr(chosen.leader, 0, chosen.isr, _EPOCH)
            self._zookeeper.create(self._path(key), PartitionStateZnode.encode(state), make_parents=True)
            self.tell(key)
        self._tell_metadata()

    def state(self, key: int) -> tuple[LeaderAndIsr, int]:
        node = self._zookeeper.get(self._path(key))
        assert node is not None  # it was made at the beginning
        return PartitionStateZnode.decode(partition_of(key), node.data), node.version

    def all_in_sync(self) -> bool:
        states = [self.state(key)[0] for key in PARTITIONS]
        return all(state.leader is not None and set(state.isr) == set(BROKERS) for state in states)

    def session_ended(self, broker: int) -> None:
        """Elect for what it led, take it out of the other in-sync sets."""
        if broker not in self.live:
            return
        self.live.discard(broker)
        for key in PARTITIONS:
            state, _ = self.state(key)
            if state.leader != broker or not self._elect(key, state):
                changed = without_replicas(state, {broker}, _EPOCH)
                if changed is not None:
                    self._write(key, changed)
        self._tell_metadata()

    def session_began(self, broker: int) -> None:
        """Tell it its roles; elect it where nobody could be."""
        self.live.add(broker)
        for key in PARTITIONS:
            state, _ = self.state(key)
            if state.leader is not None or not self._elect(key, state):
                self.tell(key, (broker,))
        self._tell_metadata()

    def move(self, key: int, to: int) -> None:
        """Give the leadership to another replica that is in sync, as elections of preferred replicas do."""
        state, _ = self.state(key)
        if to in state.isr and to in self.live and state.leader is not None:
            self._write(key, LeaderAndIsr(to, state.leader_epoch + 1, state.isr, _EPOCH))
            self._tell_metadata()

    def take_out(self, key: int, broker: int) -> None:
        """Take a follower out of the in-sync set, as its replica is moved away."""
        state, _ = self.state(key)
        assert state.leader != broker  # then nobody would lead
        changed = without_replicas(state, {broker}, _EPOCH)
        if changed is not None:
            self._write(key, changed)
            self._tell_metadata()

    def _elect(self, key: int, state: LeaderAndIsr) -> bool:
        chosen = elect_offline(state, replicas_of(key), self.live, unclean_allowed=False)
        if chosen is not None:
            self._write(key, LeaderAndIsr(chosen.leader, state.leader_epoch + 1, chosen.isr, _EPOCH))
        return chosen is not None

    def _write(self, key: int, state: LeaderAndIsr) -> None:
        _, version = self.state(key)
        self._zookeeper.commit_many([[SetData(self._path(key), PartitionStateZnode.encode(state), version)]])
        self.tell(key)

    def tell(self, key: int, brokers: tuple[int, ...] = BROKERS) -> None:
        """Tell these brokers who leads and who follows."""
        state, version = self.state(key)
        leader = -1 if state.leader is None else state.leader
        for broker in brokers:
            if broker in self.live:
                self._brokers[broker].commands.append(
                    role(partition_of(key), leader, state.leader_epoch, state.isr, replicas_of(key), version)
                )

    def _tell_metadata(self) -> None:
        """Tell all who is alive, and who leads."""
        states = {key: self.state(key) for key in PARTITIONS}
        request = UpdateMetadataRequest(
            controller_id=0,
            controller_epoch=_EPOCH,
            partition_states=[
                UpdateMetadataPartition(
                    topic=partition_of(key).topic,
                    partition=partition_of(key).partition,
                    controller_epoch=_EPOCH,
                    leader=-1 if state.leader is None else state.leader,
                    leader_epoch=state.leader_epoch,
                    isr=list(state.isr),
                    zk_version=version,
                    replicas=list(replicas_of(key)),
                )
                for key, (state, version) in states.items()
            ],
            live_brokers=[
                UpdateMetadataBroker(
                    id=broker,
                    endpoints=[UpdateMetadataEndpoint(port=9092, host=f"broker-{broker}", listener_name="PLAINTEXT")],
                )
                for broker in sorted(self.live)
            ],
        )
        for broker in sorted(self.live):
            self._brokers[broker].commands.append(request)

    @staticmethod
    def _path(key: int) -> str:
        return PartitionStateZnode.path(partition_of(key))
