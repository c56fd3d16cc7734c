"""The ports of an embedded cluster, and what it refuses; processes are not started."""

from pathlib import Path

import pytest

from kafkatool.broker.embedded import cluster as embedded
from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.broker.embedded.cluster_files import ClusterFiles, ClusterSpec
from kafkatool.broker.embedded.zookeeper_process import ZooKeeperProcess
from kafkatool.core.errors import RefusedError


class NotStartedError(Exception):
    """Nothing was started yet; with the spec that is on the disk by then."""


@pytest.fixture(autouse=True)
def unlucky(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first ports picked at random be those that are given or were kept; and let nothing start."""

    def start(zookeeper: ZooKeeperProcess) -> None:
        raise NotStartedError(ClusterFiles(zookeeper.directory.parent).load())

    monkeypatch.setattr(embedded, "free_ports", lambda count: iter(range(9001, 9001 + count)))
    monkeypatch.setattr(embedded, "is_free", lambda port: True)
    monkeypatch.setattr("kafkatool.broker.embedded.zookeeper_process.ZooKeeperProcess.start", start)


def ports(directory: Path, brokers: int, *, port: int | None = None, zookeeper_port: int | None = None) -> list[int]:
    """Return the ports of ZooKeeper and of the brokers of a new cluster there."""
    with pytest.raises(NotStartedError) as not_started:
        EmbeddedCluster(brokers, directory=directory, port=port, zookeeper_port=zookeeper_port).up(owned=False)
    (spec,) = not_started.value.args
    return [spec.zookeeper_port, *spec.ports.values()]


@pytest.mark.parametrize(("port", "zookeeper_port"), [(9001, None), (None, 9001), (9003, 9001), (None, None)])
def test_a_port_picked_is_none_that_was_given(tmp_path: Path, port: int | None, zookeeper_port: int | None) -> None:
    found = ports(tmp_path, 2, port=port, zookeeper_port=zookeeper_port)
    assert len(set(found)) == 3
    assert found[1:] == [port, port + 1] if port else True
    assert found[0] == zookeeper_port if zookeeper_port else True


def test_a_port_picked_is_none_that_is_kept_and_a_port_given_is_kept_by_nobody_else(tmp_path: Path) -> None:
    ClusterFiles(tmp_path).save(ClusterSpec(9002, {1: 9001}))
    assert ports(tmp_path, 3) == [9002, 9001, 9003, 9004]
    found = ports(tmp_path, 3, port=9002)
    assert found[1:] == [9002, 9003, 9004] and len(set(found)) == 4


@pytest.mark.spec("GRP-5", "TXN-4")
@pytest.mark.parametrize(
    ("brokers", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "2"), (3, "3", "2"), (5, "3", "2")]
)
def test_the_factors_of_coordinators_topics_and_no_delay_are_in_the_properties_that_can_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, brokers: int, replicas: str, in_sync: str
) -> None:
    def start(*_: object) -> None:
        raise NotStartedError

    monkeypatch.setattr("kafkatool.broker.embedded.zookeeper_process.ZooKeeperProcess.start", lambda *_: None)
    monkeypatch.setattr("kafkatool.broker.embedded.processes.spawn", start)
    with pytest.raises(NotStartedError):
        EmbeddedCluster(brokers, directory=tmp_path).up(owned=False)
    lines = ClusterFiles(tmp_path).properties(1).read_text().splitlines()
    assert {f"offsets.topic.replication.factor={replicas}", "group.initial.rebalance.delay.ms=0"} <= set(lines)
    assert {
        f"transaction.state.log.replication.factor={replicas}",
        f"transaction.state.log.min.isr={in_sync}",
    } <= set(lines)


def test_a_client_of_an_open_cluster_needs_its_address_alone(tmp_path: Path) -> None:
    """So that the same test runs with --kafka-security and without."""
    ClusterFiles(tmp_path).save(ClusterSpec(9002, {1: 9001}))
    cluster = EmbeddedCluster(directory=tmp_path)
    assert cluster.client("confluent") == {"bootstrap.servers": "127.0.0.1:9001"}
    assert cluster.client("aiokafka", user="alice") == {"bootstrap_servers": "127.0.0.1:9001"}
    properties = cluster.client("java").read_text().splitlines()
    assert properties == ["bootstrap.servers=127.0.0.1:9001", "security.protocol=PLAINTEXT"]
    with pytest.raises(RefusedError, match="no client 'confluent_kafka': there are confluent"):
        cluster.client("confluent_kafka")
    with pytest.raises(RefusedError, match="this cluster is not secured"):
        cluster.client("confluent", mechanism="PLAIN")


def test_what_is_no_number_of_partitions_and_no_id_is_told_as_what_it_is(tmp_path: Path) -> None:
    ClusterFiles(tmp_path).save(ClusterSpec(9002, {1: 9001}))
    cluster = EmbeddedCluster(directory=tmp_path)
    with pytest.raises(RefusedError, match="'3' is no number of partitions"):
        cluster.create_topic("t", "3")  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match="no broker '1' in this cluster; it has 1"):
        cluster.kill_broker("1")  # type: ignore[arg-type]


def test_fewer_brokers_than_have_partitions_are_refused(tmp_path: Path) -> None:
    """Before anything is written or started: what lives on the others alone would be gone."""
    ClusterFiles(tmp_path).save(ClusterSpec(9002, {1: 9001, 2: 9003, 3: 9004}))
    spec = (tmp_path / "cluster.json").read_bytes()
    for replica in ("broker-1/data/orders-0", "broker-2/data/orders-12", "broker-3/data/orders-1.0a-delete"):
        (tmp_path / replica).mkdir(parents=True)
    for fewer in (EmbeddedCluster(1, directory=tmp_path).up, EmbeddedCluster(1, directory=tmp_path).share):
        with pytest.raises(RefusedError) as refused:
            fewer()
        assert str(refused.value) == (
            f"{tmp_path} holds partitions of broker 2, which would not be started: start 2 brokers (--brokers 2), name "
            f"another --dir, or wipe this one: rm -r {tmp_path}"
        )
        assert (tmp_path / "cluster.json").read_bytes() == spec
    assert ports(tmp_path, 2) == [9002, 9001, 9003], "broker 3 has none any more"


def test_an_up_that_fails_leaves_the_cluster_as_it_was_remembered(tmp_path: Path) -> None:
    before = ClusterSpec(9002, {1: 9001, 2: 9003}, {"num.io.threads": "2"}, complete=True, offered=True, run="before")
    ClusterFiles(tmp_path).save(before)
    with pytest.raises(NotStartedError):
        EmbeddedCluster(5, directory=tmp_path).up(owned=False)
    before.complete = False  # whatever becomes of it, it does not run
    assert ClusterFiles(tmp_path).load() == before


def test_two_that_are_given_the_same_port_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="port 9002 is for ZooKeeper and broker 2"):
        EmbeddedCluster(3, directory=tmp_path, port=9001, zookeeper_port=9002)


@pytest.mark.parametrize(
    ("before", "wanted", "flag"), [("sasl_ssl", "plaintext", "with"), ("plaintext", "ssl", "without")]
)
def test_a_directory_of_another_security_is_refused(tmp_path: Path, before: str, wanted: str, flag: str) -> None:
    """Its nodes are closed to who does not log in, or open to everybody who does not."""
    files = ClusterFiles(tmp_path)
    files.save(ClusterSpec(9002, {1: 9001}, security=before))
    files.zookeeper.mkdir()
    with pytest.raises(RefusedError, match=f"holds a cluster of security {before}, not {wanted}: .*{flag} --secure"):
        EmbeddedCluster(1, directory=tmp_path, security=wanted).up(owned=False)
    assert files.load() == ClusterSpec(9002, {1: 9001}, security=before)
