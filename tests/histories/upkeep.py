"""What an administrator does to a run's topics while clients are at work: moves, elections, deletions and the like.

Which topics suffer it, and when, is a function of the seed and of the values that were sent by then.
"""

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from kafkatool.core.errors import KafkatoolError
from kafkatool.core.model import values as model
from kafkatool.core.operations.topics import configs, growth
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import PartitionStateZnode, PreferredElectionZnode, ReassignmentZnode, TopicZnode
from tests.histories.chores import Chore, chores_of, moves_of
from tests.histories.clients import facts
from tests.histories.clients.values import PARTITIONS, partition_of, topic_of
from tests.histories.history import INFO, OK
from tests.histories.nemesis import Stage
from tests.histories.workload import Keys, Writer
from tests.waiting import eventually

FORCING: Final[Mapping[str, str]] = MappingProxyType({"segment.ms": "500", "max.compaction.lag.ms": "1000"})
"""With these nothing that is appended stays long in the segment that is not compacted, or waits for more to be."""
_LOOKS_S: Final = 0.1
_PATIENCE_S: Final = 600  # faults are at work, and some last until another one ends
_TIMEOUT_S: Final = 15.0
LONGEST_S: Final = 2 * (_PATIENCE_S + 60)
"""So long may one chore take: replicas go there and back."""
_FIRST_PROCESS: Final = 900_000  # of who deletes
_FORCED_S: Final = 3.0
_REST_S: Final = 0.2


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
        match chore.kind:
            case "reassign":
                for replicas in moves_of(chore):
                    self._move(topic, replicas)
            case "elect":
                self._elect(topic)
            case "delete":
                self._delete(_keys_of(number))
            case "add partitions":
                self._grow(topic)
            case "force compaction":
                self._compact(topic)
            case "delete group":
                self._delete_group(f"short-lived-{number}", _keys_of(number))
        self._writer.write("nemesis", INFO, "fault", {**line, "begins": False})

    def _move(self, topic: str, replicas: tuple[int, ...]) -> None:
        wanted = dict.fromkeys(range(PARTITIONS), replicas)  # of keys: others may have been added
        plan = ReassignmentZnode.encode({model.TopicPartition(topic, p): replicas for p in wanted})

        def is_there() -> bool:
            with suppress(KafkatoolError):  # ZooKeeper is away, or the one before is not over
                if _is_carried_out(self._stage.zk, ReassignmentZnode.PATH):
                    if _assignment(self._stage.zk, topic).items() >= wanted.items():
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
        kind = OK if delete_below(self._stage.bootstrap, offsets) else INFO
        over: dict[str, Any] = {} if kind == OK else {"end": True}
        self._writer.write(self._process, kind, "delete", offsets, **over)
        self._process += bool(over)

    def _grow(self, topic: str) -> None:
        """Add a partition. Nobody sends to it: who sends says which partition a key is."""
        state = PartitionStateZnode.path(model.TopicPartition(topic, PARTITIONS))

        def is_led() -> bool:
            with suppress(KafkatoolError):  # ZooKeeper, or a broker that it needs, is away
                if len(_assignment(self._stage.zk, topic)) == PARTITIONS:
                    growth.grow(self._stage.zk, topic, PARTITIONS + 1)
                return self._stage.zk.get(state) is not None
            return False

        eventually(is_led, f"{topic} to have another partition", _PATIENCE_S)

    def _compact(self, topic: str) -> None:
        """Have the topic compacted up to what is sent just now, as one does who alters its configs for a while."""
        self._configure(topic, FORCING)
        pass_time(_FORCED_S)
        self._configure(topic, {}, FORCING.keys())

    def _configure(self, topic: str, changed: Mapping[str, str], removed: Collection[str] = ()) -> None:
        def is_done() -> bool:
            with suppress(KafkatoolError):
                configs.change_configs(self._stage.zk, topic, changed, removed)
                return True
            return False

        eventually(is_done, f"{topic} to be configured", _PATIENCE_S)

    def _delete_group(self, group: str, keys: Sequence[int]) -> None:
        """Commit for a group that nobody is in, and delete it with its offsets: as when they expire.

        That they really do, no run is long enough for: a coordinator trusts its clock after an hour (docs/histories.md).
        """
        is_made = False

        def is_gone() -> bool:
            nonlocal is_made
            with suppress(KafkaException, RuntimeError):
                is_made = is_made or _committed(self._stage.bootstrap, group, keys)
                if is_made:
                    forget_group(self._stage.bootstrap, group)
                    told = facts.ask_committed(self._stage.bootstrap, group, keys)
                    if all(offset is None for offset in told.values()):
                        return True
            time.sleep(_REST_S)  # to ask costs brokers something
            return False

        eventually(is_gone, f"the offsets of {group} to be gone", _PATIENCE_S)


def pass_time(seconds: float) -> None:
    over = time.monotonic() + seconds
    eventually(lambda: time.monotonic() > over, "time to pass", seconds + 60)


def _keys_of(number: int) -> range:
    return range(number * PARTITIONS, (number + 1) * PARTITIONS)


def _is_carried_out(zk: ZooKeeper, path: str) -> bool:
    """Tell whether nothing is asked of the controller there, or not any more."""
    return zk.get(path) is None


def _assignment(zk: ZooKeeper, topic: str) -> model.Assignment:
    node = zk.get(TopicZnode.path(topic))
    return {} if node is None else TopicZnode.decode(topic, node.data).assignment


def _admin(bootstrap: str) -> AdminClient:
    """Return a client to be kept until it has answered: with it its answers are gone."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def _committed(bootstrap: str, group: str, keys: Sequence[int]) -> bool:
    """Commit something of each key for a group without members; tell whether all was taken. Raises KafkaException."""
    offsets = [TopicPartition(topic_of(key), partition_of(key), 1) for key in keys]
    client, asked = _admin(bootstrap), ConsumerGroupTopicPartitions(group, offsets)
    told = client.alter_consumer_group_offsets([asked], request_timeout=_TIMEOUT_S)[group].result()
    return all(p.error is None for p in told.topic_partitions)


def forget_group(bootstrap: str, group: str) -> None:
    """Delete a group, if it is there still: an attempt before may have done it."""
    client = _admin(bootstrap)
    with suppress(KafkaException):
        client.delete_consumer_groups([group], request_timeout=_TIMEOUT_S)[group].result()


def delete_below(bootstrap: str, offsets: dict[int, int]) -> bool:
    """Delete what lies below; tell whether all was answered."""
    client = _admin(bootstrap)
    asked = [TopicPartition(topic_of(key), partition_of(key), offset) for key, offset in offsets.items()]
    try:
        answers = client.delete_records(asked, request_timeout=_TIMEOUT_S, operation_timeout=_TIMEOUT_S)
        return all(future.result().low_watermark >= 0 for future in answers.values())
    except KafkaException:
        return False
