"""Who administers our brokers by request: a version's own tools, or a program of that version's AdminClient."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kafkatool.core.model.values import TopicPartition
from tests.compat.java_tools import JavaTools, Said

Moves = Mapping[TopicPartition, Sequence[int]]
TOOLS: Final = {
    "topics": ("kafka.admin.TopicCommand", "org.apache.kafka.tools.TopicCommand"),
    "reassign": ("kafka.admin.ReassignPartitionsCommand", "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"),
    "elect": ("kafka.admin.LeaderElectionCommand", "org.apache.kafka.tools.LeaderElectionCommand"),
    "configs": ("kafka.admin.ConfigCommand", "kafka.admin.ConfigCommand"),
    "groups": ("kafka.admin.ConsumerGroupCommand", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"),
    "log dirs": ("kafka.admin.LogDirsCommand", "org.apache.kafka.tools.LogDirsCommand"),
}
"""Main classes: up to 3.6, and later."""
_MOVE: Final = re.compile(r"(\S+)-(\d+): replicas: ([\d,]+)\.(?: adding: ([\d,]*)\.)?(?: removing: ([\d,]*)\.)?")


def main_class(tool: str, version: str) -> str:
    """Return the main class of one of TOOLS in that version of Kafka."""
    before, later = TOOLS[tool]
    return later if version > "3.7" else before


class Listed(NamedTuple):
    """A partition on the move, as it is listed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Value(NamedTuple):
    """A config as it is told."""

    value: str
    source: str


class Actor:
    """Each method does one thing. A row of the table says which actors play it: those that have its methods."""

    kind: str
    grows_to = True
    """Whether it asks for so many partitions as there are to be, and not for more of them: only then it can be refused."""
    assigns = True
    """Whether it makes a topic with the replicas wanted, and does not move them there later, which leaves their leaders."""

    def __init__(self, version: str, bootstrap: str, directory: Path) -> None:
        self.version = version
        self._bootstrap = bootstrap
        self._directory = directory

    def create(self, topic: str, *replicas: Sequence[int]) -> Said:
        """Without replicas: as the cluster's defaults say."""
        raise NotImplementedError

    def grow(self, topic: str, count: int) -> Said:
        raise NotImplementedError

    def delete(self, topic: str) -> Said:
        raise NotImplementedError

    def described(self, topic: str) -> dict[int, tuple[int, tuple[int, ...], tuple[int, ...]]]:
        """Return partition -> leader, replicas, ISR."""
        raise NotImplementedError

    def change(self, kind: str, name: str, sets: Mapping[str, str], deletes: Sequence[str] = ()) -> Said:
        """Set and delete configs of ``topics`` or ``brokers``; the empty name is that of all brokers."""
        raise NotImplementedError

    def configs(self, kind: str, name: str) -> dict[str, Value]:
        """Return what is not default."""
        raise NotImplementedError

    def move(self, moves: Moves) -> Said:
        raise NotImplementedError

    def replace(self, moves: Moves) -> Said:
        """Move what may be on the move already."""
        raise NotImplementedError

    def cancel(self, moves: Moves) -> Said:
        raise NotImplementedError

    def moving(self) -> dict[TopicPartition, Listed]:
        raise NotImplementedError

    def elect(self, kind: str, partition: TopicPartition) -> Said:
        raise NotImplementedError

    def quota(self, kind: str, name: str, key: str, value: str | None) -> Said:
        """``kind``: users or clients; no name: the default of all."""
        raise NotImplementedError

    def quotas(self, kind: str) -> str:
        raise NotImplementedError

    def forget(self, group: str, partition: TopicPartition) -> Said:
        """Delete what the group has committed of it."""
        raise NotImplementedError

    def logs(self, broker: int, topic: str) -> set[TopicPartition]:
        raise NotImplementedError


class JavaActor(Actor):
    """One that runs in a Java that is there already."""

    def __init__(self, java: JavaTools, bootstrap: str, directory: Path) -> None:
        super().__init__(java.version, bootstrap, directory)
        self._java = java


class Tools(JavaActor):
    """Kafka's command-line tools with ``--bootstrap-server``."""

    kind = "tools"

    def __call__(self, tool: str, *arguments: str) -> Said:
        return self._java(main_class(tool, self.version), "--bootstrap-server", self._bootstrap, *arguments)

    def create(self, topic: str, *replicas: Sequence[int]) -> Said:
        groups = ",".join(":".join(map(str, group)) for group in replicas)
        return self("topics", "--create", "--topic", topic, *(("--replica-assignment", groups) if groups else ()))

    def grow(self, topic: str, count: int) -> Said:
        return self("topics", "--alter", "--topic", topic, "--partitions", str(count))

    def delete(self, topic: str) -> Said:
        return self("topics", "--delete", "--topic", topic)

    def described(self, topic: str) -> dict[int, tuple[int, tuple[int, ...], tuple[int, ...]]]:
        text = self("topics", "--describe", "--topic", topic).text
        rows = re.findall(r"Partition: (\d+)\s+Leader: (\d+)\s+Replicas: ([\d,]+)\s+Isr: ([\d,]+)", text)
        return {int(p): (int(leader), _numbers(replicas), _numbers(isr)) for p, leader, replicas, isr in rows}

    def change(self, kind: str, name: str, sets: Mapping[str, str], deletes: Sequence[str] = ()) -> Said:
        flags = ["--add-config", ",".join(f"{k}=[{v}]" for k, v in sets.items())] if sets else []
        flags += ["--delete-config", ",".join(deletes)] if deletes else []
        return self("configs", "--alter", *_entity(kind, name), *flags)

    def configs(self, kind: str, name: str) -> dict[str, Value]:
        text = self("configs", "--describe", *_entity(kind, name)).text
        rows = re.findall(r"^  (\S+)=(\S*) sensitive=false synonyms=\{(\w+)", text, re.MULTILINE)
        return {key: Value(value, source) for key, value, source in rows}

    def move(self, moves: Moves) -> Said:
        return self.reassign("--execute", moves)

    def replace(self, moves: Moves) -> Said:
        return self.reassign("--execute", moves, "--additional")

    def cancel(self, moves: Moves) -> Said:
        return self.reassign("--cancel", moves, "--preserve-throttles")

    def reassign(self, mode: str, moves: Moves, *flags: str) -> Said:
        plan = self._directory / "plan.json"
        rows = [{"topic": p.topic, "partition": p.partition, "replicas": list(r)} for p, r in moves.items()]
        plan.write_text(json.dumps({"version": 1, "partitions": rows}))
        return self("reassign", mode, "--reassignment-json-file", str(plan), *flags)

    def moving(self) -> dict[TopicPartition, Listed]:
        return _listed(self("reassign", "--list").text)

    def elect(self, kind: str, partition: TopicPartition) -> Said:
        which = ("--topic", partition.topic, "--partition", str(partition.partition))
        return self("elect", "--election-type", kind, *which)

    def quota(self, kind: str, name: str, key: str, value: str | None) -> Said:
        change = ("--delete-config", key) if value is None else ("--add-config", f"{key}={value}")
        return self("configs", "--alter", *_entity(kind, name), *change)

    def quotas(self, kind: str) -> str:
        return self("configs", "--describe", "--entity-type", kind).text

    def forget(self, group: str, partition: TopicPartition) -> Said:
        which = f"{partition.topic}:{partition.partition}"
        return self.groups("--delete-offsets", "--group", group, "--topic", which)

    def groups(self, *arguments: str) -> Said:
        """Run the tool for groups, which waits five seconds unless told."""
        return self("groups", "--timeout", "60000", *arguments)

    def logs(self, broker: int, topic: str) -> set[TopicPartition]:
        text = self("log dirs", "--describe", "--topic-list", topic, "--broker-list", str(broker)).text
        (one,) = json.loads(text.splitlines()[-1])["brokers"]
        names = [p["partition"] for directory in one["logDirs"] for p in directory["partitions"]]
        return {_partition(name) for name in names}


class Caller(Actor):
    """A program of a client library, with a command for each call."""

    def __call__(self, what: str, *words: object) -> Said:
        raise NotImplementedError

    def create(self, topic: str, *replicas: Sequence[int]) -> Said:
        return self("create", topic, *(_text(group) for group in replicas))

    def grow(self, topic: str, count: int) -> Said:
        return self("grow", topic, count)

    def delete(self, topic: str) -> Said:
        return self("delete", topic)

    def described(self, topic: str) -> dict[int, tuple[int, tuple[int, ...], tuple[int, ...]]]:
        rows = [line.split() for line in self("describe", topic).text.splitlines()]
        return {int(p): (int(leader), _numbers(replicas), _numbers(isr)) for p, leader, replicas, isr in rows}

    def change(self, kind: str, name: str, sets: Mapping[str, str], deletes: Sequence[str] = ()) -> Said:
        words = [word for key, value in sets.items() for word in ("SET", key, value)]
        return self("change", _TYPES[kind], name, *words, *(w for key in deletes for w in ("DELETE", key, "")))

    def configs(self, kind: str, name: str) -> dict[str, Value]:
        rows = [line.split(" ", 5) for line in self("configs", _TYPES[kind], name).text.splitlines()]
        return {row[0]: Value(row[5], row[1]) for row in rows if row[1] != "DEFAULT_CONFIG"}

    def move(self, moves: Moves) -> Said:
        return self("move", *(word for p, r in moves.items() for word in (p.topic, p.partition, _text(r))))

    replace = move

    def cancel(self, moves: Moves) -> Said:
        return self("move", *(word for p in moves for word in (p.topic, p.partition, "cancel")))

    def moving(self) -> dict[TopicPartition, Listed]:
        return _listed(self("moves").text)

    def elect(self, kind: str, partition: TopicPartition) -> Said:
        return self("elect", kind.upper(), partition.topic, partition.partition)

    def quota(self, kind: str, name: str, key: str, value: str | None) -> Said:
        return self("quota", _TYPES[kind], name or "default", key, value or "none")

    def quotas(self, kind: str) -> str:
        lines = self("quotas").text.splitlines()
        return "\n".join(line for line in lines if line.startswith(_TYPES[kind]))

    def forget(self, group: str, partition: TopicPartition) -> Said:
        return self("forget", group, partition.topic, partition.partition)

    def logs(self, broker: int, topic: str) -> set[TopicPartition]:
        found = {_partition(line.split()[0]) for line in self("logs", broker).text.splitlines()}
        return {partition for partition in found if partition.topic == topic}


class Client(JavaActor, Caller):
    """A program of Kafka's AdminClient."""

    kind = "AdminClient"

    def __call__(self, what: str, *words: object) -> Said:
        return self._java("AdminCalls", self._bootstrap, what, *map(str, words))


_TYPES: Final = {"topics": "TOPIC", "brokers": "BROKER", "users": "user", "clients": "client-id", "ips": "ip"}


def _entity(kind: str, name: str) -> tuple[str, ...]:
    which = ("--entity-name", name) if name else ("--entity-default",)
    return ("--entity-type", kind, *which)


def _listed(text: str) -> dict[TopicPartition, Listed]:
    return {
        TopicPartition(topic, int(p)): Listed(_numbers(replicas), _numbers(adding), _numbers(removing))
        for topic, p, replicas, adding, removing in _MOVE.findall(text)
    }


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, filter(None, text.split(","))))


def _text(replicas: Sequence[int]) -> str:
    return ",".join(map(str, replicas))


def _partition(name: str) -> TopicPartition:
    topic, _, partition = name.rpartition("-")
    return TopicPartition(topic, int(partition))
