"""Who does a step (kt, or the tools of a Kafka version), on which cluster, and how what is there afterwards is read.

Facts are compared, not words: assignments, leaders, in-sync replicas, overrides, znodes; sets where Kafka keeps no
order. What a version words differently has golden tests of its own.
"""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from kafkatool.core.zookeeper.cluster_view import ClusterView, read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.compat.real_kafka import RealKafka
from tests.integration.load import is_unsure
from tests.waiting import awaited, eventually

WAIT_S: Final = 120
TOOL_TIMEOUT_S: Final = 180
TOPIC_COMMAND: Final = "kafka.admin.TopicCommand"
REASSIGN_COMMAND: Final = "kafka.admin.ReassignPartitionsCommand"
ELECT_COMMAND: Final = "kafka.admin.PreferredReplicaLeaderElectionCommand"
CONFIG_COMMAND: Final = "kafka.admin.ConfigCommand"
VERIFICATION_TOOL: Final = "kafka.tools.ReplicaVerificationTool"
BROKERS: Final = (1, 2, 3)

Facts = dict[str, Any]


class Said(NamedTuple):
    """A tool's exit code, and what it printed: stdout, and stdout with stderr."""

    code: int
    stdout: str
    all: str


class Actor:
    """kt, or the tools of a Kafka version: the same flags, whole processes. Subclasses say how each is started."""

    name: str

    def topics(self, connect: str, action: str, *flags: str) -> Said:
        raise NotImplementedError

    def reassign(self, connect: str, *flags: str) -> Said:
        raise NotImplementedError

    def elect(self, connect: str, *flags: str) -> Said:
        raise NotImplementedError

    def replicas_equal(self, bootstrap: str, topic: str) -> bool:
        raise NotImplementedError


class Kt(Actor):
    """``kt``. ``where``: how it gets to ZooKeeper, if not by ``--zookeeper`` and the address alone."""

    name = "kt"

    def __init__(self, where: Sequence[str] = (), environment: Mapping[str, str] = MappingProxyType({})) -> None:
        self._where = where
        self._environment = {**os.environ, **environment}

    def topics(self, connect: str, action: str, *flags: str) -> Said:
        return self._run("topics", action, *self._zookeeper(connect), *flags)

    def reassign(self, connect: str, *flags: str) -> Said:
        return self._run("reassign", *self._zookeeper(connect), *flags)

    def elect(self, connect: str, *flags: str) -> Said:
        return self._run("elect", *self._zookeeper(connect), *flags)

    def replicas_equal(self, bootstrap: str, topic: str) -> bool:
        flags = ("--broker-list", bootstrap, "--topic-white-list", topic, "--once", "--max-wait-ms", "200")

        def sure() -> Said | None:
            said = self._run("replica-verify", *flags)
            return None if is_unsure(said.stdout) else said

        said = awaited(sure, "all replicas to be verified", WAIT_S)
        return said.code == 0 and "different" not in said.stdout

    def _zookeeper(self, connect: str) -> Sequence[str]:
        return self._where or ("--zookeeper", connect)

    def _run(self, *arguments: str) -> Said:
        return run([sys.executable, "-m", "kafkatool", *arguments], environment=self._environment)


class KafkaTools(Actor):
    """Kafka's own command-line tools of one version, on whatever cluster: each call is a Java process.

    ``kafka``: the cluster by whose login they get in, where one is needed.
    """

    def __init__(self, version: str, directory: Path, kafka: RealKafka | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.name = f"tools of {version}"
        self.version = version
        self._kafka = kafka or RealKafka(version, directory, brokers=0)
        self._archive = directory / "classes.jsa"
        """Of the classes a tool loads: half of a tool's time is its start."""
        listing = self._kafka.command(TOPIC_COMMAND, "--zookeeper", "127.0.0.1:1", "--help")
        run([listing[0], f"-XX:ArchiveClassesAtExit={self._archive}", *listing[1:]])

    def __call__(self, main: str, *arguments: str, stdin: str | None = None) -> Said:
        return run(self.command(main, *arguments), stdin)

    def command(self, main: str, *arguments: str) -> list[str]:
        """Return the command line. A Java that does not take the archive goes on without it, and in silence."""
        java, *options = self._kafka.command(main, *arguments)
        return [java, f"-XX:SharedArchiveFile={self._archive}", "-Xshare:auto", "-Xlog:disable", *options]

    def topics(self, connect: str, action: str, *flags: str) -> Said:
        return self(TOPIC_COMMAND, "--zookeeper", connect, f"--{action}", *flags)

    def reassign(self, connect: str, *flags: str) -> Said:
        return self(REASSIGN_COMMAND, "--zookeeper", connect, *flags)

    def elect(self, connect: str, *flags: str) -> Said:
        return self(ELECT_COMMAND, "--zookeeper", connect, *flags)

    def replicas_equal(self, bootstrap: str, topic: str) -> bool:
        """Tell if they are equal. It never ends by itself: two reports without a difference are its yes."""
        flags = ("--broker-list", bootstrap, "--topic-white-list", topic, "--time", "-2", "--report-interval-ms", "500")
        command = self.command(VERIFICATION_TOOL, *flags)
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        watchdog = threading.Timer(TOOL_TIMEOUT_S, process.kill)
        watchdog.start()
        try:
            assert process.stdout is not None
            reports = 0
            for line in process.stdout:
                if "unmatched checksum" in line or "doesn't match" in line:
                    return False
                reports += "max lag is 0 for partition" in line
                if reports == 2:
                    return True
            return False
        finally:
            watchdog.cancel()
            process.kill()
            process.communicate()


def run(command: Sequence[str], stdin: str | None = None, environment: Mapping[str, str] | None = None) -> Said:
    """Run it to its end; a tool that does not come to one raises subprocess.TimeoutExpired."""
    source = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False, env=environment, **source
    )
    return Said(done.returncode, done.stdout, done.stdout + done.stderr)


@dataclass(frozen=True, slots=True)
class Stage:
    """A cluster of brokers 1 to 3, whoever acts on it, and Kafka's tools that show what is there.

    Topics of an actor begin with ``prefix``, so that all can act on one cluster.
    """

    connect: str
    bootstrap: str
    actor: Actor
    shows: KafkaTools
    directory: Path
    prefix: str
    zk: ZooKeeper
    client: Mapping[str, str] = field(default_factory=dict)
    """What else librdkafka needs to get in."""

    # --- acting -------------------------------------------------------------------------------------------------

    def topics(self, action: str, *flags: str) -> Said:
        return self.actor.topics(self.connect, action, *flags)

    def reassign(self, *flags: str) -> Said:
        return self.actor.reassign(self.connect, *flags)

    def elect(self, *flags: str) -> Said:
        return self.actor.elect(self.connect, *flags)

    def topic(self, name: str) -> str:
        return self.prefix + name

    def make(self, name: str, assignment: str, *configs: str) -> str:
        """Have the actor create the topic; return its name when all replicas are in sync."""
        flags = [flag for config in configs for flag in ("--config", config)]
        said = self.topics("create", "--topic", self.topic(name), "--replica-assignment", assignment, *flags)
        assert said.code == 0, said.all
        self.settle(name)
        return self.topic(name)

    def file(self, name: str, content: object) -> str:
        """Write a JSON file for the actor's tool."""
        path = self.directory / f"{self.prefix}{name}"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    def plan(self, name: str, assignment: Mapping[int, Sequence[int]], topic: str | None = None) -> str:
        """Write a plan file for one topic."""
        rows = [{"topic": self.topic(topic or name), "partition": p, "replicas": r} for p, r in assignment.items()]
        return self.file(f"{name}.json", {"version": 1, "partitions": rows})

    # --- reading ------------------------------------------------------------------------------------------------

    def view(self) -> ClusterView:
        return read_cluster(self.zk)

    def until(self, done: Callable[[ClusterView], bool], title: str) -> None:
        eventually(lambda: done(self.view()), f"{self.actor.name}: {title}", WAIT_S)

    def settle(self, *names: str) -> None:
        """Until nothing is reassigned or elected and every live replica of those topics is in sync."""
        topics = [self.topic(name) for name in names]

        def settled(view: ClusterView) -> bool:
            wanted = {p for t in topics for p in view.partitions() if p.topic == t}
            return (
                view.reassignment is None
                and view.election is None
                and all(
                    p in view.states
                    and set(view.states[p].leader_and_isr.isr)
                    == set(view.topics[p.topic].assignment[p.partition]) & set(view.brokers)
                    for p in wanted
                )
                and {p.topic for p in wanted} == set(topics)
            )

        self.until(settled, f"{', '.join(topics)} in sync")

    def json(self, path: str) -> Any:
        """Return the znode's document; None without one. An override left as "" or {} is as none."""
        node = self.zk.get(path)
        return None if node is None else json.loads(node.data)

    def assignment(self, name: str) -> dict[int, tuple[int, ...]]:
        topic = self.view().topics.get(self.topic(name))
        return {} if topic is None else dict(topic.assignment)

    def leaders(self, name: str) -> list[int | None]:
        view = self.view()
        return [view.states[p].leader_and_isr.leader for p in view.partitions() if p.topic == self.topic(name)]

    def znodes(self, name: str) -> Facts:
        """Return what the topic's own two znodes say, in every version's layout."""
        places = [f"/{root}/topics/{self.topic(name)}" for root in ("config", "brokers")]
        config, topic = map(self.json, places)
        return {
            "znode of the topic": None if topic is None else dict(sorted(topic["partitions"].items())),
            "znode of its overrides": None if config is None else _overrides(config["config"]),
            "version of that znode": None if config is None else config["version"],
            "who may do what": {path: acls for place in places for path, acls in self._rights(place).items()},
        }

    def _rights(self, path: str) -> dict[str, list[str]]:
        """Return the ACLs of a node and of all below it, by path; nothing of one that is gone."""
        found: dict[str, list[str]] = {}
        below = [path]
        while below:
            path = below.pop()
            children = self.zk.children(path)
            if children is not None:
                found[path.replace(self.prefix, "")] = sorted(map(str, self.zk.acls(path)))
                below += [f"{path}/{name}" for name in children]
        return found

    def broker_configs(self) -> Facts:
        """Overrides of the brokers; an empty znode is as none."""
        found = {b: self.json(f"/config/brokers/{b}") for b in BROKERS}
        return {str(b): dict(v["config"]) for b, v in found.items() if v and v["config"]}

    def changes(self) -> set[str]:
        """Names of the nodes under /config/changes."""
        return set(self.zk.children("/config/changes") or ())

    def announced(self, before: set[str]) -> list[str]:
        """Entities announced since, each once, without the actor's prefix."""
        documents = [self.json(f"/config/changes/{name}") for name in self.changes() - before]
        assert all(d["version"] == 2 for d in documents)
        return sorted({d["entity_path"].replace(self.prefix, "") for d in documents})

    def shown(self, *flags: str) -> dict[str, Facts]:
        """Return what TopicCommand shows of the actor's topics: name -> overrides, and a row for each partition."""
        return self.described(self.shows.topics(self.connect, "describe", "--topic", f"{self.prefix}.*", *flags).stdout)

    def described(self, text: str) -> dict[str, Facts]:
        """Return the same of any version's layout, kt's too."""
        topics: dict[str, Facts] = {}
        for line in text.splitlines():
            fields = dict(re.split(r":\s*", part, maxsplit=1) for part in line.strip().split("\t") if ":" in part)
            if "Topic" not in fields:
                continue
            topic = topics.setdefault(fields["Topic"].removeprefix(self.prefix), {})
            if "PartitionCount" in fields:
                overrides = sorted(filter(None, fields["Configs"].split(",")))
                topic["header"] = [fields["PartitionCount"], fields["ReplicationFactor"], overrides]
            if "Partition" in fields:
                isr = sorted(fields["Isr"].split(","))
                topic[fields["Partition"]] = [fields["Leader"], fields["Replicas"], isr]
        return topics


def _overrides(config: Mapping[str, str]) -> Facts:
    """Lists of throttled replicas are sets."""
    return {k: sorted(v.split(",")) if k.endswith("throttled.replicas") else v for k, v in sorted(config.items())}
