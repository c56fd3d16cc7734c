"""One run: a cluster, an operator and faults drawn from a seed; then peace, and a look at what is left.

Each seed draws which kinds of trouble it knows and how often each comes, so that rare combinations are seen in clean
surroundings as well as in a storm.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from kafkatool.core.model.values import TopicPartition
from tests.simulation.cluster import Cluster
from tests.simulation.rest import problems
from tests.simulation.world import Chances, SimulationError, World

_LOG = "kafkatool.broker.controller"
_TOPICS = ("a", "b", "c")
_PATIENCE_MS = 240_000.0  # until all must be well, once the faults have stopped
_LOOK_MS = 1500.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """``why`` None: all invariants held, and the cluster came to rest as it should."""

    seed: int
    why: str | None
    steps: int
    digest: int
    virtual_s: float
    trace: list[str] | None


def run(seed: int, *, tracing: bool = False) -> Outcome:
    """Run the scenario of a seed: the same seed, the same run."""
    world = World(seed, tracing=tracing)
    why = None
    scenario = Scenario(world)
    logger = logging.getLogger(_LOG)
    level, propagates = logger.level, logger.propagate
    logger.setLevel(logging.DEBUG if tracing else logging.ERROR)
    logger.propagate = False
    logger.addHandler(scenario.cluster.refusals)
    try:
        scenario.run()
    except SimulationError as e:
        why = str(e)
    finally:
        logger.removeHandler(scenario.cluster.refusals)
        logger.setLevel(level)
        logger.propagate = propagates
    if world.violations:
        why = world.violations[0]
    return Outcome(seed, why, world.steps, world.digest, world.now / 1000, world.trace)


def explain(seed: int) -> str:
    """Run it again, and tell everything that happened and how to see it once more."""
    outcome = run(seed, tracing=True)
    lines = [
        *(outcome.trace or ()),
        "",
        f"seed {seed}: {outcome.why}",
        f"again: scripts/simulate --runs 1 --seed {seed}",
    ]
    return "\n".join(lines)


class Scenario:
    """Draws everything from the world's source of chance."""

    def __init__(self, world: World) -> None:
        self.world = world
        random = world.random
        self.brokers = list(range(1, random.choice((2, 3, 3, 4, 4, 5)) + 1))
        properties = {
            "delete.topic.enable": "true" if random.random() < 0.9 else "false",
            "auto.leader.rebalance.enable": "true" if random.random() < 0.4 else "false",
            "leader.imbalance.check.interval.seconds": "20",
        }
        self.cluster = Cluster(world, self.brokers, properties)
        self._faults_end = random.choice((8_000.0, 20_000.0, 40_000.0))
        self._peace = False

    def _draw_chances(self) -> Chances:
        random = self.world.random

        def sometimes(*values: float) -> float:
            return random.choice(values) if random.random() < 0.5 else 0.0

        return Chances(
            others_first=random.choice((0.02, 0.1, 0.3)),
            stopped=sometimes(0.002, 0.01, 0.03),
            killed=sometimes(0.002, 0.01),
            cut=sometimes(0.003, 0.015),
            expiry=random.choice((0.0, 0.3)),
            request_lost=sometimes(0.05, 0.2),
            answer_lost=sometimes(0.05, 0.2),
            slow=sometimes(0.03, 0.1),
        )

    def run(self) -> None:
        world, random = self.world, self.world.random
        for broker in self.brokers:
            world.after(random.random() * 300, lambda b=broker: self.cluster.start(b))  # type: ignore[misc]
        world.run_for(1000)
        world.chances = self._draw_chances()
        deeds = self._deeds()
        kinds = random.sample(deeds, random.randint(3, len(deeds)))
        for _ in range(random.randint(4, 16)):
            world.after(random.random() * self._faults_end, self._unless_peace(random.choice(kinds)))
        for _ in range(random.randint(1, 3)):
            world.after(random.random() * 2000, self._create_topic)
        world.after(self._faults_end + 1000, self._make_peace)
        world.run_until(lambda: self._peace, world.now + self._faults_end + 30_000)
        self._come_to_rest()

    def _unless_peace(self, deed: Callable[[], None]) -> Callable[[], None]:
        return lambda: None if self._peace else deed()

    def _come_to_rest(self) -> None:
        world = self.world
        deadline = world.now + _PATIENCE_MS
        found = ["it has not begun"]
        while found and world.now < deadline:
            world.run_for(_LOOK_MS)
            found = problems(self.cluster)
            if not found:  # a session may just be ending unseen: it has to stay so
                world.run_for(_LOOK_MS * 2)
                found = problems(self.cluster)
        if found:
            world.fail(f"{_PATIENCE_MS / 1000:.0f} s after the faults have stopped: {'; '.join(found)}")

    def _make_peace(self) -> None:
        """Let nothing fail any more, and bring everyone up."""
        world, cluster = self.world, self.cluster
        world.note("the faults have stopped")
        world.chances = Chances()
        self._peace = True
        cluster.server.is_up = True
        for process in cluster.processes.values():
            process.stopped_until = min(process.stopped_until, world.now)
            process.client.blocked_until = min(process.client.blocked_until, world.now)
        for broker in self.brokers:
            if cluster.disks[broker].failed and broker in cluster.processes:
                cluster.processes[broker].kill()  # to mend its disk
            world.after(world.random.random() * 500, lambda b=broker: self._up(b))  # type: ignore[misc]

    def _up(self, broker: int) -> None:
        process = self.cluster.processes.get(broker)
        if process is not None and process.alive and process.stopping:
            self.world.after(500.0, lambda: self._up(broker))
            return
        if process is None or not process.alive:
            self.cluster.disks[broker].failed.clear()
        self.cluster.start(broker)

    # --- what happens ---------------------------------------------------------------------------------------------

    def _deeds(self) -> list[Callable[[], None]]:
        return [
            self._create_topic,
            self._create_topic,
            self._delete_topic,
            self._add_partitions,
            self._reassign,
            self._reassign,
            self._reassign,
            self._ask_to_move,
            self._ask_to_move,
            self._take_back,
            self._elect,
            self._delete_controller,
            self._kill,
            self._kill,
            self._kill_controller,
            self._stop_orderly,
            self._stand_still,
            self._disconnect,
            self._expire,
            self._zookeeper_down,
            self._fail_disk,
        ]

    def _some_brokers(self, at_most: int = 3) -> list[int]:
        random = self.world.random
        return random.sample(self.brokers, min(random.randint(1, at_most), len(self.brokers)))

    def _create_topic(self) -> None:
        random = self.world.random
        topic = random.choice(_TOPICS)
        self.world.note("operator: create topic %s", topic)
        assignment = {n: self._some_brokers() for n in range(random.randint(1, 2))}
        self.cluster.create_topic(topic, assignment, unclean=random.random() < 0.15)

    def _a_topic(self) -> str | None:
        topics = self.cluster.topics()
        return self.world.random.choice(topics) if topics else None

    def _delete_topic(self) -> None:
        topic = self._a_topic() if self.world.random.random() < 0.9 else "unknown"
        if topic is not None:
            self.world.note("operator: delete topic %s", topic)
            if topic != "unknown" or self.cluster.properties["delete.topic.enable"] == "true":
                self.cluster.delete_topic(topic)

    def _add_partitions(self) -> None:
        topic = self._a_topic()
        if topic is not None and not self.cluster.is_marked(topic):
            self.world.note("operator: add a partition to %s", topic)
            self.cluster.add_partitions(topic, self._some_brokers(), 1)

    def _reassign(self) -> None:
        random, partitions = self.world.random, self.cluster.partitions()
        if not partitions:
            return
        plan = {p: self._some_brokers() for p in random.sample(partitions, random.randint(1, len(partitions)))}
        if random.random() < 0.15:
            plan[random.choice(partitions)] = random.choice(([], [1, 1], [-1, 1]))
        if random.random() < 0.1:
            plan[TopicPartition("unknown", 0)] = [1]
        self.world.note("operator: reassign %s", plan)
        self.cluster.reassign(plan)

    def _ask_to_move(self) -> None:
        random, partitions = self.world.random, self.cluster.partitions()
        if partitions:
            chosen = random.sample(partitions, random.randint(1, len(partitions)))
            wanted: dict[TopicPartition, tuple[int, ...] | None] = {p: tuple(self._some_brokers()) for p in chosen}
            self.world.note("operator: move %s", wanted)
            self.cluster.ask_to_move(wanted)

    def _take_back(self) -> None:
        partitions = self.cluster.partitions()
        if partitions:
            self.world.note("operator: take back all moves")
            self.cluster.ask_to_move(dict.fromkeys(partitions))

    def _elect(self) -> None:
        partitions = self.cluster.partitions()
        if partitions:
            self.world.note("operator: elect preferred leaders")
            extra = [TopicPartition("unknown", 0)] if self.world.random.random() < 0.1 else []
            self.cluster.elect_preferred([*partitions, *extra])

    def _delete_controller(self) -> None:
        self.world.note("operator: delete /controller")
        self.cluster.delete_controller()

    def _kill(self) -> None:
        self._kill_broker(self.world.random.choice(self.brokers))

    def _kill_controller(self) -> None:
        controller = self.cluster.controller()
        if controller is not None:
            self._kill_broker(controller.id)

    def _kill_broker(self, broker: int) -> None:
        process = self.cluster.processes.get(broker)
        if process is not None:
            process.kill()
        self._restart_later(broker)

    def _restart_later(self, broker: int) -> None:
        delay = self.world.random.choice((50.0, 2000.0, 9000.0, 60_000.0))
        self.world.after(delay, self._unless_peace(lambda: self.cluster.start(broker)))

    def _stop_orderly(self) -> None:
        alive = self.cluster.alive()
        if alive:
            process = self.world.random.choice(alive)
            if not process.stopping:
                process.stop_orderly()
                self.world.after(20_000, self._unless_peace(lambda: self.cluster.start(process.id)))

    def _stand_still(self) -> None:
        alive = self.cluster.alive()
        if alive:
            self.world.random.choice(alive).stop_for(self.world.random.choice((500.0, 4000.0, 10_000.0, 20_000.0)))

    def _disconnect(self) -> None:
        alive = self.cluster.alive()
        if alive:
            self.world.random.choice(alive).client.drop(
                self.world.random.choice((5.0, 500.0, 5000.0, 9000.0, 25_000.0))
            )

    def _expire(self) -> None:
        alive = self.cluster.alive()
        if alive:
            client = self.world.random.choice(alive).client
            client.expire(client.session)

    def _zookeeper_down(self) -> None:
        server = self.cluster.server
        self.world.note("ZooKeeper goes down")
        server.is_up = False

        def up() -> None:
            self.world.note("ZooKeeper is up again")
            server.is_up = True

        self.world.after(self.world.random.choice((300.0, 5000.0, 15_000.0)), up)
        for process in self.cluster.alive():
            process.client.drop(1.0)

    def _fail_disk(self) -> None:
        alive = self.cluster.alive()
        if alive:
            process = self.world.random.choice(alive)
            held = list(process.replicas.disk.directories)
            if held:
                failed = held[: self.world.random.randint(1, len(held))]
                self.world.note("broker %d loses the directory of %s", process.id, failed)
                process.fail_disk(failed)
