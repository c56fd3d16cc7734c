"""``kt controller start --take-over`` on real secured clusters: it logs in at ZooKeeper and brokers, rules, and hands back.

Who lacks a login or a right deposes nobody.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from kafkatool.core.java_properties import parse_properties
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ControllerEpochZnode, ControllerZnode
from tests.compat import real_kafka
from tests.compat.secured_kafka import ALICE, SECRETS, SecuredKafka
from tests.steady import STEADY
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

OURS: Final = 900
WAIT_S: Final = 120
PROTOCOLS: Final = {"1.1.1": "1.1", "2.8.2": "2.3", "3.9.1": "2.6"}


@pytest.fixture(scope="module", params=real_kafka.versions(*PROTOCOLS))
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    version: str = request.param
    real_kafka.require(version)
    options = {**STEADY, "inter.broker.protocol.version": PROTOCOLS[version], "auto.leader.rebalance.enable": "false"}
    with SecuredKafka(version, tmp_path_factory.mktemp("secured") / version, options=options) as cluster:
        yield cluster


@pytest.fixture
def zk(kafka: SecuredKafka) -> Iterator[ZooKeeper]:
    with ZooKeeper(kafka.connect, security=kafka.access.zookeeper) as session:
        yield session


def server_properties(kafka: SecuredKafka, directory: Path, **changes: str) -> Path:
    """Write what a controller is told: what the brokers are told of their logins, but no listener of its own."""
    told = kafka.secured_broker(1, 2)
    kept = {k: v for k, v in told.items() if k.startswith(("ssl.", "sasl.", "security.", "zookeeper."))}
    file = directory / "controller.properties"
    file.touch(0o600)
    file.write_text("".join(f"{k}={v}\n" for k, v in {**kept, **changes}.items() if v))
    return file


def command(kafka: SecuredKafka, properties: Path, *flags: str) -> list[str]:
    connect = parse_properties(properties.read_text()).get("zookeeper.connect", kafka.connect)
    start = [sys.executable, "-m", "kafkatool", "controller", "start", "--take-over", "--zookeeper", connect]
    start += ["--broker-id", str(OURS), "--config", str(properties), "--log-dir", str(properties.parent / "logs")]
    return [*start, *flags]


def ruler(zk: ZooKeeper) -> tuple[int | None, int]:
    """Return who rules, and the epoch."""
    node, epoch = zk.get(ControllerZnode.PATH), zk.get(ControllerEpochZnode.PATH)
    assert epoch is not None
    return (ControllerZnode.decode(node.data) if node else None), ControllerEpochZnode.decode(epoch.data)


def create_by_kafkas_tool(kafka: SecuredKafka, topic: str) -> None:
    if kafka.version == "3.9.1":  # its tools ask brokers, among which they find no controller
        done = subprocess.run(
            [
                *(
                    sys.executable,
                    "-m",
                    "kafkatool",
                    "topics",
                    "create",
                    "--topic",
                    topic,
                    "--zookeeper",
                    kafka.connect,
                ),
                *("--partitions", "2", "--replication-factor", "2"),
            ],
            env={"KAFKA_OPTS": kafka.java_options, "HOME": str(kafka.files)},
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
    else:
        where = ("--zookeeper", kafka.connect, "--create", "--topic", topic)
        done = kafka.tool("kafka.admin.TopicCommand", *where, "--partitions", "2", "--replication-factor", "2")
    assert done.returncode == 0, done.stdout + done.stderr


def leaders(zk: ZooKeeper, topic: str) -> list[int | None]:
    states = read_cluster(zk, [topic]).states
    return [states[p].leader_and_isr.leader for p in sorted(states)]


@pytest.mark.spec("SEC-39", "SEC-112", "SEC-48")
def test_it_takes_the_place_rules_and_hands_it_back(kafka: SecuredKafka, zk: ZooKeeper, tmp_path: Path) -> None:
    properties = server_properties(kafka, tmp_path)
    before = ruler(zk)[1]
    output = tmp_path / "controller.out"
    with output.open("wb") as sink:
        environment = {"KAFKA_OPTS": kafka.java_options, "HOME": str(tmp_path)}
        process = subprocess.Popen(
            command(kafka, properties), stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, env=environment
        )
    try:

        def runs() -> bool:
            assert process.poll() is None, output.read_text()
            return f"controller {OURS} runs" in output.read_text()

        eventually(runs, "our controller to run", WAIT_S)
        assert ruler(zk) == (OURS, before + 1)
        create_by_kafkas_tool(kafka, "made")
        eventually(lambda: sorted(map(str, leaders(zk, "made"))) == ["1", "2"], "leaders by our controller", WAIT_S)
        acls = {str(acl) for acl in zk.acls("/brokers/topics/made/partitions/0/state")}
        assert acls == {"sasl:kafka:cdrwa", "world:anyone:r"}, "as brokers make it"
        kafka.kill_broker(1)
        eventually(lambda: leaders(zk, "made") == [2, 2], "the other to lead all", WAIT_S)
        kafka.start_broker(1)
        eventually(
            lambda: all(len(s.leader_and_isr.isr) == 2 for s in read_cluster(zk, ["made"]).states.values()),
            "the killed one to follow: it was told of its leader",
            WAIT_S,
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
        eventually(lambda: ruler(zk)[0] in kafka.ports, "a broker to rule", WAIT_S)
    finally:
        process.kill()
        process.wait()
    said = output.read_text() + "".join(f.read_text() for f in (tmp_path / "logs").glob("*.log"))
    assert "Traceback" not in said
    assert not [secret for secret in SECRETS if secret in said]


@pytest.mark.spec("SEC-39", "SEC-40", "SEC-25")
@pytest.mark.parametrize("lacking", ["listener", "password", "rights at brokers", "rights in ZooKeeper"])
def test_who_would_not_be_heard_deposes_nobody(
    kafka: SecuredKafka, zk: ZooKeeper, tmp_path: Path, lacking: str
) -> None:
    changes: dict[str, str] = {}
    login = kafka.java_options
    said = "no broker could be told anything: broker 1"
    if lacking == "listener":
        changes, said = (
            {"security.inter.broker.protocol": "PLAINTEXT"},
            f"{said} has no listener PLAINTEXT but SASL_SSL",
        )
    if lacking in ("password", "rights at brokers"):
        jaas = tmp_path / "jaas.conf"
        jaas.touch(0o600)
        mechanism = "org.apache.kafka.common.security.plain.PlainLoginModule"
        who = ("admin", "wrong") if lacking == "password" else ("alice", ALICE)
        sections = [part for part in kafka.jaas.read_text().split("\n") if part.startswith("Client")]
        ours = f'KafkaServer {{ {mechanism} required username="{who[0]}" password="{who[1]}"; }};'
        jaas.write_text("\n".join([*sections, ours, ""]))
        login = f"-Djava.security.auth.login.config={jaas}"
        said = "lacks ClusterAction" if lacking == "rights at brokers" else said
    if lacking == "rights in ZooKeeper":
        login, said = "", "sasl:kafka"
        jaas = tmp_path / "jaas.conf"
        jaas.touch(0o600)
        jaas.write_text("\n".join(p for p in kafka.jaas.read_text().split("\n") if not p.startswith("Client")))
        login = f"-Djava.security.auth.login.config={jaas}"
        changes = {"zookeeper.set.acl": ""}
    before = ruler(zk)
    done = subprocess.run(
        command(kafka, server_properties(kafka, tmp_path, **changes)),
        env={"KAFKA_OPTS": login, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 1 and said in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert ruler(zk) == before
