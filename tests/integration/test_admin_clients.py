"""The admin clients of librdkafka and kafka-python against three broker processes: all they offer that is served."""

import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import confluent_kafka
import kafka
import kafka.admin
import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ElectionType, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.compat.told import await_told
from tests.waiting import eventually

TIMEOUT_S = 60


def code_of(future: "Future[Any]") -> int | None:
    """Return the error's code, None if it went well."""
    error = future.exception(TIMEOUT_S)
    if error is None:
        return None
    assert isinstance(error, KafkaException)
    return int(error.args[0].code())


def result(future: "Future[Any]") -> Any:
    return future.result(TIMEOUT_S)


def await_partitions(cluster: EmbeddedCluster, topic: str, count: int) -> None:
    """Wait until every broker tells of them: clients ask any, which may hear of them after the one that has answered."""
    with ZooKeeper(cluster.zookeeper) as zk:
        await_told(zk, cluster.bootstrap, [topic])
        assert len(read_cluster(zk, [topic]).states) == count


@pytest.fixture
def admin(kafka_cluster: EmbeddedCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka_cluster.bootstrap, "log_level": 0})


@pytest.fixture
def topic(kafka_cluster: EmbeddedCluster, admin: AdminClient) -> Iterator[str]:
    """Give a topic with 3 partitions, made and deleted as clients do it."""
    name = f"admin-{uuid.uuid4().hex[:8]}"
    wanted = NewTopic(name, 3, 3, config={"retention.ms": "3600000"})
    assert code_of(admin.create_topics([wanted], validate_only=True)[name]) is None
    assert name not in admin.list_topics(timeout=TIMEOUT_S).topics
    assert code_of(admin.create_topics([wanted], operation_timeout=TIMEOUT_S)[name]) is None
    await_partitions(kafka_cluster, name, 3)
    yield name
    assert code_of(admin.delete_topics([name], operation_timeout=TIMEOUT_S)[name]) is None


def fill(cluster: EmbeddedCluster, topic: str, records: int = 30) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(records):
        producer.produce(topic, b"value", partition=number % 3)
    assert producer.flush(TIMEOUT_S) == 0


def await_empty(admin: AdminClient, group: str) -> None:
    """Wait until nobody is in it: a member that leaves waits 5 s for the answer, and the coordinator may be busy longer."""

    def is_empty() -> bool:
        described = result(admin.describe_consumer_groups([group])[group])
        return (described.state, described.members) == (ConsumerGroupState.EMPTY, [])

    eventually(is_empty, f"the member of {group} to have left", TIMEOUT_S)


class Member:
    """A consumer that has its partitions."""

    def __init__(self, cluster: EmbeddedCluster, topic: str) -> None:
        settings = {"bootstrap.servers": cluster.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
        self.consumer = Consumer({**settings, "enable.auto.commit": False, "client.id": "reader"})
        self.consumer.subscribe([topic])
        eventually(self._has_read, "the first record", TIMEOUT_S)
        self.consumer.commit(asynchronous=False)

    def _has_read(self) -> bool:
        message = self.consumer.poll(0.2)
        return message is not None and message.error() is None

    def leave(self) -> None:
        self.consumer.close()


@pytest.mark.spec("GRP-58", "GRP-59", "GRP-60")
def test_librdkafka_lists_describes_and_deletes_groups(
    kafka_cluster: EmbeddedCluster, admin: AdminClient, topic: str
) -> None:
    fill(kafka_cluster, topic)
    member = Member(kafka_cluster, topic)
    try:
        listed = result(admin.list_consumer_groups())
        assert listed.errors == []
        assert topic in {group.group_id for group in listed.valid if not group.is_simple_consumer_group}
        described = result(admin.describe_consumer_groups([topic], include_authorized_operations=True)[topic])
        assert described.state == ConsumerGroupState.STABLE
        assert described.partition_assignor == "range"
        (only,) = described.members
        assert (only.client_id, only.host) == ("reader", "/127.0.0.1")
        assert sorted(p.partition for p in only.assignment.topic_partitions) == [0, 1, 2]
        assert {operation.name for operation in described.authorized_operations} == {"READ", "DELETE", "DESCRIBE"}
        assert code_of(admin.delete_consumer_groups([topic])[topic]) == confluent_kafka.KafkaError.NON_EMPTY_GROUP
    finally:
        member.leave()
    await_empty(admin, topic)
    assert code_of(admin.delete_consumer_groups([topic])[topic]) is None
    assert result(admin.describe_consumer_groups([topic])[topic]).state == ConsumerGroupState.DEAD
    assert code_of(admin.delete_consumer_groups([topic])[topic]) == confluent_kafka.KafkaError.GROUP_ID_NOT_FOUND


@pytest.mark.spec("BRK-125", "BRK-162", "Z-26")
def test_librdkafka_describes_and_alters_configs(admin: AdminClient, topic: str) -> None:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)

    def describe() -> dict[str, tuple[str, int]]:
        entries = result(admin.describe_configs([resource])[resource])
        return {name: (entry.value, entry.source) for name, entry in entries.items()}

    assert describe()["retention.ms"] == ("3600000", 1)
    resource.add_incremental_config(
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND)
    )
    resource.add_incremental_config(ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE))
    assert code_of(admin.incremental_alter_configs([resource], validate_only=True)[resource]) is None
    assert describe()["retention.ms"] == ("3600000", 1)
    assert code_of(admin.incremental_alter_configs([resource])[resource]) is None
    now = describe()
    assert now["cleanup.policy"] == ("delete,compact", 1)
    assert now["retention.ms"][1] != 1
    whole = ConfigResource(ConfigResource.Type.TOPIC, topic, set_config={"retention.ms": "7200000"})
    with pytest.deprecated_call():
        assert code_of(admin.alter_configs([whole])[whole]) is None
    now = describe()
    assert (now["cleanup.policy"][0], now["retention.ms"][0]) == ("delete", "7200000")
    bad = ConfigResource(ConfigResource.Type.TOPIC, topic, set_config={"no.such.config": "1"})
    with pytest.deprecated_call():
        assert code_of(admin.alter_configs([bad])[bad]) == confluent_kafka.KafkaError.INVALID_CONFIG
    for broker in (1, 2, 3):
        of_broker = ConfigResource(ConfigResource.Type.BROKER, str(broker))
        entries = result(admin.describe_configs([of_broker])[of_broker])
        assert entries["broker.id"].value == str(broker) and entries["broker.id"].is_read_only


@pytest.mark.spec("BRK-162")
def test_librdkafka_adds_partitions_and_deletes_records(
    kafka_cluster: EmbeddedCluster, admin: AdminClient, topic: str
) -> None:
    fill(kafka_cluster, topic)
    wanted = [NewPartitions(topic, 5)]
    assert code_of(admin.create_partitions(wanted, validate_only=True)[topic]) is None
    assert code_of(admin.create_partitions(wanted, operation_timeout=TIMEOUT_S)[topic]) is None
    assert code_of(admin.create_partitions(wanted)[topic]) == confluent_kafka.KafkaError.INVALID_PARTITIONS
    await_partitions(kafka_cluster, topic, 5)
    partitions = [confluent_kafka.TopicPartition(topic, 0, 4), confluent_kafka.TopicPartition(topic, 1, -1)]
    deleted = {p.partition: result(f).low_watermark for p, f in admin.delete_records(partitions).items()}
    assert deleted == {0: 4, 1: 10}
    earliest = admin.list_offsets({p: OffsetSpec.earliest() for p in partitions})
    assert {p.partition: result(f).offset for p, f in earliest.items()} == {0: 4, 1: 10}
    beyond = confluent_kafka.TopicPartition(topic, 2, 11)
    assert code_of(admin.delete_records([beyond])[beyond]) == confluent_kafka.KafkaError.OFFSET_OUT_OF_RANGE


@pytest.mark.spec("GRP-47", "GRP-56", "GRP-58", "GRP-59", "GRP-60", "BRK-162")
def test_kafka_pythons_admin(kafka_cluster: EmbeddedCluster, admin: AdminClient, topic: str) -> None:
    fill(kafka_cluster, topic)
    Member(kafka_cluster, topic).leave()  # from here there is an offsets topic: this client does not wait for it
    await_empty(admin, topic)
    client = kafka.admin.KafkaAdminClient(bootstrap_servers=kafka_cluster.bootstrap)
    try:
        offsets = {kafka.TopicPartition(topic, p): kafka.OffsetAndMetadata(p + 1, "m", -1) for p in range(3)}
        client.alter_group_offsets(topic, offsets)
        assert topic in str(client.list_groups())
        stored = client.list_group_offsets({topic: None})[topic]
        assert {p.partition: o.offset for p, o in stored.items()} == {0: 1, 1: 2, 2: 3}
        assert "Empty" in str(client.describe_groups([topic]))
        client.delete_groups([topic])
        assert "Dead" in str(client.describe_groups([topic]))
        resource = kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.TOPIC, topic)
        assert "3600000" in str(client.describe_configs([resource]))
        change = kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.TOPIC, topic, configs={"segment.ms": "7000"})
        client.alter_configs([change])
        assert "7000" in str(client.describe_configs([resource]))
        client.create_partitions({topic: 4})
        deleted = client.delete_records({kafka.TopicPartition(topic, 0): 5})
        assert "'low_watermark': 5" in str(deleted) or "low_watermark=5" in str(deleted)
        described = str(client.describe_log_dirs())
        assert topic in described and str(kafka_cluster.files.directory) in described
    finally:
        client.close()


@pytest.mark.spec("BRK-166", "GRP-4", "GRP-5")
def test_the_offsets_topic_has_as_many_replicas_as_there_are_brokers(
    kafka_cluster: EmbeddedCluster, topic: str
) -> None:
    fill(kafka_cluster, topic)
    Member(kafka_cluster, topic).leave()
    with ZooKeeper(kafka_cluster.zookeeper) as zk:
        offsets = read_cluster(zk, ["__consumer_offsets"]).topics["__consumer_offsets"]
    assert {len(replicas) for replicas in offsets.assignment.values()} == {3}


@pytest.mark.spec("ADM-12")
def test_librdkafka_leaves_the_counts_to_the_broker(kafka_cluster: EmbeddedCluster, admin: AdminClient) -> None:
    name = f"counts-{uuid.uuid4().hex[:8]}"
    defaults = result(
        admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")])[
            ConfigResource(ConfigResource.Type.BROKER, "1")
        ]
    )
    assert code_of(admin.create_topics([NewTopic(name)], operation_timeout=TIMEOUT_S)[name]) is None
    await_partitions(kafka_cluster, name, int(defaults["num.partitions"].value))
    described = admin.list_topics(name, timeout=TIMEOUT_S).topics[name].partitions
    assert len(described) == int(defaults["num.partitions"].value)
    assert {len(p.replicas) for p in described.values()} == {int(defaults["default.replication.factor"].value)}
    assert code_of(admin.delete_topics([name], operation_timeout=TIMEOUT_S)[name]) is None


@pytest.mark.spec("ADM-67", "GRP-59")
def test_librdkafka_lists_groups_by_state_and_kafka_python_deletes_single_offsets(
    kafka_cluster: EmbeddedCluster, admin: AdminClient, topic: str
) -> None:
    fill(kafka_cluster, topic)
    member = Member(kafka_cluster, topic)
    client = kafka.admin.KafkaAdminClient(bootstrap_servers=kafka_cluster.bootstrap)
    one = kafka.TopicPartition(topic, 0)

    def listed(*states: ConsumerGroupState) -> set[str]:
        return {group.group_id for group in result(admin.list_consumer_groups(states=set(states))).valid}

    try:
        assert topic in listed(ConsumerGroupState.STABLE) and topic not in listed(ConsumerGroupState.EMPTY)
        assert "GroupSubscribedToTopic" in str(client.delete_group_offsets(topic, [one]))
        member.leave()
        await_empty(admin, topic)
        assert topic in listed(ConsumerGroupState.EMPTY) and topic not in listed(ConsumerGroupState.STABLE)
        client.alter_group_offsets(
            topic, {kafka.TopicPartition(topic, p): kafka.OffsetAndMetadata(p + 1, "", -1) for p in range(3)}
        )
        client.delete_group_offsets(topic, [one])
        stored = client.list_group_offsets({topic: None})[topic]
        assert {p.partition: o.offset for p, o in stored.items()} == {1: 2, 2: 3}
    finally:
        client.close()


@pytest.mark.spec("ADM-62", "ADM-63", "ADM-61")
def test_librdkafka_and_kafka_python_elect_leaders(
    kafka_cluster: EmbeddedCluster, admin: AdminClient, topic: str
) -> None:
    """Asked of any broker: the clients find the controller, which has nothing to do where all is right."""
    partitions = [confluent_kafka.TopicPartition(topic, p) for p in (0, 9)]
    outcomes = result(admin.elect_leaders(ElectionType.PREFERRED, partitions))
    codes = {p.partition: None if error is None else error.code() for p, error in outcomes.items()}
    assert codes == {
        0: confluent_kafka.KafkaError.ELECTION_NOT_NEEDED,
        9: confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
    client = kafka.admin.KafkaAdminClient(bootstrap_servers=kafka_cluster.bootstrap)
    try:
        answer = client.elect_leaders(1, {topic: [1]}, raise_errors=False)
        assert "84" in str(answer) or "ElectionNotNeeded" in str(answer)
    finally:
        client.close()
