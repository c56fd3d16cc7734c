"""The cluster under the product's controller: its ZooKeeper, its time, and what clients and faults have to do with it."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from kafkatool.broker.controller.events import Event
from kafkatool.core.model.values import LeaderAndIsr
from kafkatool.core.zookeeper.znodes import PartitionStateZnode
from tests.broker.replication.world import Clock
from tests.histories.simulated.brokers import BROKERS, PARTITIONS, Broker, Wires, partition_of
from tests.histories.simulated.controller import SESSION_MS, replicas_of
from tests.histories.simulated.ruled.broker import RuledBroker
from tests.histories.simulated.ruled.life import RuledLife, WiredClient
from tests.histories.simulated.ruled.troubles import Troubles
from tests.simulation.client import SESSION_TIMEOUT_MS
from tests.simulation.realm import Realm
from tests.simulation.rest import problems_of_ruling
from tests.simulation.world import Chances, World

if TYPE_CHECKING:
    from tests.histories.simulated.windows import Stage

PACE: Final = SESSION_MS / SESSION_TIMEOUT_MS
_HEARD_MS: Final = 20.0  # after a session's end: so long a controller takes to hear of it, to decide and to tell
_DAMAGED_MS: Final = 600.0  # so long who has lost something stays away, to be taken out of the in-sync sets
_LOOKED_MS: Final = 20.0
_REPAIRED_MS: Final = 50.0


class RuledRealm(Realm[RuledLife]):
    """Three brokers, one of which rules. Time is the world's; in each of its ms the brokers and clients take their steps."""

    heard_ms = SESSION_MS + _HEARD_MS

    def __init__(self, world: World, brokers: Mapping[int, RuledBroker], wires: Wires, chance: Random) -> None:
        is_rebalanced = "true" if chance.random() < 0.3 else "false"
        super().__init__(
            world,
            BROKERS,
            {"auto.leader.rebalance.enable": is_rebalanced, "leader.imbalance.check.interval.seconds": "1"},
        )
        self.brokers, self.wires, self.chance = brokers, wires, chance
        self._troubles = Troubles(self)
        self._ticks = 0
        self._tick: Callable[[], None] = lambda: None
        self._begun = self._is_calm = False
        self.everyday = _everyday(chance)
        self._repaired_at = 0.0
        topics: dict[str, dict[int, tuple[int, ...]]] = {}
        for key in PARTITIONS:
            topic, number = partition_of(key)
            topics.setdefault(topic, {})[number] = replicas_of(key)
        for topic, assignment in topics.items():
            self.create_topic(topic, assignment)
        for broker in brokers.values():
            broker.realm = self
        for broker in brokers.values():
            broker.start()
        world.after(1.0, self._turn)

    def begin_life(self, broker: int) -> RuledLife:
        return RuledLife(self, self.brokers[broker])

    # --- time -------------------------------------------------------------------------------------------------------

    def step(self, tick: Callable[[], None]) -> None:
        self._tick, before = tick, self._ticks
        self.world.run_until(lambda: self._ticks > before, math.inf)

    def _turn(self) -> None:
        self._ticks += 1
        self.world.after(1.0, self._turn)  # first: whoever waits in this one goes through the next ones
        self._tick()

    def pass_ms(self) -> None:
        """Break connections whose wire is cut; see whether all has come up at the beginning, and is as it was at the end."""
        for broker in self.brokers.values():
            if broker.alive and not broker.frozen:
                client = broker.process.client
                assert isinstance(client, WiredClient)
                if client.connected and not client.is_wired:
                    client.drop(1.0)
        if not self._begun:
            self._begun = self.registered() == sorted(BROKERS) and self.all_in_sync() and not self.trouble()
            if self._begun:
                self.world.chances = self.everyday
        elif self._is_calm and self.world.now >= self._repaired_at:
            self._repaired_at = self.world.now + _REPAIRED_MS
            self._bring_back()

    def has_begun(self) -> bool:
        return self._begun

    def calm(self) -> None:
        self._is_calm = True
        self.world.chances = Chances()
        self.server.is_up = True
        for process in self.alive():
            process.client.blocked_until = min(process.client.blocked_until, self.world.now)

    def trouble(self) -> str:
        return "; ".join(problems_of_ruling(self))

    def _bring_back(self) -> None:
        """Have each partition assigned to all brokers again."""
        process = self.controller()
        if process is None or (term := process.worker.term) is None:
            return
        wanted = {
            partition: (*replicas, *(b for b in BROKERS if b not in replicas))
            for partition in self.partitions()
            if set(replicas := self.invariants.assignment(partition.topic)[partition.partition]) != set(BROKERS)
            and partition not in term.context.reassigning
        }
        if wanted:
            self.ask_to_move(wanted)

    # --- what is so -------------------------------------------------------------------------------------------------

    @property
    def live(self) -> set[int]:
        return set(self.registered())

    def state(self, key: int) -> tuple[LeaderAndIsr, int]:
        partition = partition_of(key)
        node = self.server.nodes[PartitionStateZnode.path(partition)]
        return PartitionStateZnode.decode(partition, node.data), node.version

    def all_in_sync(self) -> bool:
        if any(PartitionStateZnode.path(partition_of(key)) not in self.server.nodes for key in PARTITIONS):
            return False
        return all(self._is_in_sync(key) for key in PARTITIONS)

    def _is_in_sync(self, key: int) -> bool:
        state, partition = self.state(key)[0], partition_of(key)
        assigned = self.invariants.assignment(partition.topic)[partition.partition]
        return state.leader is not None and set(state.isr) == set(assigned) == set(BROKERS)

    def told(self, key: int, chance: Random) -> tuple[int, int]:
        """Ask a broker, whoever answers, for its metadata: it may have missed the last news."""
        answering = [broker for broker in self.brokers.values() if broker.alive and not broker.frozen]
        if not answering:
            return 0, -1
        found = chance.choice(answering).cache.snapshot.partition(partition_of(key))
        return (0, -1) if found is None else (max(found.leader, 0), found.leader_epoch)

    def orders(self, controller: int, broker: int) -> bool:
        return self.wires.carry(0, broker) and self.answers(controller, broker)

    def answers(self, speaker: int, listener: int) -> bool:
        return speaker == listener or self.wires.carry(speaker, listener)

    # --- what is done -----------------------------------------------------------------------------------------------

    def session_ended(self, broker: int) -> None:
        client = self.processes[broker].client
        client.expire(client.session)

    def counts_on(self, broker: int) -> bool:
        """Tell whether something is in sync there, for all that others know."""
        return any(broker in self.state(key)[0].isr for key in PARTITIONS)

    def may_start(self, broker: Broker) -> bool:
        """Tell whether it may be started: every other one at once, before its former session is over.

        Who has lost something waits until nobody relies on it any more; if that takes too long, it has lost nothing.
        """
        assert isinstance(broker, RuledBroker)
        if broker.is_damaged and broker.dead_ms > _DAMAGED_MS:
            broker.spare()
        if broker.is_damaged:
            return broker.id not in self.live and not self.counts_on(broker.id)
        return broker.life % 2 == 0 or broker.id not in self.live

    def was_killed(self, broker: RuledBroker) -> None:
        """Start a broker again that chance has killed."""
        self.world.after(self.world.random.choice((20.0, 120.0, 400.0)), partial(self._revive, broker))

    def _revive(self, broker: RuledBroker) -> None:
        if not broker.alive and self.may_start(broker):
            broker.start()
        elif not broker.alive:
            self.world.after(_LOOKED_MS, partial(self._revive, broker))

    def stop(self, broker: Broker) -> None:
        assert isinstance(broker, RuledBroker)
        broker.stop_when_moved()

    def move(self, key: int, to: int) -> None:
        """Have another replica preferred, and elected: both are asked of whoever rules, and may be refused."""
        partition, process = partition_of(key), self.controller()
        replicas = self.invariants.assignment(partition.topic)[partition.partition]
        if process is None or to not in replicas:
            return
        self.ask_to_move({partition: (to, *(b for b in replicas if b != to))})

        def elect() -> None:
            if (term := process.worker.term) is not None:
                term.requested_election.elect([partition], unclean=False)

        process.worker.queue.put(Event("requested election", elect))

    def befall(self, kind: str, broker: Broker, lasts: int, stage: "Stage") -> None:
        assert isinstance(broker, RuledBroker)
        self._troubles.befall(kind, broker, lasts, stage)


def _everyday(chance: Random) -> Chances:
    """Draw what may happen at any call, and to any order, also while no fault is about."""
    return Chances(
        others_first=chance.choice((0.05, 0.2, 0.5)),
        cut=chance.choice((0.0, 0.01, 0.03)),
        request_lost=chance.choice((0.0, 0.03)),
        answer_lost=chance.choice((0.0, 0.03)),
        slow=chance.choice((0.0, 0.03)),
    )


def rule_for_real(seed: int, brokers: Mapping[int, Broker], wires: Wires, clock: Clock) -> RuledRealm:
    """Start these brokers, each with a session, of which one is elected to rule them."""
    ruled = {number: broker for number, broker in brokers.items() if isinstance(broker, RuledBroker)}
    world = World(f"world {seed}", pace=PACE, max_steps=None)
    return RuledRealm(world, ruled, wires, Random(f"rule {seed}"))
