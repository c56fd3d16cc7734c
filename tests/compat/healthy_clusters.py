"""Clusters that are well, each in another way: what `kt health` and `kt migrate check` must not take for trouble.

Whether one is well is told by librdkafka's metadata, which is none of kt's: every partition in sync, and led by the first of
its replicas.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from click.testing import CliRunner, Result
from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.commands.main import kt
from tests.access import OPEN, Access
from tests.compat.migrating_kafka import MigratingKafka
from tests.compat.real_kafka import KraftKafka, RealKafka
from tests.compat.secured_kafka import SecuredKafka
from tests.integration.load import Load
from tests.steady import LASTING, LASTING_KRAFT
from tests.waiting import eventually

WAIT_S: Final = 240
PASSING: Final = "passing-"
"""What topics are called that are made and deleted all the time: they may have no leader yet."""
STILL: Final = {"replica.fetch.max.bytes": "10000"}
"""So that a throttled replica gets no further than one fetch."""


@dataclass(slots=True)
class Cluster:
    """One that runs. ``zookeeper`` None: there is none. ``moving``: a topic that is being moved, and so not in sync."""

    bootstrap: str
    zookeeper: str | None
    directory: Path
    kafka: RealKafka | None = None
    librdkafka: Mapping[str, str] = field(default_factory=dict)
    by_request: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    moving: frozenset[str] = frozenset()
    _admin: AdminClient | None = None

    @property
    def ways(self) -> dict[str, list[str]]:
        """Return what kt reaches it by."""
        found = {"--bootstrap-server": ["--bootstrap-server", self.bootstrap, *self.by_request]}
        if self.zookeeper is not None:
            found["--zookeeper"] = ["--zookeeper", self.zookeeper, *self.by_request]
        return found

    def kt(self, *words: str) -> Result:
        return CliRunner(env=dict(self.environment)).invoke(kt, words)

    def done(self, command: str, *words: str) -> None:
        """Run a command of kt by the first way that does it, which it must."""
        way = self.ways.get("--zookeeper") or self.ways["--bootstrap-server"]
        result = self.kt(*command.split(), *words, *way)
        assert result.exit_code == 0, f"{command}: {result.output}"

    @property
    def admin(self) -> AdminClient:
        """Return librdkafka's; it is kept, for one that nobody holds ends with its requests under way."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, **self.librdkafka})
        return self._admin

    def topic(self, name: str, partitions: int, factor: int, **configs: str) -> None:
        """Make it, as clients do; underscores stand for the dots of configs."""
        new = NewTopic(name, partitions, factor, config={k.replace("_", "."): v for k, v in configs.items()})
        self.admin.create_topics([new], operation_timeout=60)[name].result(WAIT_S)

    def is_well(self) -> bool:
        try:
            topics = self.admin.list_topics(timeout=60).topics
        except KafkaException:  # it stands still
            return False
        looked_at = [t for name, t in topics.items() if name not in self.moving and not name.startswith(PASSING)]
        partitions = [p for topic in looked_at for p in topic.partitions.values()]
        return bool(partitions) and all(
            p.leader == p.replicas[0] and set(p.isrs) == set(p.replicas) for p in partitions
        )


Running = Callable[[Path], contextlib.AbstractContextManager[Cluster]]
Living = Callable[[Cluster], contextlib.AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Healthy:
    """A cluster that is well. ``life``: what was done on it before, and goes on.

    ``to_do``: what does stand in the way of a migration: it is too old, or moves right now; ``may``: what may, from time to
    time. ``ill``: checks of the health that say rightly what has just been done. ``versions``: real ones needed.
    """

    name: str
    start: Running
    life: Living
    to_do: frozenset[str] = frozenset()
    may: frozenset[str] = frozenset()
    ill: frozenset[str] = frozenset()
    versions: tuple[str, ...] = ()


# --- how they are started -----------------------------------------------------------------------------------------


def real(version: str, brokers: int = 2, *, log_dirs: int = 1, racks: bool = False, **options: str) -> Running:
    @contextmanager
    def start(directory: Path) -> Iterator[Cluster]:
        given = {**LASTING, "delete.topic.enable": "true", **{k.replace("_", "."): v for k, v in options.items()}}
        with _Real(version, directory / "kafka", brokers, given, log_dirs, racks) as kafka:
            yield Cluster(kafka.bootstrap, kafka.connect, directory, kafka)

    return start


class _Real(RealKafka):
    """With several log directories on each broker, or a rack for each."""

    def __init__(
        self, version: str, directory: Path, brokers: int, options: Mapping[str, str], log_dirs: int, racks: bool
    ) -> None:
        super().__init__(version, directory, brokers=brokers, options=options)
        self._log_dirs, self._racks = log_dirs, racks

    def _broker_options(self, broker: int) -> Mapping[str, object]:
        rack = {"broker.rack": f"rack-{broker}"} if self._racks else {}
        several = [str(self.data_directory(broker) / str(number)) for number in range(self._log_dirs)]
        dirs = {"log.dirs": ",".join(several)} if self._log_dirs > 1 else {}
        return {**super()._broker_options(broker), **rack, **dirs}


def secured(version: str) -> Running:
    @contextmanager
    def start(directory: Path) -> Iterator[Cluster]:
        with SecuredKafka(
            version, directory / "kafka", options={**LASTING, "offsets.topic.replication.factor": "2"}
        ) as kafka:
            login = str(kafka.files / "admin-plain.properties")
            yield Cluster(
                kafka.bootstrap,
                kafka.connect,
                directory,
                kafka,
                librdkafka=kafka.access.librdkafka,
                by_request=("--command-config", login),
                environment={"KAFKA_OPTS": kafka.java_options},
            )

    return start


def kraft(version: str, brokers: int = 3, **options: str) -> Running:
    @contextmanager
    def start(directory: Path) -> Iterator[Cluster]:
        given = {**LASTING_KRAFT, **{k.replace("_", "."): v for k, v in options.items()}}
        with KraftKafka(version, directory / "kafka", brokers=brokers, options=given) as kafka:
            yield Cluster(kafka.bootstrap, None, directory, kafka)

    return start


def migrating() -> Running:
    """Both brokers are known to a KRaft controller, and still of ZooKeeper."""

    @contextmanager
    def start(directory: Path) -> Iterator[Cluster]:
        with MigratingKafka(directory / "kafka") as kafka:
            cluster = Cluster(kafka.bootstrap, kafka.connect, directory, kafka)
            kafka.start_controller()
            for broker in (1, 2):
                kafka.restart(broker, "migrating")
            yield cluster

    return start


def ours(security: str = "plaintext", brokers: int = 3) -> Running:
    @contextmanager
    def start(directory: Path) -> Iterator[Cluster]:
        options = {**LASTING, "delete.topic.enable": "true", **STILL}
        with EmbeddedCluster(brokers, directory=directory / "ours", options=options, security=security) as cluster:
            found = Cluster(cluster.bootstrap, cluster.zookeeper, directory)
            if security != "plaintext":
                client = cluster.client("confluent")
                found.librdkafka = {k: v for k, v in client.items() if k != "bootstrap.servers"}
                found.by_request = ("--command-config", str(cluster.client("java")))
                found.environment = cluster.security.environment
            yield found

    return start


# --- what was done on them, and goes on ---------------------------------------------------------------------------


def lives(*parts: Living) -> Living:
    @contextmanager
    def live(cluster: Cluster) -> Iterator[None]:
        with ExitStack() as stack:
            for part in parts:
                stack.enter_context(part(cluster))
            yield

    return live


def has(partitions: int, factor: int, **configs: str) -> Living:
    """Give it a topic, so many partitions."""

    @contextmanager
    def live(cluster: Cluster) -> Iterator[None]:
        cluster.topic(f"t-{partitions}-{factor}", partitions, factor, **configs)
        yield

    return live


@contextmanager
def is_written_and_read(cluster: Cluster) -> Iterator[None]:
    """A producer, idempotent where brokers know that, and a member of a group, all the time."""
    cluster.topic("in-use", 3, 2)
    access = Access(librdkafka=cluster.librdkafka) if cluster.librdkafka else OPEN
    eventually(cluster.is_well, "the topic in sync", WAIT_S)
    load = Load(cluster.bootstrap, "in-use", records_per_step=2, access=access)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "log_level": 0,
            **cluster.librdkafka,
        }
    )
    consumer.subscribe(["in-use"])
    try:
        eventually(lambda: consumer.poll(1) is not None, "a record", WAIT_S)
        yield
    finally:
        consumer.close()
        load.stop()


def _plan(cluster: Cluster, topic: str, *replicas: Sequence[int]) -> str:
    rows = [{"topic": topic, "partition": p, "replicas": list(r)} for p, r in enumerate(replicas)]
    path = cluster.directory / f"{topic}.json"
    path.write_text(json.dumps({"version": 1, "partitions": rows}))
    return str(path)


@contextmanager
def was_moved(cluster: Cluster) -> Iterator[None]:
    """By a throttled plan that has ended, and whose throttles --verify has taken off."""
    cluster.done("topics create", "--topic", "moved", "--replica-assignment", "1:2,2:1")
    eventually(cluster.is_well, "the topic in sync", WAIT_S)
    plan = _plan(cluster, "moved", (2, 3), (3, 1))
    words = ("--reassignment-json-file", plan, "--rollback-file", f"{plan}.back")
    cluster.done("reassign --execute --throttle 9000000 --wait", *words)
    yield


@contextmanager
def is_being_moved(cluster: Cluster) -> Iterator[None]:
    """Slowly, by a throttled plan of somebody who has done all as he should."""
    cluster.done("topics create", "--topic", "moving", "--replica-assignment", "1:2")
    eventually(cluster.is_well, "the topic in sync", WAIT_S)
    cluster.moving = frozenset({"moving"})
    load = Load(cluster.bootstrap, "moving", records_per_step=20)
    eventually(lambda: len(load.acknowledged) > 40_000, "something to move", WAIT_S)
    load.stop()
    plan = _plan(cluster, "moving", (2, 3))
    words = ("--reassignment-json-file", plan, "--rollback-file", f"{plan}.back")
    cluster.done("reassign --execute --throttle 2000", *words)
    yield


@contextmanager
def topics_come_and_go(cluster: Cluster) -> Iterator[None]:
    """As tests and streams have it: one is made, another deleted, all the time."""
    over = threading.Event()
    failed: list[KafkaException] = []

    def come_and_go() -> None:
        try:
            number = 0
            while not over.wait(0.1):
                cluster.topic(f"{PASSING}{number}", 4, 2, cleanup_policy="compact")
                if number >= 3:
                    gone = f"{PASSING}{number - 3}"
                    cluster.admin.delete_topics([gone], operation_timeout=60)[gone].result(WAIT_S)
                number += 1
        except KafkaException as e:  # told when all is over
            failed.append(e)

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert not failed, failed


@contextmanager
def was_grown_and_thinned(cluster: Cluster) -> Iterator[None]:
    """A topic got more partitions, another was deleted, a third is made anew by the name of the second."""
    cluster.topic("grown", 2, 2)
    cluster.topic("again", 4, 2)
    eventually(cluster.is_well, "the topics in sync", WAIT_S)
    cluster.done("topics alter", "--topic", "grown", "--partitions", "5")
    cluster.done("topics delete", "--topic", "again", "--wait", "120")
    eventually(lambda: "again" not in cluster.admin.list_topics(timeout=60).topics, "the topic gone", WAIT_S)
    cluster.topic("again", 2, 2)
    yield


@contextmanager
def has_quotas_and_users(cluster: Cluster) -> Iterator[None]:
    assert cluster.kafka is not None
    for kind, name, configs in (
        ("users", "alice", "producer_byte_rate=1000000,consumer_byte_rate=2000000"),
        ("users", "bob smith", "request_percentage=50"),
        ("users", "carol", "SCRAM-SHA-256=[password=carol-word-46]"),
        ("clients", "etl", "consumer_byte_rate=3000000"),
    ):
        where = ("--bootstrap-server", cluster.bootstrap)
        entity = ("--entity-type", kind, "--entity-name", name)
        done = cluster.kafka.tool("kafka.admin.ConfigCommand", *where, "--alter", *entity, "--add-config", configs)
        assert done.returncode == 0, done.stdout
    yield


@contextmanager
def was_restarted(cluster: Cluster) -> Iterator[None]:
    """One broker after the other, and then the leaders went home."""
    kafka = cluster.kafka
    assert kafka is not None
    for broker in list(kafka.ports):
        eventually(lambda: _in_sync(cluster), "all in sync", WAIT_S)
        kafka.stop_broker(broker)
        kafka.start_broker(broker)
    eventually(lambda: _in_sync(cluster), "all in sync", WAIT_S)
    cluster.done("elect")
    yield


def _in_sync(cluster: Cluster) -> bool:
    topics = cluster.admin.list_topics(timeout=60).topics.values()
    return all(set(p.isrs) == set(p.replicas) for topic in topics for p in topic.partitions.values())


@contextmanager
def has_acls(cluster: Cluster) -> Iterator[None]:
    right = ("--allow-principal", "User:alice", "--operation", "Read", "--topic", "*")
    result = cluster.kt("acls", "add", "--force", *right, *cluster.ways["--bootstrap-server"])
    assert result.exit_code == 0, result.output
    yield


# --- the table ----------------------------------------------------------------------------------------------------

OLD: Final = frozenset({"ibp", "software", "producer_ids"})
"""What has to be raised first, before 3.4."""
MOVING: Final = OLD | {"reassignment", "dynamic_configs"}
"""A throttled move: the throttle is a dynamic config of brokers."""
SILENT: Final = OLD | {"jbod"}
"""Before 1.0 brokers do not tell their log directories."""

CLUSTERS: Final = (
    Healthy("0.10.2.2, one broker", real("0.10.2.2", 1), has(3, 1), SILENT, versions=("0.10.2.2",)),
    Healthy("0.11.0.3, two brokers", real("0.11.0.3"), has(10, 2), SILENT, versions=("0.11.0.3",)),
    Healthy("1.1.1, three racks", real("1.1.1", 3, racks=True), has(30, 3), OLD, versions=("1.1.1",)),
    Healthy("1.1.1, after a move", real("1.1.1", 3), was_moved, OLD, versions=("1.1.1",)),
    Healthy(
        "1.1.1, secured, with ACLs",
        secured("1.1.1"),
        lives(has(5, 2), has_acls),
        OLD | {"scram", "acl"},  # its authorizer has another name since
        versions=("1.1.1",),
    ),
    Healthy("2.8.2, 600 partitions", real("2.8.2", 3), has(600, 2), OLD, versions=("2.8.2",)),
    Healthy(
        "2.8.2, moving under a throttle",
        real("2.8.2", 3, replica_fetch_max_bytes="10000"),
        lives(has(5, 2), is_being_moved),
        MOVING,
        versions=("2.8.2",),
    ),
    Healthy("2.8.2, secured, in use", secured("2.8.2"), is_written_and_read, OLD | {"scram"}, versions=("2.8.2",)),
    Healthy(
        "3.6.1, overrides",
        real("3.6.1", 2, inter_broker_protocol_version="3.6"),
        lives(
            has(4, 2, cleanup_policy="compact,delete", retention_ms="3600000", min_insync_replicas="2"),
            has(3, 1, max_message_bytes="100000"),
        ),
        frozenset({"ibp", "software"}),
        versions=("3.6.1",),
    ),
    Healthy("3.9.1, in use", real("3.9.1", 3), is_written_and_read, versions=("3.9.1",)),
    Healthy("3.9.1, two log directories each", real("3.9.1", 2, log_dirs=2), has(40, 2), versions=("3.9.1",)),
    Healthy("3.9.1, quotas and users", real("3.9.1"), lives(has(5, 2), has_quotas_and_users), versions=("3.9.1",)),
    Healthy(
        "3.9.1, topics come and go",
        real("3.9.1"),
        lives(has(5, 2), topics_come_and_go),
        may=frozenset({"deletion"}),
        versions=("3.9.1",),
    ),
    Healthy("3.9.1, grown and thinned", real("3.9.1"), was_grown_and_thinned, versions=("3.9.1",)),
    Healthy("3.9.1, secured, with ACLs", secured("3.9.1"), lives(has(5, 2), has_acls), versions=("3.9.1",)),
    Healthy("3.9.1, half migrated", migrating(), has(5, 2), ill=frozenset({"controller"}), versions=("3.9.1",)),
    Healthy("ours, in use", ours(), is_written_and_read, OLD),
    Healthy("ours, after a move", ours(), was_moved, OLD),
    Healthy("ours, moving under a throttle", ours(), lives(has(5, 2), is_being_moved), MOVING),
    Healthy(
        "ours, secured, topics come and go",
        ours("sasl_ssl"),
        lives(has(5, 2), topics_come_and_go),
        OLD | {"scram"},
        may=frozenset({"deletion"}),
    ),
    Healthy("3.9.1 without ZooKeeper, in use", kraft("3.9.1"), is_written_and_read, versions=("3.9.1",)),
    Healthy(
        "4.1.0, restarted one by one",
        kraft("4.1.0"),
        lives(has(20, 3), was_restarted),
        versions=("4.1.0",),
    ),
    Healthy(
        "4.1.0, min.insync.replicas above a factor",
        kraft("4.1.0", min_insync_replicas="2"),
        lives(has(5, 3), has(4, 1), topics_come_and_go),
        versions=("4.1.0",),
    ),
)


def alarms(cluster: Cluster, healthy: Healthy) -> list[str]:
    """Look at it by every way; return what was found, a line each."""
    found = []
    for name, way in cluster.ways.items():
        result = cluster.kt("health", "--output", "json", *way)
        if result.exit_code == 0:
            continue
        rows = [i for i in _items(result) if i["check"] not in ("verdict", *healthy.ill)]
        if bad := [i for i in rows if i["level"] not in ("ok", "note", "unknown")]:
            found.append(f"health {name}: {[(i['check'], i['what'], i['names']) for i in bad]}")
    if cluster.zookeeper is not None:
        both = ["--zookeeper", cluster.zookeeper, "--bootstrap-server", cluster.bootstrap, *cluster.by_request]
        result = cluster.kt("migrate", "check", "--output", "json", *both)
        told = {i["id"]: i for i in _items(result) if i["severity"] not in ("ok", "note")}
        known = healthy.to_do | healthy.may
        if unexpected := {name: (i["severity"], i["evidence"]) for name, i in told.items() if name not in known}:
            found.append(f"migrate check: {unexpected}")
        if missing := healthy.to_do - set(told):
            found.append(f"migrate check does not say: {', '.join(sorted(missing))}")
    return found


def _items(result: Result) -> list[dict[str, Any]]:
    try:
        items: list[dict[str, Any]] = json.loads(result.stdout)["items"]
    except (ValueError, KeyError) as e:
        raise AssertionError(result.output) from e
    return items
