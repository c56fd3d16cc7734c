"""Who rules the brokers of the simulation, and the written controller: the product's elections, told at once, in order.

The other one is the product's (``ruled``).
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Final, Protocol

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
from tests.broker.replication.world import Clock, role
from tests.core.zookeeper.memory import MemoryEnsemble, MemoryZooKeeper
from tests.histories.simulated.brokers import BROKERS, PARTITIONS, Broker, SimulatedZooKeeper, Wires, partition_of

if TYPE_CHECKING:
    from tests.histories.simulated.windows import Stage

SESSION_MS: Final = 250.0
"""How long ZooKeeper keeps the session of a broker that it does not hear."""
_EPOCH = 1


class Rule(Protocol):
    """What clients and faults have to do with whoever rules. ``heard_ms``: so long after a death it has been dealt with."""

    heard_ms: float

    @property
    def live(self) -> set[int]: ...  # brokers with a session

    def step(self, tick: Callable[[], None]) -> None: ...  # let a ms pass; ``tick`` does what else happens in each
    def pass_ms(self) -> None: ...  # called in each ms
    def has_begun(self) -> bool: ...
    def calm(self) -> None: ...  # let nothing go wrong any more
    def trouble(self) -> str: ...  # why it is not at rest; empty: it is

    def state(self, key: int) -> tuple[LeaderAndIsr, int]: ...
    def all_in_sync(self) -> bool: ...
    def told(
        self, key: int, chance: Random
    ) -> tuple[int, int]: ...  # leader, 0 for none, and epoch, as clients hear it

    def session_ended(self, broker: int) -> None: ...  # ends it, whether or not the broker lives
    def may_start(self, broker: Broker) -> bool: ...  # one that has died
    def stop(self, broker: Broker) -> None: ...  # as it should, its leaderships going first
    def move(self, key: int, to: int) -> None: ...  # a leadership, to a broker that is in sync
    def befall(self, kind: str, broker: Broker, lasts: int, stage: "Stage") -> None: ...  # faults of its own


def replicas_of(key: int) -> tuple[int, ...]:
    """Return the assigned replicas: each broker is preferred for as many keys."""
    first = key % len(BROKERS)
    return BROKERS[first:] + BROKERS[:first]


class Controller:
    """It never dies, and hears of brokers when their sessions end and begin."""

    heard_ms = SESSION_MS

    def __init__(self, ensemble: MemoryEnsemble, brokers: Mapping[int, Broker], wires: Wires, clock: Clock) -> None:
        self._zookeeper = MemoryZooKeeper(ensemble)
        self._brokers, self._wires, self._clock = brokers, wires, clock
        self._silent_since: dict[int, float] = {}
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

    def told(self, key: int, _chance: Random) -> tuple[int, int]:
        state, _ = self.state(key)
        return state.leader or 0, state.leader_epoch

    # --- time -----------------------------------------------------------------------------------------------------

    def step(self, tick: Callable[[], None]) -> None:
        tick()

    def has_begun(self) -> bool:
        return True

    def calm(self) -> None:
        """It knows no trouble of its own."""

    def trouble(self) -> str:
        return ""

    def pass_ms(self) -> None:
        """Look whose session begins, and whose ends."""
        for number, broker in self._brokers.items():
            if broker.alive and not broker.frozen and self._wires.carry(number, 0):
                self._silent_since.pop(number, None)
                if number not in self.live:
                    self.session_began(number)
            elif self._clock() - self._silent_since.setdefault(number, self._clock()) > SESSION_MS:
                self.session_ended(number)

    # --- brokers --------------------------------------------------------------------------------------------------

    def may_start(self, broker: Broker) -> bool:
        return broker.id not in self.live

    def stop(self, broker: Broker) -> None:
        self.session_ended(broker.id)
        broker.stop()

    def befall(self, kind: str, broker: Broker, lasts: int, stage: "Stage") -> None:
        raise ValueError(f"no fault is called {kind}")

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


def rule_as_written(brokers: Mapping[int, Broker], wires: Wires, clock: Clock) -> Controller:
    """Start these brokers, each with a session, and rule them."""
    ensemble = MemoryEnsemble()
    for broker in brokers.values():
        broker.zookeeper = SimulatedZooKeeper(ensemble, wires, broker.id)
        broker.start()
    return Controller(ensemble, brokers, wires, clock)
