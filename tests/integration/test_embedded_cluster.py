"""kt cluster as a user runs it: up, status, kill, start, stop, down; second ups, taken ports, kill -9 of kt itself."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kafkatool.broker.embedded import ports as embedded_ports
from kafkatool.broker.embedded import processes
from kafkatool.broker.embedded import topics as embedded_topics
from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.broker.embedded.cluster_files import ClusterFiles
from kafkatool.broker.embedded.ports import free_ports
from kafkatool.broker.embedded.running import running_clusters
from kafkatool.core.client.connection import Connection
from kafkatool.core.errors import BrokerUnreachableError, KafkatoolError, RefusedError
from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.messages import create_topics
from kafkatool.core.security.client_security import ClientSecurity
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.steady import STEADY
from tests.waiting import eventually


def kt(*arguments: str, **options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kafkatool", *arguments], capture_output=True, text=True, timeout=90, check=False
    )


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "cluster"
    kt("cluster", "down", "--dir", str(tmp_path / "cluster"))


@pytest.mark.slow
def test_a_cluster_from_up_to_down(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = ("--dir", str(directory))
    steady = [word for name, value in STEADY.items() for word in ("-o", f"{name}={value}")]
    up = kt("cluster", "up", "--brokers", "2", *at, "-o", "num.io.threads=2", *steady)
    assert up.returncode == 0, up.stderr
    status = json.loads(kt("cluster", "status", *at, "--output", "json").stdout)
    assert [b["id"] for b in status["brokers"]] == [1, 2] and status["controller"] in (1, 2)
    assert status["bootstrap"] == ",".join(f"{b['host']}:{b['port']}" for b in status["brokers"])
    for broker in status["brokers"]:
        assert runs(broker["pid"]) and Path(broker["log_dirs"][0]).is_dir()
    assert "num.io.threads=2" in (directory / "broker-1" / "server.properties").read_text()

    assert running_clusters()[directory] == (status["zookeeper"], status["bootstrap"]), "kt's other commands find it"

    EmbeddedCluster(directory=directory).create_topic("t", partitions=3)
    filled = kt("cluster", "fill", "t", "--megabytes", "2", *at)
    assert filled.stdout == "2000 records written to t, and acknowledged by all replicas in sync\n", filled.stderr
    sizes = [sum(f.stat().st_size for f in (directory / "broker-1/data" / f"t-{p}").glob("*.log")) for p in range(3)]
    assert min(sizes) > 500_000 and 2_000_000 < sum(sizes) < 2_100_000, "in turn to each partition"
    assert filled_before_it_was_heard_of(EmbeddedCluster(directory=directory), "late", monkeypatch) == 1000
    missing = kt("cluster", "fill", "none", *at)
    assert missing.returncode == 1 and "UNKNOWN_TOPIC_OR_PARTITION" in missing.stderr

    again = kt("cluster", "up", *at)
    assert again.returncode == 1 and "runs in" in again.stderr and "kt cluster down" in again.stderr

    assert kt("cluster", "kill", "2", *at).returncode == 0
    dead = json.loads(kt("cluster", "status", *at, "--output", "json").stdout)
    assert dead["brokers"][1]["pid"] is None
    assert kt("cluster", "kill", "2", *at).returncode == 1
    assert kt("cluster", "start", "2", *at).returncode == 0
    assert kt("cluster", "start", "2", *at).returncode == 1
    assert kt("cluster", "stop", "2", *at).returncode == 0
    with ZooKeeper(status["zookeeper"]) as zk:
        eventually(lambda: 2 not in read_cluster(zk, [], states=False).brokers, "a stopped broker to be signed off")
    said = ClusterFiles(directory).output(2).read_text()  # the latter where ZooKeeper is too busy to answer
    assert "Zookeeper session closed" in said or "does not take leave" in said, "it signs off at once"
    assert kt("cluster", "stop", "9", *at).returncode == 1

    assert kt("cluster", "down", *at).returncode == 0
    assert directory not in running_clusters()
    for broker in status["brokers"]:
        assert not runs(broker["pid"])
    nobody = kt("cluster", "fill", "t", *at)
    assert nobody.returncode == 1 and "no broker of the cluster answers (kt cluster up)" in nobody.stderr
    ended = json.loads(kt("cluster", "status", *at, "--output", "json").stdout)
    assert ended["controller"] is None and all(b["pid"] is None for b in ended["brokers"])


def filled_before_it_was_heard_of(cluster: EmbeddedCluster, topic: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Have a topic made when all brokers have been asked for it; return how many records it was filled with."""
    asked: list[int] = []
    connect = embedded_topics._connect  # noqa: SLF001 -- so that it is known when all were asked

    def counted(port: int, security: ClientSecurity | None) -> Connection:
        asked.append(port)
        return connect(port, security)

    with monkeypatch.context() as patch, ThreadPoolExecutor() as pool:
        patch.setattr(embedded_topics, "_connect", counted)
        patch.setattr(embedded_topics, "_HEARD_OF_S", 120)  # the topic is made in its own time
        filling = pool.submit(cluster.fill_topic, topic, 1)
        eventually(lambda: len(asked) > 2 or filling.done(), "each broker to be asked, and one again")
        cluster.create_topic(topic)
        return filling.result()


def test_what_runs_on_without_its_files_is_neither_joined_nor_forgotten(directory: Path) -> None:
    """Somebody removed the directory while the cluster ran."""
    at = ("--dir", str(directory))
    assert kt("cluster", "up", "--brokers", "1", *at).returncode == 0
    shutil.rmtree(directory)
    refused = kt("cluster", "up", "--brokers", "1", *at)
    assert refused.returncode == 1 and "runs on without its files" in refused.stderr
    assert "end it with kt cluster down" in refused.stderr
    assert kt("cluster", "down", *at).returncode == 0
    assert not [p for p in psutil.process_iter() if _names(p, directory)]
    assert "nothing to end" in kt("cluster", "down", *at).stderr


def test_a_taken_port_is_told_before_anything_starts(directory: Path) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = str(s.getsockname()[1])
        up = kt("cluster", "up", "--brokers", "1", "--port", port, "--dir", str(directory))
    assert up.returncode == 1 and port in up.stderr and "taken" in up.stderr
    assert not (directory / "zookeeper").exists()


def test_a_broker_that_cannot_start_is_reported_with_its_words(directory: Path) -> None:
    up = kt("cluster", "up", "--brokers", "1", "--dir", str(directory), "-o", "inter.broker.protocol.version=0.8.2")
    assert up.returncode == 1 and "inter.broker.protocol.version" in up.stderr
    assert not [p for p in psutil.process_iter() if _names(p, directory)], "nothing is left running"


@pytest.mark.slow
@pytest.mark.parametrize("reached", ["lock", "cluster.json", "zookeeper", "broker-1", "broker-1/data"])
def test_up_killed_at_any_moment_does_not_stop_the_next_up(directory: Path, reached: str) -> None:
    command = [sys.executable, "-m", "kafkatool", "cluster", "up", "--brokers", "1", "--dir", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as first:
        eventually((directory / reached).exists, reached, 60)
        first.kill()
    spec = ClusterFiles(directory).load()
    second = kt("cluster", "up", "--brokers", "1", "--dir", str(directory))
    if (
        spec is not None and spec.complete
    ):  # this process stood still before the kill: a cluster that runs is left alone
        assert second.returncode == 1 and "runs in" in second.stderr
    else:
        assert second.returncode == 0, second.stderr


@pytest.mark.slow
def test_a_foreground_cluster_ends_with_ctrl_c_and_its_orphans_with_the_next_up(directory: Path) -> None:
    command = [sys.executable, "-m", "kafkatool", "cluster", "up", "--foreground", "--brokers", "1"]
    running = subprocess.Popen([*command, "--dir", str(directory)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert running.stderr is not None
    assert b"Ctrl-C" in running.stderr.readline()
    running.send_signal(signal.SIGINT)
    assert running.wait(60) in (0, 130)
    assert not [p for p in psutil.process_iter() if _names(p, directory)]

    orphaned = subprocess.Popen([*command, "--dir", str(directory)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert orphaned.stderr is not None
    orphaned.stderr.readline()
    orphaned.kill()
    orphaned.wait()
    again = kt("cluster", "up", "--brokers", "1", "--dir", str(directory))
    assert again.returncode == 0, again.stderr
    for pipe in (running, orphaned):
        for stream in (pipe.stdout, pipe.stderr):
            assert stream is not None
            stream.close()


def test_the_context_manager_leaves_neither_processes_nor_files() -> None:
    with EmbeddedCluster(brokers=1) as cluster:
        directory = cluster.files.directory
        assert directory not in running_clusters(), "no command of a person's finds a test's cluster"
        pid = cluster.status().brokers[0].pid
        assert pid is not None and pid != os.getpid()
    assert not runs(pid)
    eventually(
        lambda: not directory.exists(), "the directory to go"
    )  # others look whether it is left over, and lock it


def test_the_data_of_an_earlier_run_is_there_after_down_and_up(directory: Path) -> None:
    with EmbeddedCluster(brokers=1, directory=directory) as cluster, ZooKeeper(cluster.zookeeper) as zk:
        before = read_cluster(zk, [], states=False).cluster_id
    with EmbeddedCluster(brokers=1, directory=directory) as cluster, ZooKeeper(cluster.zookeeper) as zk:
        assert read_cluster(zk, [], states=False).cluster_id == before
        eventually(lambda: cluster.status().controller == 1, "a controller")


def test_who_shares_is_asked_before_what_the_others_would_notice(directory: Path) -> None:
    asked: list[str] = []
    cluster = EmbeddedCluster(brokers=2, directory=directory, options=STEADY)
    cluster.share(before_breaking=lambda: asked.append(doing))
    try:
        topic = cluster.create_topic("t")
        faults = cluster.faults
        doing = "harmless"
        faults.answer("Produce", "NOT_COORDINATOR", topic=topic).end()
        faults.delay("Fetch", 1, client_id="mine").end()
        faults.move_leader(topic)
        assert asked == []
        breaking: dict[str, Callable[[], object]] = {
            "answer": lambda: faults.answer("Produce", "NOT_COORDINATOR").end(),
            "silence": lambda: faults.silence("*", broker=1).end(),
            "slow disk": lambda: faults.slow_disk(2, 1).end(),
            "fill disk": lambda: faults.fill_disk(2).end(),
            "cut off": lambda: faults.cut_off(2, zookeeper=False).end(),
            "expire session": lambda: faults.expire_session(2),
            "freeze": lambda: faults.freeze(2).end(),
            "stop": lambda: cluster.stop_broker(2),
            "kill": lambda: cluster.kill_broker(1),
        }
        for doing, what in breaking.items():
            what()
            assert asked and asked[-1] == doing
        assert len(asked) == 9
    finally:
        cluster.down()


@pytest.mark.slow
def test_the_port_of_a_broker_that_is_down_is_nobody_elses(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither while it is down nor while it starts, for which a busy machine takes half a minute."""

    def is_picked() -> bool:
        with monkeypatch.context() as patched:
            patched.setattr(embedded_ports, "candidate_ports", lambda: range(port, port + 1))
            return list(free_ports(1)) == [port]

    with EmbeddedCluster(brokers=2, directory=directory, options=STEADY) as cluster:
        port = cluster.status().brokers[1].port
        cluster.kill_broker(2)
        assert not is_picked()
        started: list[bool] = []
        spawn = processes.spawn

        def look_and_spawn(*given: Any) -> subprocess.Popen[bytes]:
            started.append(is_picked())
            return spawn(*given)

        with monkeypatch.context() as patched:
            patched.setattr(processes, "spawn", look_and_spawn)
            psutil.Process(cluster.status().brokers[0].pid).kill()
            eventually(lambda: cluster.status().brokers[0].pid is None, "it to end")
            cluster.restore()
        assert started == [False, False]


@pytest.mark.slow
def test_no_port_of_a_cluster_that_starts_is_anybody_elses(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = EmbeddedCluster(brokers=2, directory=directory, options=STEADY, security="sasl_ssl")
    picked: list[int] = []
    spawn = processes.spawn

    def look_and_spawn(*given: Any) -> subprocess.Popen[bytes]:
        for port in cluster.files.require().all_ports():
            with monkeypatch.context() as patched:
                patched.setattr(embedded_ports, "candidate_ports", lambda port=port: range(port, port + 1))
                picked.extend(p for p in free_ports(1) if p == port)
        return spawn(*given)

    monkeypatch.setattr(processes, "spawn", look_and_spawn)
    with cluster:
        assert len(cluster.files.require().all_ports()) == 6, "ZooKeeper's two, and two of each broker"
    assert picked == []


@pytest.mark.slow
def test_what_is_restored_is_in_sync(directory: Path) -> None:
    """Else the next broker that is killed may be the only one that has all records."""
    with (
        EmbeddedCluster(brokers=3, directory=directory, options=STEADY) as cluster,
        ZooKeeper(cluster.zookeeper) as zk,
    ):
        cluster.create_topic("t", partitions=60)
        for started_again in (False, True):
            for broker in (1, 2):
                cluster.stop_broker(broker)
            if started_again:
                for broker in (1, 2):
                    cluster.start_broker(broker)
            cluster.restore()
            states = read_cluster(zk).states
            assert len(states) == 60
            assert [p for p, state in states.items() if set(state.leader_and_isr.isr) != {1, 2, 3}] == []


def test_what_adjust_returns_is_looked_at_before_a_broker_starts(directory: Path) -> None:
    cluster = EmbeddedCluster(1, directory=directory, adjust=lambda broker_id, properties: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(RefusedError, match="returned None: a dict is wanted"):
        cluster.up()
    assert not cluster.files.properties(1).exists()


def test_a_cluster_that_was_let_go_is_its_guardians(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with EmbeddedCluster(brokers=1) as cluster:
        cluster.kill_broker(1)
        cluster.let_go()
        with pytest.raises(KafkatoolError, match=r"was let go|no cluster runs"):
            cluster.start_broker(1)
        eventually(lambda: not list(tmp_path.iterdir()), "its guardian to end it")


def test_a_topic_whose_making_was_not_answered_is_no_other_topic(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the controller is killed when it has made it; one that was there before is another's."""
    send = Connection.send
    cut: list[Any] = []

    def send_and_lose(self: Connection, api: Api, *more: Any, **options: Any) -> Any:
        answer = send(self, api, *more, **options)
        if api is create_topics.API and not cut:
            cut.append(answer)
            raise BrokerUnreachableError("the connection ended")
        return answer

    with EmbeddedCluster(brokers=1, directory=directory, options=STEADY) as cluster:
        with monkeypatch.context() as patched:
            patched.setattr(Connection, "send", send_and_lose)
            assert cluster.create_topic("made", 2) == "made"
        assert [t.error_code for t in cut[0].topics] == [0]
        with pytest.raises(RefusedError, match="topic made is not made: Topic 'made' already exists"):
            cluster.create_topic("made", 2)


def told_brokers(port: int) -> set[int]:
    """Return the brokers that the one at that port tells of; none while it is silent."""
    try:
        return set(AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"}).list_topics(timeout=10).brokers)
    except KafkaException:
        return set()


def refuse(*_: object, **__: object) -> None:
    raise RefusedError("no.")


def runs(pid: int) -> bool:
    """Tell whether the process lives; a zombie nobody has reaped yet does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _names(process: psutil.Process, directory: Path) -> bool:
    try:
        return any(str(directory) in argument for argument in process.cmdline())
    except psutil.Error:
        return False
