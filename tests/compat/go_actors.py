"""Who administers our brokers by request with programs in Go: kafka-go's Client, and kcl, kafkactl and topicctl."""

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kafkatool.core.model.values import TopicPartition
from tests.compat.admin_actors import Actor, Caller, Moves, Value
from tests.compat.go_programs import executable, version_of
from tests.compat.java_tools import TOOL_TIMEOUT_S, Said
from tests.waiting import eventually

Described = dict[int, tuple[int, tuple[int, ...], tuple[int, ...]]]
_QUOTAS: Final = {"users": "user", "clients": "client-id", "ips": "ip"}


class GoActor(Actor):
    """One that is a program, run anew for each thing. Raises MissingError where it cannot be built here."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        super().__init__(version_of(self.kind), bootstrap, directory)
        self._program = str(executable(self.kind))

    def run(self, *words: str, stdin: str = "") -> Said:
        done = subprocess.run(
            [self._program, *words],
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TOOL_TIMEOUT_S,
            check=False,
            cwd=self._directory,
            env={**os.environ, "HOME": str(self._directory)},  # they keep their state there
        )
        return Said(done.returncode, done.stdout)


class KafkaGo(GoActor, Caller):
    """The program of clients/kafka_go, whose Client takes the highest versions that both sides know."""

    kind = "kafka-go"

    def __call__(self, what: str, *words: object) -> Said:
        return self.run(self._bootstrap, what, *map(str, words))


class Kcl(GoActor):
    """kcl, on franz-go."""

    kind = "kcl"
    grows_to = False

    def __call__(self, *words: str) -> Said:
        """Run it; of some refusals it tells, and ends with 0."""
        said = self.run("--no-config-file", "--bootstrap-servers", self._bootstrap, *words)
        failed = re.search(r"\b[A-Z]+(_[A-Z]+)+: |^\S+ +[1-9]\d* +(?!OK\b)\S", said.text, re.MULTILINE)
        return Said(1, said.text) if failed else said

    def _table(self, *words: str) -> list[dict[str, Any]]:
        said = self.run("--no-config-file", "--bootstrap-servers", self._bootstrap, "--format", "json", *words)
        found = json.loads(said.text)
        rows: list[dict[str, Any]] = next(v for v in found.values() if isinstance(v, list))
        return rows

    def create(self, topic: str, *replicas: Sequence[int]) -> Said:
        groups = ",".join(":".join(map(str, group)) for group in replicas)
        return self("topic", "create", topic, *(("--replica-assignment", groups) if groups else ()))

    def grow(self, topic: str, count: int) -> Said:
        more = count - len(self.described(topic))
        return self("topic", "add-partitions", "-t", topic, " : ".join(["1,2"] * more))

    def delete(self, topic: str) -> Said:
        return self("topic", "delete", topic)

    def described(self, topic: str) -> Described:
        (found,) = self._table("topic", "describe", topic)
        return {p["partition"]: (p["leader"], tuple(p["replicas"]), tuple(p["isr"])) for p in found["partitions"]}

    def change(self, kind: str, name: str, sets: Mapping[str, str], deletes: Sequence[str] = ()) -> Said:
        changes = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
        changes += [word for key in deletes for word in ("--delete", key)]
        return self("config", "alter", "--type", kind[:-1], "--inc", *changes, *filter(None, [name]))

    def configs(self, kind: str, name: str) -> dict[str, Value]:
        rows = self._table("config", "describe", "--type", kind[:-1], *filter(None, [name]))
        told = {row["key"].rstrip("*"): Value(row["value"], row["source"]) for row in rows}
        return {key: value for key, value in told.items() if value.source != "DEFAULT_CONFIG"}

    def move(self, moves: Moves) -> Said:
        (topic,) = {p.topic for p in moves}  # of a topic named twice it takes the last
        return self(
            "reassign", "alter", f"{topic}:{';'.join(f'{p.partition}->{_text(to)}' for p, to in moves.items())}"
        )

    def elect(self, kind: str, partition: TopicPartition) -> Said:
        return self("cluster", "elect-leaders", "--all-partitions")

    def quota(self, kind: str, name: str, key: str, value: str | None) -> Said:
        whose = ("--name", f"{_QUOTAS[kind]}={name}") if name else ("--default", _QUOTAS[kind])
        change = ("--delete", key) if value is None else ("--add", f"{key}={value}")
        return self("quota", "alter", *whose, *change)

    def quotas(self, kind: str) -> str:
        rows = self._table("quota", "describe", "--any", _QUOTAS[kind])
        return "\n".join(f"{row['key']}={float(row['value'])}" for row in rows)

    def forget(self, group: str, partition: TopicPartition) -> Said:
        return self("group", "offset-delete", group, "-t", f"{partition.topic}:{partition.partition}")

    def logs(self, broker: int, topic: str) -> set[TopicPartition]:
        rows = self._table("logdirs", "describe", topic)  # of a topic it tells all brokers', whichever is named
        return {TopicPartition(row["topic"], row["partition"]) for row in rows if row["broker"] == broker}


class Kafkactl(GoActor):
    """kafkactl, on sarama: told that brokers are of 4.1, it speaks what they announce."""

    kind = "kafkactl"
    assigns = False

    def __call__(self, *words: str) -> Said:
        config = self._directory / "kafkactl.yml"
        brokers = "".join(f"      - {address}\n" for address in self._bootstrap.split(","))
        config.write_text(f"contexts:\n  default:\n    kafkaVersion: 4.1.0\n    brokers:\n{brokers}")
        return self.run("--config-file", str(config), *words)

    def _told(self, *words: str) -> dict[str, Any]:
        text = self(*words, "--output", "json").text
        found: dict[str, Any] = json.loads(text[text.index("{") :])
        return found

    def create(self, topic: str, *replicas: Sequence[int]) -> Said:
        """Create it, and move each partition: it has no flag for an assignment."""
        factor = {len(group) for group in replicas}.pop()
        said = self("create", "topic", topic, "--partitions", str(len(replicas)), "--replication-factor", str(factor))
        wanted = dict(enumerate(map(tuple, replicas)))
        for partition, group in wanted.items():
            if said.code == 0:
                eventually(lambda: len(self.described(topic)) == len(replicas), f"{topic} to be told")
                said = self.move({TopicPartition(topic, partition): group})
        if said.code == 0:
            eventually(lambda: {p: d[1] for p, d in self.described(topic).items()} == wanted, f"{topic} to be there")
        return said

    def grow(self, topic: str, count: int) -> Said:
        return self("alter", "topic", topic, "--partitions", str(count))

    def delete(self, topic: str) -> Said:
        return self("delete", "topic", topic)

    def described(self, topic: str) -> Described:
        numbers = {address: number for number, address in enumerate(self._bootstrap.split(","), 1)}
        return {
            p["ID"]: (
                numbers.get(p.get("Leader"), -1),
                tuple(p.get("Replicas", ())),
                tuple(p.get("inSyncReplicas", ())),
            )
            for p in self._told("describe", "topic", topic)["Partitions"]
        }

    def change(self, kind: str, name: str, sets: Mapping[str, str], deletes: Sequence[str] = ()) -> Said:
        changes = [f"{key}={value}" for key, value in sets.items()] + [f"{key}=" for key in deletes]
        return self("alter", kind[:-1], name, *(word for change in changes for word in ("--config", change)))

    def configs(self, kind: str, name: str) -> dict[str, Value]:
        return {c["Name"]: Value(c["Value"], "") for c in self._told("describe", kind[:-1], name)["Configs"]}

    def move(self, moves: Moves) -> Said:
        said = Said(0, "")
        for p, to in moves.items():
            if said.code == 0:
                said = self("alter", "partition", p.topic, str(p.partition), "--replicas", _text(to))
        return said


class Topicctl(GoActor):
    """topicctl, on kafka-go: it makes a topic as a file says, moves its partitions and elects their leaders."""

    kind = "topicctl"
    grows_to = assigns = False

    def _apply(self, topic: str, replicas: Sequence[Sequence[int]], settings: Mapping[str, str]) -> Said:
        cluster, wanted = self._directory / "cluster.yaml", self._directory / f"{topic}.yaml"
        where = {"environment": "test", "region": "here"}
        address = self._bootstrap.split(",")[0]
        cluster.write_text(json.dumps({"meta": {"name": "ours", **where}, "spec": {"bootstrapAddrs": [address]}}))
        spec = {
            "partitions": len(replicas),
            "replicationFactor": len(replicas[0]),
            "placement": {"strategy": "static", "staticAssignments": [list(group) for group in replicas]},
            "settings": dict(settings),
        }
        wanted.write_text(json.dumps({"meta": {"name": topic, "cluster": "ours", **where}, "spec": spec}))
        flags = ("--no-spinner", "--skip-confirm", "--sleep-loop-duration", "1s")
        return self.run("apply", *flags, "--cluster-config", str(cluster), str(wanted))

    def create(self, topic: str, *replicas: Sequence[int]) -> Said:
        return self._apply(topic, replicas, {})

    def grow(self, topic: str, count: int) -> Said:
        found = self.described(topic)
        return self._apply(topic, [*(found[p][1] for p in sorted(found)), *[(1, 2)] * (count - len(found))], {})

    def delete(self, topic: str) -> Said:
        return self.run("delete", "topic", topic, "--broker-addr", self._bootstrap.split(",")[0], stdin="yes\nyes\n")

    def described(self, topic: str) -> Described:
        text = self.run("get", "partitions", topic, "--broker-addr", self._bootstrap.split(",")[0]).text
        rows = re.findall(r"\| (\d+) +\| (\d+) +\| \[([\d ]+)\] +\| \[([\d ]+)\] +\|", text)
        return {int(p): (int(leader), _numbers(replicas), _numbers(isr)) for p, leader, isr, replicas in rows}

    def change(self, kind: str, name: str, sets: Mapping[str, str], deletes: Sequence[str] = ()) -> Said:
        found = self.described(name)
        return self._apply(name, [found[p][1] for p in sorted(found)], sets)

    def configs(self, kind: str, name: str) -> dict[str, Value]:
        text = self.run("get", "config", name, "--broker-addr", self._bootstrap.split(",")[0]).text
        return {key: Value(value, "") for key, value in re.findall(r"^  (\S+) +\| (\S+) +$", text, re.MULTILINE)}

    def move(self, moves: Moves) -> Said:
        (topic,) = {p.topic for p in moves}
        now = {p: replicas for p, (_, replicas, _) in self.described(topic).items()}
        now |= {p.partition: tuple(to) for p, to in moves.items()}
        return self._apply(topic, [now[p] for p in sorted(now)], {})


def _text(replicas: Sequence[int]) -> str:
    return ",".join(map(str, replicas))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))
