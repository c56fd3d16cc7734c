"""What administrators do by request to brokers of ours, each step judged by ZooKeeper and by what is told afterwards."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.compat.admin_actors import Actor, Client, Listed, Tools
from tests.compat.go_actors import Kafkactl, KafkaGo, Kcl, Topicctl
from tests.compat.java_tools import Said
from tests.compat.told import await_told
from tests.integration.load import await_in_sync
from tests.steady import LASTING
from tests.waiting import eventually

OPTIONS: Final = {
    **LASTING,
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "delete.topic.enable": "true",
    "num.partitions": "2",
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "replica.fetch.max.bytes": "10000",  # a throttled replica gets no further than one fetch
}
WAIT_S: Final = 120
BROKERS: Final = (1, 2, 3)
HELD: Final = {f"{side}.replication.throttled.replicas": "*" for side in ("leader", "follower")}
SLOW: Final = {f"{side}.replication.throttled.rate": "1" for side in ("leader", "follower")}


@dataclass(frozen=True, slots=True)
class Stage:
    """One actor on our cluster; its topics begin with ``prefix``."""

    cluster: EmbeddedCluster
    zk: ZooKeeper
    actor: Actor
    prefix: str
    directory: Path

    def topic(self, name: str, *replicas: Sequence[int]) -> str:
        """Have the actor create it; return its name when it is in sync and known to every broker."""
        topic = self.prefix + name
        ok(self.actor.create(topic, *replicas))
        self.settle(topic)
        return topic

    def settle(self, topic: str) -> None:
        """Wait until it is in sync, and every broker tells of it so: programs ask any."""
        await_in_sync(self.zk, [topic], WAIT_S)
        await_told(self.zk, self.cluster.bootstrap, [topic])

    def filled(self, name: str, *replicas: Sequence[int]) -> str:
        """Create it with so much data that a throttled replica cannot follow."""
        topic = self.topic(name, *replicas)
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "batch.size": 9000})
        for number in range(160):
            producer.produce(topic, bytes(8000), partition=number % len(replicas))
        assert producer.flush(WAIT_S) == 0
        return topic

    def node(self, topic: str) -> dict[str, Any]:
        found = self.zk.get(f"/brokers/topics/{topic}")
        return {} if found is None else json.loads(found.data)

    def assignment(self, topic: str) -> list[list[int]]:
        partitions = self.node(topic).get("partitions", {})
        return [partitions[p] for p in sorted(partitions, key=int)]

    def leader(self, topic: str, partition: int = 0) -> int | None:
        return read_cluster(self.zk, [topic]).states[TopicPartition(topic, partition)].leader_and_isr.leader

    def isr(self, topic: str) -> tuple[int, ...]:
        return read_cluster(self.zk, [topic]).states[TopicPartition(topic, 0)].leader_and_isr.isr

    def override(self, kind: str, name: str) -> dict[str, str]:
        found = self.zk.get(f"/config/{kind}/{name}")
        return {} if found is None else dict(json.loads(found.data)["config"])

    def moved(self, topic: str, *wanted: Sequence[int]) -> None:
        """Wait until that is the assignment, and nothing of the move is left in the topic's node."""
        eventually(lambda: self.assignment(topic) == [list(r) for r in wanted], f"{topic} to be moved", WAIT_S)
        node = self.node(topic)
        assert not node["adding_replicas"] and not node["removing_replicas"]
        self.settle(topic)

    def throttled(self, topic: str) -> None:
        """Have the topic's moves stand still."""
        ok(self.actor.change("topics", topic, HELD))
        for broker in BROKERS:
            ok(self.actor.change("brokers", str(broker), SLOW))

    def released(self) -> None:
        for broker in BROKERS:
            ok(self.actor.change("brokers", str(broker), {}, [*SLOW]))


OF_KAFKA: Final = (Tools, Client)
EVERYBODY: Final = (*OF_KAFKA, KafkaGo, Kcl, Kafkactl, Topicctl)


def ok(said: Said) -> str:
    """Return what it said; it must have succeeded."""
    assert said.code == 0, said.text
    return said.text


def refused(said: Said, *words: str) -> None:
    """Check that it was refused, in one of those words."""
    assert any(word in said.text for word in words), said.text


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table. ``of``: by whom it is played."""

    title: str
    play: Callable[[Stage], None]
    of: tuple[type[Actor], ...] = OF_KAFKA


# --- topics and configs ------------------------------------------------------------------------------------------


def topics_by_default(stage: Stage) -> None:
    topic = stage.topic("defaults")
    assert [len(replicas) for replicas in stage.assignment(topic)] == [3, 3]
    refused(stage.actor.create(topic), "already exists")


def topics_assigned_grown_deleted(stage: Stage) -> None:
    topic = stage.topic("grown", (1, 2), (2, 3))
    ok(stage.actor.grow(topic, 3))
    stage.settle(topic)
    assert stage.assignment(topic)[:2] == [[1, 2], [2, 3]]
    if stage.actor.grows_to:
        refused(stage.actor.grow(topic, 2), "currently has 3 partitions", "Decreasing the number")
    described = stage.actor.described(topic)
    leader, replicas, isr = described[0]
    assert len(described) == 3 and replicas == (1, 2) and set(isr) == {1, 2}
    assert leader == stage.leader(topic) and (leader == 1 or not stage.actor.assigns)
    ok(stage.actor.delete(topic))
    eventually(lambda: not stage.node(topic), "the topic to be gone", WAIT_S)


def topic_configs(stage: Stage) -> None:
    topic = stage.topic("configured", (1, 2))
    ok(stage.actor.change("topics", topic, {"retention.ms": "7200000", "segment.ms": "3600000"}))
    ok(stage.actor.change("topics", topic, {"cleanup.policy": "compact"}, ["segment.ms"]))
    assert stage.override("topics", topic) == {"retention.ms": "7200000", "cleanup.policy": "compact"}
    told = stage.actor.configs("topics", topic)
    assert told["retention.ms"] == ("7200000", "DYNAMIC_TOPIC_CONFIG")
    refused(stage.actor.change("topics", topic, {"nonsense": "1"}), "nonsense")
    assert "nonsense" not in stage.override("topics", topic)


def a_topic_config(stage: Stage) -> None:
    topic = stage.topic("set", (1, 2))
    ok(stage.actor.change("topics", topic, {"retention.ms": "7200000"}))
    assert stage.override("topics", topic) == {"retention.ms": "7200000"}
    eventually(
        lambda: stage.actor.configs("topics", topic).get("retention.ms") == ("7200000", ""), "to be told", WAIT_S
    )
    refused(stage.actor.change("topics", topic, {"retention.ms": "7200000", "segment.bytes": "1"}), "segment.bytes")
    assert stage.override("topics", topic) == {"retention.ms": "7200000"}


def broker_configs(stage: Stage) -> None:
    actor, key = stage.actor, "log.cleaner.min.cleanable.ratio"
    ok(actor.change("brokers", "", {key: "0.75"}))
    ok(actor.change("brokers", "2", {key: "0.25"}))
    try:
        eventually(
            lambda: actor.configs("brokers", "2").get(key) == ("0.25", "DYNAMIC_BROKER_CONFIG"), "its own", WAIT_S
        )
        assert actor.configs("brokers", "")[key] == ("0.75", "DYNAMIC_DEFAULT_BROKER_CONFIG")
        assert stage.override("brokers", "<default>")[key] == "0.75"
        refused(actor.change("brokers", "2", {"broker.id": "9"}), "Cannot update these configs dynamically")
        refused(
            actor.change("brokers", "2", {"num.io.threads": "1000"}), "not be greater than double the current value"
        )
    finally:
        ok(actor.change("brokers", "", {}, [key]))
        ok(actor.change("brokers", "2", {}, [key]))
    assert key not in actor.configs("brokers", "2")


# --- moves --------------------------------------------------------------------------------------------------------


def moves(stage: Stage) -> None:
    topic = stage.filled("moved", (1, 2), (2, 3))
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    stage.throttled(topic)
    try:
        ok(stage.actor.move({first: (3, 2), second: (1, 3)}))
        node = stage.node(topic)
        assert node["partitions"] == {"0": [3, 2, 1], "1": [1, 3, 2]}
        assert (node["adding_replicas"], node["removing_replicas"]) == ({"0": [3], "1": [1]}, {"0": [1], "1": [2]})
        assert stage.actor.moving()[first] == Listed((3, 2, 1), (3,), (1,))
    finally:
        stage.released()
    stage.moved(topic, (3, 2), (1, 3))
    assert first not in stage.actor.moving()


def a_move(stage: Stage) -> None:
    """For those that list no moves, or wait until theirs has ended; kafkactl sorts the replicas of what it does not move."""
    topic = stage.filled("carried", (1, 2), (2, 3))
    ok(stage.actor.move({TopicPartition(topic, 0): (2, 3), TopicPartition(topic, 1): (1, 3)}))
    stage.moved(topic, (2, 3), (1, 3))
    eventually(
        lambda: {p: d[1] for p, d in stage.actor.described(topic).items()} == {0: (2, 3), 1: (1, 3)}, "told", WAIT_S
    )


def moves_refused(stage: Stage) -> None:
    topic = stage.topic("refused", (1, 2))
    wanted = {TopicPartition(topic, 0): (1, 9)}
    refused(stage.actor.move(wanted), "Unknown broker id 9", "brokers that are not alive")
    refused(stage.actor.move({TopicPartition(topic, 7): (1, 2)}), "Unable to find partition", "does not exist")
    refused(stage.actor.move({TopicPartition(topic, 0): (1, 1)}), "duplicate", "Duplicate")
    assert stage.assignment(topic) == [[1, 2]]


def moves_replaced_and_cancelled(stage: Stage) -> None:
    topic = stage.filled("replaced", (1, 2))
    partition = TopicPartition(topic, 0)
    stage.throttled(topic)
    try:
        ok(stage.actor.move({partition: (2, 3)}))
        ok(stage.actor.replace({partition: (1, 2, 3)}))
        assert stage.actor.moving()[partition] == Listed((1, 2, 3), (3,), ())
        # The tools of 3.9 leave out what only adds (KAFKA-18367), so what is cancelled removes too.
        ok(stage.actor.replace({partition: (2, 3)}))
        assert stage.actor.moving()[partition] == Listed((2, 3, 1), (3,), (1,))
        ok(stage.actor.cancel({partition: (2, 3)}))
        stage.moved(topic, (2, 1))  # the order of before an overlapping move is nowhere kept, as in Kafka
        assert partition not in stage.actor.moving()
    finally:
        stage.released()
    assert stage.leader(topic) == 1


def throttles(stage: Stage) -> None:
    """``--throttle`` sets what --verify takes away when all is done, and --additional changes it on the way."""
    assert isinstance(stage.actor, Tools)
    topic = stage.filled("throttled", (1, 2))
    plan = {TopicPartition(topic, 0): (3, 2)}
    ok(stage.actor.reassign("--execute", plan, "--throttle", "1"))
    assert stage.override("topics", topic) == {
        "leader.replication.throttled.replicas": "0:1,0:2",
        "follower.replication.throttled.replicas": "0:3",
    }
    assert stage.override("brokers", "3")["follower.replication.throttled.rate"] == "1"
    assert "still in progress" in ok(stage.actor.reassign("--verify", plan))
    refused(stage.actor.reassign("--execute", plan, "--throttle", "2"), "Cannot execute because there is an existing")
    ok(stage.actor.reassign("--execute", plan, "--throttle", "100000000", "--additional"))
    stage.moved(topic, (3, 2))
    assert "is complete" in ok(stage.actor.reassign("--verify", plan))
    assert stage.override("topics", topic) == {}
    assert not [k for broker in BROKERS for k in stage.override("brokers", str(broker)) if k.endswith(".rate")]


def generated_plans(stage: Stage) -> None:
    assert isinstance(stage.actor, Tools)
    topic = stage.topic("planned", (1, 2), (2, 1))
    wanted = stage.directory / f"{topic}.json"
    wanted.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    said = ok(
        stage.actor("reassign", "--generate", "--topics-to-move-json-file", str(wanted), "--broker-list", "1,2,3")
    )
    current, proposed = (json.loads(line) for line in said.splitlines() if line.startswith("{"))
    assert [row["replicas"] for row in current["partitions"]] == [[1, 2], [2, 1]]
    assert all(len(set(row["replicas"])) == 2 for row in proposed["partitions"])


# --- leaders ------------------------------------------------------------------------------------------------------


def elections(stage: Stage) -> None:
    topic = stage.topic("elected", (1, 2))
    partition = TopicPartition(topic, 0)
    stage.cluster.stop_broker(1)
    eventually(lambda: stage.leader(topic) == 2, "2 to lead", WAIT_S)
    refused(stage.actor.elect("preferred", partition), "PREFERRED", "preferred replica", "Failed to elect")
    stage.cluster.start_broker(1)
    stage.settle(topic)
    ok(stage.actor.elect("preferred", partition))
    assert stage.leader(topic) == 1
    again = stage.actor.elect("preferred", partition)
    refused(again, "Valid replica already elected", "ElectionNotNeeded")
    refused(stage.actor.elect("unclean", partition), "Valid replica already elected", "ElectionNotNeeded")
    refused(stage.actor.elect("unclean", TopicPartition(topic, 7)), "The partition does not exist")
    lossy = stage.topic("lossy", (1, 2))
    stage.cluster.stop_broker(2)
    eventually(lambda: stage.isr(lossy) == (1,), "2 to be out of sync", WAIT_S)
    stage.cluster.stop_broker(1)
    stage.cluster.start_broker(2)
    partition = TopicPartition(lossy, 0)
    # If 1 was the controller, its successor may not have begun yet, and takes 1 for the leader still.
    eventually(
        lambda: stage.actor.elect("unclean", partition).code == 0 and stage.leader(lossy) == 2, "2 to lead", WAIT_S
    )
    assert stage.isr(lossy) == (2,)
    stage.cluster.start_broker(1)
    stage.settle(lossy)


def preferred_election(stage: Stage) -> None:
    topic = stage.topic("preferred", (1, 2))
    partition = TopicPartition(topic, 0)
    ok(stage.actor.move({partition: (2, 1)}))
    stage.moved(topic, (2, 1))
    assert stage.leader(topic) == 1
    ok(stage.actor.elect("preferred", partition))
    eventually(lambda: stage.leader(topic) == 2, "the preferred one to lead", WAIT_S)


# --- quotas, groups, log dirs ----------------------------------------------------------------------------------------


def quotas(stage: Stage) -> None:
    actor = stage.actor
    user = f"{stage.prefix}user"
    for kind, name, key in (
        ("users", user, "producer_byte_rate"),
        ("clients", "", "consumer_byte_rate"),
        ("ips", "10.0.0.1", "connection_creation_rate"),
    ):
        ok(actor.quota(kind, name, key, "1000"))
        assert stage.override(kind, name or "<default>") == {key: "1000"}
        assert f"{key}=1000.0" in actor.quotas(kind)
        ok(actor.quota(kind, name, key, None))
        assert stage.override(kind, name or "<default>") == {}


def offsets(stage: Stage) -> None:
    topic, group = stage.topic("read", (1, 2), (2, 3)), f"{stage.prefix}group"
    consumer = Consumer({"bootstrap.servers": stage.cluster.bootstrap, "group.id": group})

    def committed() -> list[int]:
        wanted = [Position(topic, p) for p in range(2)]
        return [found.offset for found in consumer.committed(wanted, timeout=WAIT_S)]

    try:
        consumer.commit(offsets=[Position(topic, p, 0) for p in range(2)], asynchronous=False)
        assert committed() == [0, 0]
        ok(stage.actor.forget(group, TopicPartition(topic, 0)))
        assert committed() == [-1001, 0]
    finally:
        consumer.close()
    refused(stage.actor.forget(f"{group}-unknown", TopicPartition(topic, 0)), "does not exist", "The group id")


def group_tool(stage: Stage) -> None:
    assert isinstance(stage.actor, Tools)
    groups = stage.actor.groups
    topic, group = stage.topic("reset", (1, 2)), f"{stage.prefix}reset"
    reset = ("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
    assert topic in ok(groups(*reset))
    assert group in ok(groups("--list")).split()
    assert "Empty" in ok(groups("--describe", "--group", group, "--state"))
    assert topic in ok(groups("--describe", "--group", group))
    assert "successful" in ok(groups("--delete", "--group", group))
    assert group not in ok(groups("--list")).split()


def written_and_read(stage: Stage) -> None:
    """By its Writer and its Reader, whose connections ask for no versions, and a group's whole life."""
    actor = stage.actor
    assert isinstance(actor, KafkaGo)
    topic, group = stage.topic("consumed", (1, 2), (2, 3)), f"{stage.prefix}readers"
    ok(actor("write", topic, 50))
    rows = [line.split(" ", 3) for line in ok(actor("read", topic, group, 50)).splitlines()]
    assert sorted(int(key) for _, _, key, _ in rows) == list(range(50))
    assert all(value == f"value {key}" for _, _, key, value in rows)
    assert ok(actor("groups", group, topic, 2)).split() == ["Empty", "50"]


def groups(stage: Stage) -> None:
    """Its offsets, committed by another client, listed, described, reset and deleted, and the group with them."""
    actor = stage.actor
    topic, group = stage.topic("listed", (1, 2)), f"{stage.prefix}listed"
    producer = Producer({"bootstrap.servers": stage.cluster.bootstrap})
    for _ in range(5):
        producer.produce(topic, b"value")
    assert producer.flush(WAIT_S) == 0
    consumer = Consumer({"bootstrap.servers": stage.cluster.bootstrap, "group.id": group})
    try:
        consumer.commit(offsets=[Position(topic, 0, 2)], asynchronous=False)

        def committed() -> int:
            return int(consumer.committed([Position(topic, 0)], timeout=WAIT_S)[0].offset)

        steps: dict[type[Actor], tuple[tuple[str, ...], ...]] = {
            Kcl: (
                ("group", "list"),
                ("group", "describe", group),
                ("group", "seek", group, "--to", "start", "--yes"),
                ("group", "seek", group, "--to", "end", "--yes"),
                ("group", "delete", group),
            ),
            Kafkactl: (
                ("get", "consumer-groups"),
                ("describe", "consumer-group", group),
                ("reset", "consumer-group-offset", group, "--topic", topic, "--oldest", "--execute"),
                ("reset", "consumer-group-offset", group, "--topic", topic, "--newest", "--execute"),
                ("delete", "consumer-group", group),
            ),
        }
        assert isinstance(actor, Kcl | Kafkactl)
        listed, described, to_start, to_end, deleted = steps[type(actor)]
        assert group in ok(actor(*listed))
        assert topic in ok(actor(*described))
        ok(actor(*to_start))
        assert committed() == 0
        ok(actor(*to_end))
        assert committed() == 5
        ok(actor(*deleted))
        assert committed() == -1001
        assert group not in ok(actor(*listed))
    finally:
        consumer.close()


def users_and_acls(stage: Stage) -> None:
    """A SCRAM user is made and deleted; ACLs are refused where there is no authorizer, in words."""
    user = f"{stage.prefix}user"
    steps: dict[type[Actor], tuple[tuple[str, ...], ...]] = {
        Kcl: (
            ("user", "alter", "--set", f"user={user},mechanism=scram-sha-256,password=word"),
            ("user", "describe"),
            ("user", "alter", "--del", f"user={user},mechanism=scram-sha-256"),
            ("acl", "list"),
            ("acl", "create", "--topic", "t", "--allow-principal", "User:u", "--operation", "read"),
        ),
        Kafkactl: (
            ("create", "user", user, "--password", "word"),
            ("get", "users"),
            ("delete", "user", user, "--mechanism", "SCRAM-SHA-256"),
            ("get", "acl"),
            ("create", "acl", "--topic", "t", "--operation", "read", "--principal", "User:u", "--allow"),
        ),
    }
    actor = stage.actor
    assert isinstance(actor, Kcl | Kafkactl)
    made, listed, deleted, acls, right = steps[type(actor)]
    ok(actor(*made))
    eventually(lambda: user in ok(actor(*listed)), "the user to be told", WAIT_S)
    ok(actor(*deleted))
    eventually(lambda: user not in ok(actor(*listed)), "the user to be gone", WAIT_S)
    refused(actor(*acls), "SECURITY_DISABLED", "Security features are disabled")
    refused(actor(*right), "SECURITY_DISABLED", "Security features are disabled")


def log_dirs(stage: Stage) -> None:
    topic = stage.topic("kept", (1, 2), (2, 3))
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    for broker, wanted in ((1, {first}), (2, {first, second})):  # a follower makes its log in its own time
        eventually(lambda b=broker, w=wanted: stage.actor.logs(b, topic) == w, "the logs to be there", WAIT_S)  # type: ignore[misc]


def brokers_and_producers(stage: Stage) -> None:
    actor = stage.actor
    assert isinstance(actor, Client)

    def is_told() -> bool:  # the broker that is asked may learn of another controller after the others
        _, controller, brokers = ok(actor("brokers")).split()
        return brokers == "1,2,3" and int(controller) == read_cluster(stage.zk, [], states=False).controller_id

    eventually(is_told, "brokers and controller to be told", WAIT_S)
    topic = stage.topic("produced", (1, 2))
    producer = Producer({"bootstrap.servers": stage.cluster.bootstrap, "enable.idempotence": True})
    producer.produce(topic, b"value")
    assert producer.flush(WAIT_S) == 0
    if actor.version >= "3":  # an AdminClient of 2.8 does not ask
        assert "lastSequence=0" in ok(actor("producers", topic, 0))


ROWS: Final = (
    Row("a topic by the cluster's defaults; one that exists", topics_by_default, (*OF_KAFKA, KafkaGo, Kcl)),
    Row("a topic assigned, grown, described, deleted", topics_assigned_grown_deleted, EVERYBODY),
    Row("topic configs set, deleted, described, refused", topic_configs, (*OF_KAFKA, KafkaGo, Kcl)),
    Row("a topic config set, told, another refused", a_topic_config, (Kafkactl, Topicctl)),
    Row("broker configs: one broker's, all brokers', refused", broker_configs, (*OF_KAFKA, Kcl)),
    Row("a move started, listed, finished", moves, (*OF_KAFKA, KafkaGo)),
    Row("a move started, and seen to be finished", a_move, (Kcl, Kafkactl, Topicctl)),
    Row("moves that are refused", moves_refused, (*OF_KAFKA, KafkaGo, Kcl)),
    Row("a move replaced, and cancelled", moves_replaced_and_cancelled),
    Row("`--execute --throttle`, `--additional`, `--verify`", throttles, (Tools,)),
    Row("`--generate`", generated_plans, (Tools,)),
    Row("preferred and unclean election, each outcome", elections),
    Row("preferred election", preferred_election, (KafkaGo, Kcl)),
    Row("quotas of users, clients and addresses", quotas, (*OF_KAFKA, KafkaGo, Kcl)),
    Row("committed offsets deleted", offsets, (*OF_KAFKA, KafkaGo, Kcl)),
    Row("groups reset, listed, described, deleted", group_tool, (Tools,)),
    Row("a group listed, described, reset to both ends, deleted", groups, (Kcl, Kafkactl)),
    Row("a topic written, read by a group of one", written_and_read, (KafkaGo,)),
    Row("a SCRAM user made and deleted; ACLs refused without an authorizer", users_and_acls, (Kcl, Kafkactl)),
    Row("log dirs described", log_dirs, (*OF_KAFKA, Kcl)),
    Row("the cluster and producers described", brokers_and_producers, (Client,)),
)
