"""What an administrator does to a run's topics while clients are at work: replicas moved, leaders elected, records deleted.

Which topics suffer it, and when, is a function of the seed and of the values that were sent by then.
"""

import random
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from kafkatool.core.errors import KafkatoolError
from kafkatool.core.model import values as model
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import PreferredElectionZnode, ReassignmentZnode, TopicZnode
from tests.faults.world import BROKERS
from tests.histories.clients import facts
from tests.histories.clients.values import PARTITIONS, partition_of, topic_of
from tests.histories.history import INFO, OK
from tests.histories.nemesis import Stage
from tests.histories.workload import Keys, Writer
from tests.waiting import eventually

MOVED: Final = 0.1  # of topics get a reassignment or an election
DELETED: Final = 0.05  # of topics lose their older records
_LOOKS_S: Final = 0.1
_PATIENCE_S: Final = 600  # faults are at work, and some last until another one ends
_TIMEOUT_S: Final = 15.0
LONGEST_S: Final = 2 * (_PATIENCE_S + 60)
"""So long may one chore take: replicas go there and back."""
_FIRST_PROCESS: Final = 900_000  # of who deletes


class Chore(NamedTuple):
    """``kind``: reassign, elect or delete; ``at``: which part of the values one key takes the topic has by then."""

    kind: str
    at: float
    salt: int


def chores_of(seed: int, number: int, *, compacted: bool = False) -> list[Chore]:
    """Draw what a topic suffers, by its number. Kafka deletes no records of compacted topics."""
    chance = random.Random(f"{seed}-topic-{number}")
    kinds = []
    if chance.random() < MOVED:
        kinds.append(chance.choice(("reassign", "elect")))
    if chance.random() < DELETED and not compacted:
        kinds.append("delete")
    return sorted(
        (Chore(kind, chance.uniform(0.1, 0.9), chance.randrange(1 << 32)) for kind in kinds), key=lambda c: c.at
    )


def moves_of(chore: Chore) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Draw where a topic's replicas go: to two of the brokers, and back to all of them, in an order of its own."""
    chance = random.Random(chore.salt)
    return tuple(chance.sample(BROKERS, len(BROKERS) - 1)), tuple(chance.sample(BROKERS, len(BROKERS)))


class Upkeep:
    """Does the chores of a run's topics, one at a time, as they come due. Each begins and ends with a fault's line."""

    def __init__(self, stage: Stage, seed: int, keys: Keys, writer: Writer, *, compacted: bool) -> None:
        self._stage, self._seed, self._keys, self._writer = stage, seed, keys, writer
        self._compacted = compacted
        self._waiting: dict[int, list[Chore]] = {}
        self._process = _FIRST_PROCESS

    def go_on(self, stop: threading.Event) -> None:
        """Do what comes due until told to stop; the one that is begun then is brought to its end."""
        while not stop.wait(_LOOKS_S):
            for number, chore in self.due():
                if stop.is_set():
                    return
                self.do(number, chore)

    def due(self) -> list[tuple[int, Chore]]:
        """Take the chores whose time has come."""
        for number in range(len(self._waiting), max(self._keys.all()) // PARTITIONS + 1):
            self._waiting[number] = chores_of(self._seed, number, compacted=self._compacted)
        found = []
        for number, chores in self._waiting.items():
            sent = sum(map(self._keys.count, _keys_of(number)))
            while chores and sent >= chores[0].at * self._keys.limit:
                found.append((number, chores.pop(0)))
        return found

    def do(self, number: int, chore: Chore) -> None:
        """Do one, however long it takes while faults are at work."""
        topic = topic_of(number * PARTITIONS)
        line = {"step": f"upkeep of {topic}", "faults": [f"{chore.kind} {topic}"]}
        self._writer.write("nemesis", INFO, "fault", {**line, "begins": True})
        if chore.kind == "reassign":
            for replicas in moves_of(chore):
                self._move(topic, replicas)
        elif chore.kind == "elect":
            self._elect(topic)
        else:
            self._delete(_keys_of(number))
        self._writer.write("nemesis", INFO, "fault", {**line, "begins": False})

    def _move(self, topic: str, replicas: tuple[int, ...]) -> None:
        wanted = dict.fromkeys(range(PARTITIONS), replicas)
        plan = ReassignmentZnode.encode({model.TopicPartition(topic, p): replicas for p in wanted})

        def is_there() -> bool:
            with suppress(KafkatoolError):  # ZooKeeper is away, or the one before is not over
                if _is_carried_out(self._stage.zk, ReassignmentZnode.PATH):
                    if _assignment(self._stage.zk, topic) == wanted:
                        return True
                    self._stage.zk.create(ReassignmentZnode.PATH, plan)
            return False

        eventually(is_there, f"{topic} to have its replicas on {replicas}", _PATIENCE_S)

    def _elect(self, topic: str) -> None:
        partitions = [model.TopicPartition(topic, p) for p in range(PARTITIONS)]
        asked = False

        def is_over() -> bool:
            nonlocal asked
            with suppress(KafkatoolError):
                if _is_carried_out(self._stage.zk, PreferredElectionZnode.PATH):
                    if asked:
                        return True
                    self._stage.zk.create(PreferredElectionZnode.PATH, PreferredElectionZnode.encode(partitions))
                    asked = True
            return False

        eventually(is_over, f"the election of {topic}", _PATIENCE_S)

    def _delete(self, keys: Sequence[int]) -> None:
        """Delete the older half of each key. Who gets no answer is over, as it may be done later."""
        told: dict[int, tuple[int, int]] = {}

        def is_told() -> bool:
            with suppress(KafkaException, RuntimeError):
                told.update(facts.ask_ends(self._stage.bootstrap, keys))
            return bool(told)

        eventually(is_told, f"the ends of keys {keys}", _PATIENCE_S)
        offsets = {key: (start + end) // 2 for key, (start, end) in told.items()}
        self._writer.write(self._process, "invoke", "delete", offsets)
        kind = OK if _deleted(self._stage.bootstrap, offsets) else INFO
        over: dict[str, Any] = {} if kind == OK else {"end": True}
        self._writer.write(self._process, kind, "delete", offsets, **over)
        self._process += bool(over)


def _keys_of(number: int) -> range:
    return range(number * PARTITIONS, (number + 1) * PARTITIONS)


def _is_carried_out(zk: ZooKeeper, path: str) -> bool:
    """Tell whether nothing is asked of the controller there, or not any more."""
    return zk.get(path) is None


def _assignment(zk: ZooKeeper, topic: str) -> model.Assignment:
    node = zk.get(TopicZnode.path(topic))
    return {} if node is None else TopicZnode.decode(topic, node.data).assignment


def _deleted(bootstrap: str, offsets: dict[int, int]) -> bool:
    """Delete what lies below; tell whether all was answered."""
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    asked = [TopicPartition(topic_of(key), partition_of(key), offset) for key, offset in offsets.items()]
    try:
        answers = client.delete_records(asked, request_timeout=_TIMEOUT_S, operation_timeout=_TIMEOUT_S)
        return all(future.result().low_watermark >= 0 for future in answers.values())
    except KafkaException:
        return False
