"""Server, brokers, their disks, and what the operator does to them, whatever brokers do beside obeying their controller."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from kafkatool.broker.controller.events import Event
from kafkatool.broker.controller.moves import MoveOutcome
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.zookeeper.session import Create, Delete, SetData
from kafkatool.core.zookeeper.znodes import (
    PERSISTENT_PATHS,
    BrokersZnode,
    ConfigZnode,
    ControllerZnode,
    DeleteTopicsZnode,
    PreferredElectionZnode,
    ReassignmentZnode,
    TopicsZnode,
    TopicZnode,
)
from tests.simulation.invariants import Invariants
from tests.simulation.life import Life
from tests.simulation.replicas import Disk
from tests.simulation.server import OPERATOR, Server
from tests.simulation.world import World

L = TypeVar("L", bound=Life)

DEFAULTS = {
    "delete.topic.enable": "true",
    "unclean.leader.election.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "inter.broker.protocol.version": "2.3",
}


class Refusals(logging.Handler):
    """The controllers' ERROR lines that tell an operator why a request is not carried out."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self.reassignments: dict[TopicPartition, float] = {}  # refused last when
        self.on_denied: Callable[[TopicPartition], None] = lambda _: None

    def emit(self, record: logging.LogRecord) -> None:
        if self._world.trace is not None:
            self._world.note("%s %s%s", record.levelname, record.getMessage(),
                             f": {record.exc_info[1]!r}" if record.exc_info else "")  # fmt: skip
        if record.levelno >= logging.ERROR and isinstance(record.args, tuple) and record.args:
            partition = record.args[0]
            if record.msg.startswith("reassignment of partition") and isinstance(partition, TopicPartition):
                self.reassignments[partition] = self._world.now
                if record.args[1] == "there is no such partition":
                    self.on_denied(partition)


class Realm(Generic[L]):
    """``processes`` holds the latest life of each broker, dead or alive."""

    def __init__(self, world: World, broker_ids: Sequence[int], properties: Mapping[str, str] = {}) -> None:
        self.world = world
        self.server = Server(world)
        self.properties = {**DEFAULTS, **properties}
        self.invariants = Invariants(world, self.server)
        self.after_send: Callable[[L], None] = lambda _: None
        self.disks: dict[int, Disk] = {b: Disk() for b in broker_ids}
        self.invariants.disks = self.disks
        self.processes: dict[int, L] = {}
        self.invariants.processes = self.processes
        self.refusals = Refusals(world)
        self.refusals.on_denied = self._denied
        self._asked: dict[TopicPartition, int] = {}  # partitions that existed when they were to be reassigned -> zxid
        self.reassignments: dict[TopicPartition, tuple[float, tuple[int, ...]]] = {}  # asked for last
        self.unanswered: Counter[TopicPartition] = Counter()  # moves asked for of which it is not known what became
        for path in PERSISTENT_PATHS:
            parent = ""
            for name in path.split("/")[1:]:
                parent += f"/{name}"
                if parent not in self.server.nodes:
                    self.server.write(Create(parent), OPERATOR)

    # --- brokers --------------------------------------------------------------------------------------------------

    def start(self, broker: int) -> None:
        """Start the broker if it does not run."""
        running = self.processes.get(broker)
        if running is None or not running.alive:
            self.world.note("broker %d starts", broker)
            self.processes[broker] = self.begin_life(broker)

    def begin_life(self, broker: int) -> L:
        """Make the process of a broker that starts."""
        raise NotImplementedError

    def orders(self, controller: int, broker: int) -> bool:
        """Tell whether what a controller says reaches the broker."""
        return True

    def answers(self, broker: int, controller: int) -> bool:
        """Tell whether what the broker answers reaches the controller."""
        return True

    def alive(self) -> list[L]:
        return [p for p in self.processes.values() if p.alive]

    def controller_id(self) -> int | None:
        node = self.server.nodes.get(ControllerZnode.PATH)
        return ControllerZnode.decode(node.data) if node else None

    def controller(self) -> L | None:
        """Return the process that ``/controller`` names, if it runs."""
        process = self.processes.get(self.controller_id() or -1)
        return process if process is not None and process.alive else None

    def registered(self) -> list[int]:
        return sorted(int(n) for n in self.server.children(BrokersZnode.PATH))

    # --- the operator ---------------------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        return sorted(self.server.children(TopicsZnode.PATH))

    def is_marked(self, topic: str) -> bool:
        return DeleteTopicsZnode.topic_path(topic) in self.server.nodes

    def create_topic(self, topic: str, assignment: Mapping[int, Sequence[int]], *, unclean: bool = False) -> None:
        config = {"unclean.leader.election.enable": "true"} if unclean else {}
        if TopicZnode.path(topic) in self.server.nodes:
            return
        path = ConfigZnode.path("topics", topic)
        if path in self.server.nodes:
            self.server.write(Delete(path), OPERATOR)
        data = TopicZnode({p: tuple(r) for p, r in assignment.items()}).encode()
        self.server.commit(
            [Create(path, ConfigZnode.encode(config)), Create(TopicZnode.path(topic), data)],
            OPERATOR,
        )
        self.reassignments = {p: asked for p, asked in self.reassignments.items() if p.topic != topic}

    def add_partitions(self, topic: str, replicas: Sequence[int], count: int) -> None:
        node = self.server.nodes[TopicZnode.path(topic)]
        old = TopicZnode.decode(topic, node.data)
        new = {**old.assignment, **{len(old.assignment) + n: tuple(replicas) for n in range(count)}}
        self.server.write(SetData(TopicZnode.path(topic), old.with_assignment(new).encode(), node.version), OPERATOR)

    def delete_topic(self, topic: str) -> None:
        if not self.is_marked(topic):
            self.server.write(Create(DeleteTopicsZnode.topic_path(topic)), OPERATOR)

    def reassign(self, plan: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Ask for a reassignment, unless one is under way."""
        if ReassignmentZnode.PATH not in self.server.nodes and plan:
            wanted = {p: tuple(r) for p, r in plan.items()}
            self.server.write(Create(ReassignmentZnode.PATH, ReassignmentZnode.encode(wanted)), OPERATOR)
            self.reassignments.update({p: (self.world.now, r) for p, r in wanted.items()})
            self._asked.update(dict.fromkeys(set(wanted) & set(self.partitions()), self.server.zxid))

    def ask_to_move(self, wanted: Mapping[TopicPartition, tuple[int, ...] | None]) -> None:
        """Ask the controller to move partitions, None: to take the move back. It may die before it answers."""
        process = self.controller()
        if process is None:
            return
        for partition, target in wanted.items():
            self.invariants.asked.setdefault(partition, set()).add(target)
        asked_at = self.world.now
        for partition in wanted:  # until it is answered nobody knows which of both is to be
            self.reassignments.pop(partition, None)
            self.unanswered[partition] += 1

        def answered(outcomes: Mapping[TopicPartition, MoveOutcome] | None) -> None:
            for partition, outcome in (outcomes or {}).items():
                self.world.note("answer: %s %s", partition, outcome)
                self.unanswered[partition] -= 1
                if outcome.error is not ErrorCode.NONE:
                    continue
                if (
                    self.reassignments.get(partition, (0.0,))[0] > asked_at
                ):  # by the node, before or after this was stored
                    self.unanswered[partition] += 1
                elif (target := wanted[partition]) is None:  # where that is, the invariants know
                    self.reassignments.pop(partition, None)
                else:
                    self.reassignments[partition] = (asked_at, target)

        def serve() -> None:
            term = process.worker.term
            answered(term.requested_moves.alter(wanted, may_change_factor=True) if term else None)

        process.worker.queue.put(Event("requested moves", serve))

    def _denied(self, partition: TopicPartition) -> None:
        """Check what a controller says does not exist: it must have gone since it was asked for."""
        node = self.server.nodes.get(TopicZnode.path(partition.topic))
        if node is not None and node.czxid <= self._asked.get(partition, -1):
            self.world.fail(f"reassignment of {partition} is refused, as if it did not exist")

    def elect_preferred(self, partitions: Sequence[TopicPartition]) -> None:
        if PreferredElectionZnode.PATH not in self.server.nodes:
            data = PreferredElectionZnode.encode(partitions)
            self.server.write(Create(PreferredElectionZnode.PATH, data), OPERATOR)

    def delete_controller(self) -> None:
        if ControllerZnode.PATH in self.server.nodes:
            self.server.write(Delete(ControllerZnode.PATH), OPERATOR)

    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(t, n) for t in self.topics() for n in sorted(self.invariants.assignment(t))]
