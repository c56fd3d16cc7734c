"""Each condition of ``kt migrate check`` broken on purpose on real Kafka 3.9.1, found alone or with what it brings, mended.

What is not broken here: change nodes that nobody takes up for 15 minutes; a mark for deletion where topics may not be
deleted, which 3.9.1 takes off at once; an authorizer that is none of Kafka's; a voter that lags behind.
"""

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from kafkatool.commands.main import kt
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import (
    AclsZnode,
    AdminZnode,
    BrokerZnode,
    ConfigZnode,
    ControllerEpochZnode,
    DelegationTokensZnode,
    DeleteTopicsZnode,
    MigrationZnode,
    PartitionStateZnode,
    TopicZnode,
)
from tests.compat import real_kafka
from tests.compat.migrating_kafka import CONTROLLER, VERSION, MigratingKafka
from tests.compat.migration_checks import told_alone
from tests.ports import free_port
from tests.steady import LASTING, ONE_BATCH_A_FETCH
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.slowest, pytest.mark.timeout(1800)]

OLDER: Final = "2.8.2"
NOTHING: Final[dict[str, tuple[str, str]]] = {}
SCRAM: Final = {"SCRAM-SHA-256": "salt=YQ==,stored_key=YQ==,server_key=YQ==,iterations=4096"}
QUOTA: Final = {"producer_byte_rate": "1000000"}
UNTOLD: Final = ("ibp", "software", "jbod", "acl", "unsupported_config", "strays")
"""What a broker that does not answer leaves unknown."""


def run(*words: object) -> None:
    done = CliRunner().invoke(kt, [*map(str, words)])
    assert done.exit_code == 0, done.output


def data(zk: ZooKeeper, path: str) -> bytes:
    node = zk.get(path)
    assert node is not None, path
    return node.data


@contextmanager
def made(zk: ZooKeeper, path: str, content: bytes = b"") -> Iterator[None]:
    """Have the node there while the block runs; parents that it needs stay."""
    zk.create(path, content, make_parents=True)
    yield
    zk.delete(path)


@contextmanager
def rewritten(zk: ZooKeeper, path: str, content: bytes) -> Iterator[None]:
    """Have the node hold that while the block runs."""
    before = zk.get(path)
    assert before is not None
    zk.set(path, content, before.version)
    yield
    zk.set(path, before.data, before.version + 1)


@contextmanager
def topic_by_znode(zk: ZooKeeper, name: str, partitions: Mapping[str, list[int]]) -> Iterator[None]:
    """Have a topic that no tool would make; the controller takes it up, and deletes it again."""
    zk.create(TopicZnode.path(name), json.dumps({"version": 1, "partitions": partitions}).encode())
    yield
    zk.create(DeleteTopicsZnode.topic_path(name))
    eventually(lambda: zk.get(TopicZnode.path(name)) is None, f"{name} deleted", 120)


def with_raw(zk: ZooKeeper, path: str, **changed: object) -> bytes:
    """Return the node's object with other values."""
    value: dict[str, Any] = json.loads(data(zk, path))
    return json.dumps({**value, **changed}).encode()


def migration(epoch: int, offset: int, **more: object) -> bytes:
    return json.dumps(
        {
            "version": 0,
            "kraft_controller_id": CONTROLLER,
            "kraft_controller_epoch": epoch,
            "kraft_metadata_offset": offset,
            "kraft_metadata_epoch": 1,
            **more,
        }
    ).encode()


@pytest.mark.spec("ADM-75", "ADM-101", "ADM-104")
def test_what_is_wrong_with_znodes_is_found_alone(tmp_path: Path) -> None:
    real_kafka.require(VERSION)
    with MigratingKafka(tmp_path, options={**LASTING, **ONE_BATCH_A_FETCH}) as kafka, ZooKeeper(kafka.connect) as zk:
        by_zookeeper, by_request = ("--zookeeper", kafka.connect), ("--bootstrap-server", kafka.bootstrap)
        assigned = ("--topic", "t", "--replica-assignment", "1:2,2:1", "--config", "retention.ms=9000000")
        run("topics", "create", *by_zookeeper, *assigned)
        told_alone(kafka, NOTHING)

        with made(zk, f"{AdminZnode.PATH}/somebody's"):
            told_alone(kafka, {"stray_admin": ("warning", "below /admin: somebody's")})
        with made(zk, MigrationZnode.PATH, migration(-1, -1, later_key=1)):
            rows = told_alone(kafka, {"phase": ("blocker", "inconsistent: ")})
            assert "unknown keys later_key" in rows["phase"]["evidence"]
        epoch = int(data(zk, ControllerEpochZnode.PATH))
        with made(zk, MigrationZnode.PATH, migration(epoch, 99)):
            rows = told_alone(kafka, {"residue": ("blocker", "/migration is still there")})
            assert rows["phase"]["evidence"].startswith("rolled_back: ")
        with made(zk, MigrationZnode.PATH, migration(epoch + 1, 99)):  # only what is left of a migration has an epoch
            residue = ("blocker", "/migration is still there")
            told_alone(kafka, {"residue": residue, "epoch": ("blocker", f"/migration has {epoch + 1}")})

        with topic_by_znode(zk, "a.b", {"0": [1]}), topic_by_znode(zk, "a_b", {"0": [2]}):
            told_alone(kafka, {"names": ("warning", "collide in metrics: a.b, a_b")})
        with topic_by_znode(zk, "a b", {"0": [1]}):
            told_alone(kafka, {"names": ("blocker", "illegal names: a b")})
        with topic_by_znode(zk, "gap", {"0": [1], "2": [1]}):
            told_alone(kafka, {"assignments": ("blocker", "partitions are not 0 to n-1: gap")})
        with made(zk, ConfigZnode.path("topics", "nobodys"), ConfigZnode.encode({})):
            told_alone(kafka, {"assignments": ("warning", "configs of no topic: nobodys")})
        with rewritten(zk, ConfigZnode.path("topics", "t"), b"?"):
            told_alone(kafka, {"assignments": ("blocker", "cannot be read: /config/topics/t")})
        topic = TopicZnode.path("t")
        with rewritten(zk, topic, with_raw(zk, topic, topic_id=None)):
            told_alone(kafka, {"topic_id": ("note", "without id: t")})

        with made(zk, f"{AclsZnode.PATH}/Topic/t", b'{"version":1,"acls":[]}'):
            told_alone(kafka, {"acl": ("note", "1 resource has ACLs")})
        with made(zk, ConfigZnode.path("users", "alice"), ConfigZnode.encode(SCRAM)):
            told_alone(kafka, {"scram": ("note", "users with SCRAM: alice")})
        with made(zk, ConfigZnode.path("clients", "c"), ConfigZnode.encode({"producer_byte_rate": "many"})):
            told_alone(kafka, {"quotas": ("blocker", "no numbers: clients/c")})
        with made(zk, ConfigZnode.path("brokers", "1"), ConfigZnode.encode({"log.cleaner.threads": "1"})):
            rows = told_alone(kafka, {"dynamic_configs": ("warning", "broker 1: log.cleaner.threads")})
            assert "password.encoder.secret" not in rows["dynamic_configs"]["remedy"]
        secret = ConfigZnode.encode({"listener.name.external.ssl.keystore.password": "encoded"})
        with made(zk, ConfigZnode.path("brokers", ConfigZnode.DEFAULT), secret):
            rows = told_alone(kafka, {"dynamic_configs": ("warning", "all brokers: listener.name.external")})
            assert "password.encoder.secret" in rows["dynamic_configs"]["remedy"]
        with rewritten(zk, ConfigZnode.path("topics", "t"), ConfigZnode.encode({"message.format.version": "2.8-IV1"})):
            told_alone(kafka, {"unsupported_config": ("note", "t: message.format.version")})
        told_alone(kafka, NOTHING)

        # a move: its throttle is a dynamic config of the brokers; what it adds is not missing from what is in sync
        run("topics", "create", *by_zookeeper, "--topic", "moving", "--replica-assignment", "1")
        told_alone(kafka, NOTHING)
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "batch.num.messages": 1, "log_level": 0})
        for _ in range(40):
            producer.produce("moving", bytes(50_000))
        assert producer.flush(120) == 0
        plan = tmp_path / "plan.json"
        plan.write_text('{"version":1,"partitions":[{"topic":"moving","partition":0,"replicas":[1,2]}]}')
        words = ("--reassignment-json-file", plan, "--rollback-file", tmp_path / "back.json")
        run("reassign", "--execute", "--throttle", 1, *words, *by_request)
        throttle = ("warning", "replication.throttled.rate")
        told_alone(kafka, {"reassignment": ("blocker", "moving: moving-0"), "dynamic_configs": throttle})
        run("reassign", "--cancel", *words[:2], *by_request)
        told_alone(kafka, NOTHING)

        # at last, as the controller goes on with what it has in mind of it: a state that nobody can read
        run("topics", "create", *by_zookeeper, "--topic", "torn", "--replica-assignment", "1:2")
        told_alone(kafka, NOTHING)
        with rewritten(zk, PartitionStateZnode.path(TopicPartition("torn", 0)), b"?"):
            unread = {"assignments": ("blocker", "cannot be read: torn-0"), "offline": ("blocker", "torn-0")}
            told_alone(kafka, unread)
        told_alone(kafka, NOTHING)


@pytest.mark.spec("ADM-101", "ADM-104")
def test_what_is_wrong_with_brokers_is_found_alone(tmp_path: Path) -> None:
    for version in (VERSION, OLDER):
        real_kafka.require(version)
    with (
        MigratingKafka(tmp_path / "kafka", options=LASTING) as kafka,
        ZooKeeper(kafka.connect) as zk,
    ):
        run("topics", "create", "--zookeeper", kafka.connect, "--topic", "t", "--replica-assignment", "1:2,2:1")
        told_alone(kafka, NOTHING)

        def second(*, release: str = VERSION, **options: object) -> None:
            """Start the second broker anew, with those options alone."""
            kafka.restart(2, "zookeeper", {k.replace("_", "."): v for k, v in options.items()}, release=release)

        os.kill(kafka.pid(2), signal.SIGSTOP)  # its session outlasts that
        try:
            told_alone(kafka, dict.fromkeys(UNTOLD, ("unknown", "of broker 2")))
        finally:
            os.kill(kafka.pid(2), signal.SIGCONT)
        told_alone(kafka, NOTHING)

        second(inter_broker_protocol_version="3.3")
        told_alone(kafka, {"ibp": ("blocker", "broker 1: 3.9-IV0, broker 2: 3.3")})
        second(inter_broker_protocol_version="3.8")
        told_alone(kafka, {"ibp": ("blocker", "broker 1: 3.9-IV0, broker 2: 3.8")})
        first, other = kafka.data_directory(2), tmp_path / "other"
        second(log_dirs=f"{first},{other}", inter_broker_protocol_version="3.7-IV1")  # one directory more needs 3.7-IV2
        two = ("blocker", "broker 2: 2 log directories before 3.7")
        told_alone(kafka, {"jbod": two, "ibp": ("blocker", "broker 2: 3.7-IV1")})
        shutil.move(other, tmp_path / "gone")
        other.write_bytes(b"")  # a file: as unusable as a broken disk
        second(log_dirs=f"{first},{other}")
        told_alone(kafka, {"jbod": ("warning", f"broker 2: offline {other}")})
        second(
            authorizer_class_name="kafka.security.authorizer.AclAuthorizer", super_users="User:ANONYMOUS"
        )  # of one broker alone
        told_alone(kafka, {"acl": ("blocker", "authorizers differ: kafka.security.authorizer.AclAuthorizer, none")})
        second(
            listeners=f"PLAINTEXT://127.0.0.1:{kafka.ports[2]},CP://127.0.0.1:{free_port()}",
            listener_security_protocol_map="CP:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            control_plane_listener_name="CP",
        )
        told_alone(kafka, {"unsupported_config": ("note", "control.plane.listener.name on brokers 2")})

        kafka.stop_broker(2)
        dead = "brokers 2 are assigned replicas and not registered"
        told_alone(kafka, {"under_replicated": ("blocker", dead)})
        shutil.copytree(first / "t-0", first / "ghost-0")
        kafka.start_as(2, "zookeeper")
        told_alone(kafka, {"strays": ("warning", "broker 2 holds what no assignment names: ghost-0")})
        kafka.stop_broker(2)
        shutil.rmtree(first / "ghost-0")
        kafka.start_as(2, "zookeeper")
        told_alone(kafka, NOTHING)

        run("topics", "create", "--zookeeper", kafka.connect, "--topic", "single", "--replica-assignment", "2")
        told_alone(kafka, NOTHING)
        kafka.stop_broker(2)
        told_alone(
            kafka, {"offline": ("blocker", "without live leader: single-0"), "under_replicated": ("blocker", dead)}
        )
        zk.create(DeleteTopicsZnode.topic_path("t"))  # which waits for the dead one
        deleted = ("blocker", "being deleted: t")
        told_alone(
            kafka,
            {
                "deletion": deleted,
                "offline": ("blocker", "without live leader: single-0"),
                "under_replicated": ("blocker", dead),
            },
        )
        kafka.start_as(2, "zookeeper")
        told_alone(kafka, NOTHING)
        assert zk.get(TopicZnode.path("t")) is None

        kafka.start_as(3, "zookeeper", {"broker.id": None})
        told_alone(kafka, {"broker_id": ("blocker", "brokers 1001 have generated ids")})
        kafka.stop_broker(3)
        told_alone(kafka, NOTHING)

        # what an older release does not carry over is a finding beside it; with 3.9 the same is a note at most
        with (
            made(zk, ConfigZnode.path("users", "alice"), ConfigZnode.encode(SCRAM)),
            made(zk, ConfigZnode.path("users", "bob@home"), ConfigZnode.encode(QUOTA)),
            made(zk, f"{DelegationTokensZnode.PATH}/token"),
        ):
            told_alone(kafka, {"scram": ("note", "alice")})
            kafka.restart(1, "zookeeper", {"inter.broker.protocol.version": "2.8"})
            second(release=OLDER, inter_broker_protocol_version="2.8")
            told_alone(
                kafka,
                {
                    "software": ("blocker", "broker 2: 2.8"),
                    "ibp": ("blocker", "2.8"),
                    "scram": ("warning", "alice"),
                    "delegation_tokens": ("warning", "1 delegation tokens"),
                    "quotas": ("warning", "users/bob%40home"),
                    "producer_ids": ("warning", "producer ids may be given twice"),
                },
            )
        second()
        kafka.restart(1, "zookeeper")
        told_alone(kafka, NOTHING)


@pytest.mark.spec("ADM-101", "ADM-102", "ADM-104")
def test_what_is_wrong_amid_a_migration_is_found_alone(tmp_path: Path) -> None:
    real_kafka.require(VERSION)
    with MigratingKafka(tmp_path, options=LASTING) as kafka, ZooKeeper(kafka.connect) as zk:
        assigned = ("--topic", "t", "--replica-assignment", "1:2,2:1", "--config", "retention.ms=9000000")
        run("topics", "create", "--zookeeper", kafka.connect, *assigned)
        asked = ("--bootstrap-controller", kafka.controller)
        kafka.start_controller(metadata_version="3.8")
        below = "metadata.version 3.8-IV0 is below the brokers' inter.broker.protocol.version 3.9-IV0"
        rows = told_alone(kafka, {"controllers": ("blocker", below)}, *asked)
        assert rows["phase"]["evidence"].startswith("waiting: ")
        kafka.stop_controller(for_good=True)
        zk.delete(MigrationZnode.PATH)
        kafka.start_controller()
        told_alone(kafka, NOTHING, *asked)
        kafka.start_as(3, "zookeeper", {"broker.id": CONTROLLER, "broker.id.generation.enable": "false"})
        told_alone(kafka, {"broker_id": ("blocker", f"controller has a broker's id: {CONTROLLER}")}, *asked)
        kafka.stop_broker(3)
        for broker in (1, 2):
            kafka.restart(broker, "migrating")
        rows = told_alone(kafka, NOTHING, *asked)
        assert rows["phase"]["evidence"].startswith("hybrid: ")

        kafka.start_as(4, "zookeeper")  # one that was forgotten
        told_alone(kafka, {"registered": ("blocker", "brokers 4 are in /brokers/ids, and not in the metadata")}, *asked)
        kafka.kill_broker(4)  # it would wait for a controller
        zk.delete(BrokerZnode.path(4))
        told_alone(kafka, NOTHING, *asked)

        kafka.restart(1, "kraft")
        told_alone(kafka, NOTHING, *asked)
        state, topic, config = (
            PartitionStateZnode.path(TopicPartition("t", 0)),
            TopicZnode.path("t"),
            ConfigZnode.path("topics", "t"),
        )
        epoch = json.loads(data(zk, state))["leader_epoch"]
        with rewritten(zk, state, with_raw(zk, state, leader_epoch=epoch + 7)):
            rows = told_alone(kafka, {"diverged": ("blocker", "t-0: in ZooKeeper (")}, *asked)
            assert f"leader epoch {epoch + 7}" in rows["diverged"]["evidence"].split("by the brokers")[0]
            assert f"leader epoch {epoch}," in rows["diverged"]["evidence"].split("by the brokers")[1]
        with rewritten(zk, topic, with_raw(zk, topic, topic_id="AAAAAAAAAAAAAAAAAAAABw")):
            told_alone(kafka, {"diverged": ("blocker", "t: in ZooKeeper (id AAAAAAAAAAAAAAAAAAAABw)")}, *asked)
        with rewritten(zk, topic, with_raw(zk, topic, partitions={"0": [2, 1], "1": [2, 1]})):
            told_alone(kafka, {"diverged": ("blocker", "t-0: in ZooKeeper (replicas 2,1, leader")}, *asked)
        with rewritten(zk, config, ConfigZnode.encode({"retention.ms": "1"})):
            both = "t overrides: in ZooKeeper (retention.ms=1), by the brokers (retention.ms=9000000)"
            told_alone(kafka, {"diverged": ("blocker", both)}, *asked)
        told_alone(kafka, NOTHING, *asked)

        # from here on nothing is mended: the last broker with ZooKeeper is lost there, and then finalizing begins
        registered = data(zk, BrokerZnode.path(2))
        zk.delete(BrokerZnode.path(2))
        rows = told_alone(kafka, {"not_reregistered": ("blocker", "brokers 2 still answer as ZooKeeper")}, *asked)
        assert rows["phase"]["evidence"].startswith("dual_write: ")
        with made(zk, BrokerZnode.path(2), registered):
            told_alone(kafka, NOTHING, *asked)
            kafka.stop_controller()
            kafka.start_controller(migrating=False)
            told_alone(kafka, {"controllers": ("blocker", "not set to migrate any more")}, *asked)


@pytest.mark.spec("ADM-104")
def test_the_time_for_10_000_partitions_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    real_kafka.require(VERSION)
    options = {**LASTING, "log.index.size.max.bytes": "100000"}
    with MigratingKafka(tmp_path, options=options, heap="1g") as kafka:
        begun = time.monotonic()
        for number in range(10):
            assigned = ",".join(["1:2", "2:1"] * 500)
            run(
                "topics",
                "create",
                "--zookeeper",
                kafka.connect,
                "--topic",
                f"t{number}",
                "--replica-assignment",
                assigned,
            )
        told_alone(kafka, NOTHING, within_s=900)
        ready_s = time.monotonic() - begun
        words = ("--zookeeper", kafka.connect, "--bootstrap-server", kafka.bootstrap, "--output", "json")
        took_s = []
        for _ in range(5):
            begun = time.monotonic()
            done = subprocess.run(
                [sys.executable, "-m", "kafkatool", "migrate", "check", *words],
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            )
            took_s.append(time.monotonic() - begun)
            assert done.returncode == 0, done.stdout + done.stderr
    with capsys.disabled():
        print(
            f"\nkt migrate check of 10,000 partitions x 2 on Kafka {VERSION} with ZooKeeper, the whole process, five runs: "
            f"median {statistics.median(took_s):.2f} s, {min(took_s):.2f} to {max(took_s):.2f} s; load average "
            f"{os.getloadavg()[0]:.1f}; they were ready after {ready_s:.0f} s"
        )
