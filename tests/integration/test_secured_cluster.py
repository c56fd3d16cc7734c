"""A secured cluster as a test suite uses it: one word at its start, real clients, users, rights and bad certificates."""

import asyncio
import dataclasses
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer

from kafkatool import EmbeddedCluster
from kafkatool.broker.embedded.secured.certificates import Certificate
from kafkatool.commands.main import kt
from kafkatool.core.errors import NoNodeError, NoPermissionError, RefusedError
from kafkatool.core.zookeeper.acls import ALL_RIGHTS, READ, Acl, NodeAcls
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.integration.load import await_in_sync
from tests.steady import STEADY
from tests.waiting import eventually

PATIENCE_S = 90
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unhurried")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    directory = tmp_path_factory.mktemp("secured")
    before = os.umask(0)
    try:
        with EmbeddedCluster(
            2, directory=directory, options=STEADY, security="sasl_ssl", passwords={"alice": "alice-secret"}
        ) as made:
            made.create_topic("orders", 2)
            yield made
    finally:
        os.umask(before)


def produced(configuration: dict[str, Any], topic: str = "orders") -> str:
    """Produce one record by librdkafka; return the error's name, "" for none."""
    told: list[str] = []
    failed: list[str] = []
    producer = Producer(
        configuration | {"message.timeout.ms": PATIENCE_S * 1000, "error_cb": lambda e: failed.append(e.name())}
    )  # an error of the connection alone is passing: librdkafka tries again
    producer.produce(topic, b"x", on_delivery=lambda error, _: told.append(error.name() if error else ""))
    eventually(lambda: producer.poll(0.1) >= 0 and bool(told or "_AUTHENTICATION" in failed), "an answer", PATIENCE_S)
    if not told:
        producer.purge()
        producer.flush(1)
        return "_AUTHENTICATION"
    return told[0]


@pytest.mark.spec("SEC-48", "SEC-104", "SEC-107", "SEC-108")
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "SSL"])
def test_every_client_gets_in_by_every_mechanism(cluster: EmbeddedCluster, mechanism: str) -> None:
    assert produced(cluster.client("confluent", mechanism=mechanism)) == ""
    classic = KafkaProducer(**cluster.client("kafka-python", mechanism=mechanism))
    assert classic.send("orders", b"x").get(PATIENCE_S).offset >= 0
    classic.close()

    async def send() -> int:
        producer = AIOKafkaProducer(**cluster.client("aiokafka", mechanism=mechanism))
        await producer.start()
        try:
            offset: int = (await producer.send_and_wait("orders", b"x")).offset
            return offset
        finally:
            await producer.stop()

    assert asyncio.run(send()) >= 0
    consumer = Consumer(
        cluster.client("confluent", mechanism=mechanism)
        | {"group.id": f"g-{mechanism}", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe(["orders"])
    got: list[Any] = []

    def polled() -> bool:
        if (message := consumer.poll(0.5)) is not None:
            got.append(message)
        return bool(got)

    eventually(polled, "a record", PATIENCE_S)
    assert got[0].error() is None
    consumer.commit(asynchronous=False)
    consumer.close()


@pytest.mark.spec("SEC-107", "SEC-108", "SEC-67", "SEC-75")
def test_alice_may_nothing_until_she_is_allowed_and_a_new_user_can_log_in(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("hers")
    alice = cluster.client("confluent", user="alice", mechanism="SCRAM-SHA-256")
    assert produced(alice, "hers") == "TOPIC_AUTHORIZATION_FAILED"
    refused = (
        "Principal = User:alice is Denied Operation = Describe from host = 127.0.0.1 on resource = Topic:LITERAL:hers"
    )
    logs = [cluster.files.logs(broker) / "authorizer.log" for broker in (1, 2)]
    assert any(refused in path.read_text() for path in logs), [path.read_text() for path in logs]
    assert not any(refused in path.read_text() for path in cluster.log_ends()), "in a file of its own alone"
    cluster.allow("alice", "Write", topic="hers")
    assert produced(alice, "hers") == ""
    with pytest.raises(RefusedError, match="no user bob"):
        cluster.client("confluent", user="bob", mechanism="SCRAM-SHA-512")
    cluster.add_user("bob")
    cluster.allow("bob", "Write", topic="he", prefixed=True)
    bob = cluster.client("confluent", user="bob", mechanism="SCRAM-SHA-512")
    assert produced(bob, "hers") == ""


@pytest.mark.spec("SEC-116", "SEC-68", "SEC-109")
def test_a_wrong_password_or_certificate_does_not_get_in_and_is_told(cluster: EmbeddedCluster) -> None:
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        wrong = cluster.client("confluent", user="alice", mechanism=mechanism) | {"sasl.password": "wrong"}
        assert produced(wrong) == "_AUTHENTICATION"

    def logs() -> str:
        return "".join(path.read_text() for path in cluster.log_ends())

    def is_told(bad: Certificate, said: str) -> bool:
        """Try to get in; a broker that stands still for longer than the client waits sees no certificate at all."""
        files = {"ssl.certificate.location": str(bad.certificate), "ssl.key.location": str(bad.key)}
        wrong = cluster.client("confluent", mechanism="SSL") | files
        with pytest.raises(KafkaException):
            AdminClient(wrong).list_topics(timeout=5)
        return said in logs()

    late, strange = cluster.certificate("CN=late", expired=True), cluster.certificate("CN=strange", authority="other")
    eventually(lambda: is_told(late, "the TLS handshake failed: certificate has expired"), "the expired one to be told")
    early = cluster.certificate("CN=early", not_yet_valid=True)
    eventually(
        lambda: is_told(early, "the TLS handshake failed: certificate is not yet valid"), "the early one to be told"
    )
    eventually(lambda: is_told(strange, "the TLS handshake failed: "), "the strange one to be told")
    assert "could not log in by PLAIN as 'alice': unknown user or wrong password" in logs()
    assert "could not log in by SCRAM-SHA-512 as 'alice': wrong proof" in logs()
    assert "Traceback" not in logs()


@pytest.mark.spec("SEC-48", "SEC-49")
def test_replicas_controller_and_controlled_stop_log_in_at_each_other(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("moved", replication_factor=2)
    with cluster.zookeeper_session() as zk:
        await_in_sync(zk)  # it hands over to nobody else; another test may have ended a session just now
    leader = cluster.leader("moved")
    assert leader is not None
    cluster.stop_broker(leader)
    eventually(lambda: cluster.leader("moved") not in (None, leader), "another leader", PATIENCE_S)
    assert produced(cluster.client("confluent"), "moved") == ""
    cluster.start_broker(leader)
    own = cluster.files.output(leader).read_text()
    assert f"the controller has moved all leaders away from broker {leader}" in own


@pytest.mark.spec("SEC-48", "TXN-50", "TXN-77")
def test_markers_and_questions_of_transactions_log_in_at_other_brokers(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("paid", 2)
    assert {cluster.leader("paid", 0), cluster.leader("paid", 1)} == {1, 2}  # one of them is not the coordinator
    producer = Producer(cluster.client("confluent") | {"transactional.id": "till"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce("paid", b"x", partition=partition)
    producer.commit_transaction(PATIENCE_S)
    reader = {"group.id": "till", "isolation.level": "read_committed", "enable.auto.commit": False}
    consumer = Consumer(cluster.client("confluent") | reader)
    consumer.assign([TopicPartition("paid", partition, 0) for partition in (0, 1)])
    seen: list[int | None] = []

    def both_seen() -> bool:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            seen.append(message.partition())
        return len(seen) == 2

    eventually(both_seen, "the committed records", PATIENCE_S)
    consumer.close()
    assert sorted(map(str, seen)) == ["0", "1"]


@pytest.mark.spec("SEC-33", "ADM-105", "ADM-109", "SEC-107")
def test_what_brokers_say_of_themselves_is_asked_by_the_login_of_kt(cluster: EmbeddedCluster) -> None:
    login = ("--command-config", str(cluster.client("java", mechanism="SCRAM-SHA-256")))
    to_zookeeper = ("--zk-auth-file", str(cluster.security.login_file))
    by_zookeeper = CliRunner().invoke(kt, ["brokers", "--zookeeper", cluster.zookeeper, *login, *to_zookeeper])
    by_brokers = CliRunner().invoke(kt, ["brokers", "--bootstrap-server", cluster.bootstrap, *login])
    assert (by_zookeeper.exit_code, by_brokers.exit_code) == (0, 0), by_zookeeper.output + by_brokers.output
    health = CliRunner().invoke(kt, ["health", "--zookeeper", cluster.zookeeper, *login, *to_zookeeper])
    assert "did not answer" not in health.output and "listener" not in health.output
    without = CliRunner().invoke(kt, ["brokers", "--zookeeper", cluster.zookeeper, *to_zookeeper])
    assert without.exit_code == 1
    assert "brokers have no PLAINTEXT listener but" in without.output
    assert "give --command-config" in without.output


@pytest.mark.spec("SEC-45", "SEC-105", "SEC-106", "SEC-42", "SEC-109")
def test_its_files_are_for_their_owner_alone_and_nothing_tells_a_password(cluster: EmbeddedCluster) -> None:
    folder = cluster.security.directory
    for directory in (folder.parent, folder):  # the first has the brokers' records and logs
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    names = {path.name for path in folder.iterdir()}
    for kind in ("key", "pem", "p12"):
        assert {f"broker.{kind}", f"admin.{kind}"} <= names
    mechanisms = ("plain", "scram-sha-256", "scram-sha-512")
    files = {f"{user}-{m}.properties" for user in ("admin", "alice") for m in mechanisms}
    files |= {name.replace(".properties", ".librdkafka.properties") for name in files}
    assert files | {"ca.pem", "ca.key", "trust.p12", "jaas.conf", "admin-ssl.properties", "zk-tls.properties"} <= names
    secrets = {path.read_text() for path in folder.glob("*.password")}
    assert "alice-secret" in secrets
    assert all(len(secret) == 24 for secret in secrets - {"alice-secret"})
    said = json.dumps(dataclasses.asdict(cluster.status()))
    for text in [said, *(p.read_text() for p in cluster.files.directory.glob("broker-*/*.*") if p.is_file())]:
        assert not any(secret in text for secret in secrets)
    security = cluster.status().security
    assert security is not None
    assert set(security["password_files"]) >= {"admin", "alice"}
    told = (security["ca"], security["jaas"], security["zk_tls_properties"], *security["client_properties"])
    assert all(Path(path).exists() for path in told)
    assert security["zookeeper_sasl"] == {"mechanism": "DIGEST-MD5", "username": "kafka"}


@pytest.mark.spec("SEC-110", "SEC-28", "SEC-77")
def test_every_node_is_its_brokers_and_strangers_read_what_all_may(cluster: EmbeddedCluster) -> None:
    cluster.allow("alice", "Read", group="g")
    table = NodeAcls((Acl(ALL_RIGHTS, "sasl", "kafka"),))
    wrong: dict[str, set[Acl]] = {}
    with cluster.zookeeper_session() as zk:

        def walk(path: str) -> None:
            try:
                acls, children = set(zk.acls(path)), zk.children(path) or ()
            except NoNodeError:
                return  # a change node whose time has come
            if acls != set(table.of(path)):
                wrong[path] = acls
            for name in children:
                walk(f"{path.rstrip('/')}/{name}")

        walk("/")
        assert zk.children("/kafka-acl/Group") == ["g"]
    assert wrong == {"/zookeeper/config": {Acl(READ, "world", "anyone")}}, "that one nobody may change"
    with ZooKeeper(cluster.zookeeper) as stranger:
        assert stranger.get("/brokers/topics/orders") is not None
        with pytest.raises(NoPermissionError):
            stranger.get("/config/users/alice")
        for path in ("/mine", "/zookeeper/mine", "/brokers/mine", "/config/users/mine"):
            with pytest.raises(NoPermissionError):
                stranger.create(path)


@pytest.mark.spec("SEC-106", "SEC-110")
def test_kt_works_on_it_by_its_files_alone(cluster: EmbeddedCluster) -> None:
    told = cluster.status().security
    assert told is not None
    new = ("topics", "create", "--partitions", "1", "--replication-factor", "2", "--topic")

    def kt_says(*args: str) -> Result:
        return CliRunner(env={"KAFKA_OPTS": ""}).invoke(kt, args)

    login = ("--zk-auth-file", told["jaas"])
    assert kt_says(*new, "by-sasl", "--zookeeper", cluster.zookeeper, *login).exit_code == 0
    tls = ("--zookeeper", told["zookeeper_tls"], "--zk-tls-config-file", told["zk_tls_properties"])
    assert kt_says(*new, "by-tls", *tls, *login).exit_code == 0
    refused = kt_says(*new, "by-nobody", "--zookeeper", cluster.zookeeper)
    assert refused.exit_code == 1 and "belongs to sasl:kafka, this session has no login" in refused.output
    listed = kt_says("topics", "list", *tls).stdout.split()
    assert {"by-sasl", "by-tls"} <= set(listed) and "by-nobody" not in listed


@pytest.mark.spec("SEC-20", "SEC-27", "SEC-110")
def test_a_broker_whose_session_ends_logs_in_again(cluster: EmbeddedCluster) -> None:
    cluster.faults.expire_session(1)
    cluster.restore()
    assert produced(cluster.client("confluent")) == ""


@pytest.mark.spec("SEC-104")
@pytest.mark.parametrize("security", ["ssl", "sasl_plaintext"])
def test_the_other_protocols_work_with_one_word_too(security: Any) -> None:
    with EmbeddedCluster(2, options=STEADY, security=security) as cluster:
        cluster.create_topic("orders")
        assert produced(cluster.client("confluent")) == ""


@pytest.mark.spec("SEC-104")
def test_a_word_that_is_no_protocol_is_refused() -> None:
    with pytest.raises(RefusedError, match="there are plaintext, ssl, sasl_plaintext, sasl_ssl"):
        EmbeddedCluster(1, security="tls")
