"""Commands that ask every broker do all they do over one connection to each, whichever way they know of the brokers."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from kafkatool import __version__
from kafkatool.commands.main import kt
from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.client.connections import Connections
from kafkatool.core.client.settings import ClientSettings
from kafkatool.core.model.values import BrokerInfo, Endpoint
from kafkatool.core.operations.drain import by_request as drain_by_request
from kafkatool.core.operations.drain.by_znode import ByZnode
from kafkatool.core.operations.health import by_request, reading
from kafkatool.core.protocol.messages import alter_partition_reassignments, describe_log_dirs
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import BrokerZnode
from tests.core.client.fake_broker import FakeBroker
from tests.core.operations.health.test_by_request import COMMON, Cluster
from tests.core.zookeeper import cluster_nodes as nodes

pytestmark = [pytest.mark.spec("ADM-11"), pytest.mark.usefixtures("unhurried")]

ASKING_EACH = ("brokers", "health", "drain 2 --no-throttle --dry-run")


@pytest.fixture
def brokers(zk: ZooKeeper) -> Iterator[list[FakeBroker]]:
    """Three, of which ZooKeeper tells the same as they do."""
    cluster = Cluster({**COMMON, alter_partition_reassignments.API: (0, 0)})
    nodes.make_cluster(zk, brokers=(), topics={"t": {0: (1, 2)}}, controller=2)
    for broker in cluster.brokers:
        broker.cluster_id = "the-cluster"
        info = BrokerInfo(broker.id, (Endpoint("PLAINTEXT", *broker.address),))
        zk.create(BrokerZnode.path(broker.id), BrokerZnode.encode(info, 0))
    try:
        yield cluster.brokers
    finally:
        cluster.close()


def said(broker: FakeBroker) -> list[tuple[int, str, str]]:
    """Return what it was told by each ApiVersions, with the version."""
    asked = [(version, request) for api, version, request in broker.asked if api == "ApiVersions"]
    return [(version, request.client_software_name, request.client_software_version) for version, request in asked]


@pytest.mark.parametrize(
    ("command", "ways"),
    [
        *((command, way) for command in ASKING_EACH for way in ("--zookeeper", "--bootstrap-server")),
        ("migrate check", "--zookeeper --bootstrap-server"),
    ],
)
def test_each_broker_is_asked_over_one_by_a_kt_that_says_what_it_is(
    brokers: list[FakeBroker], zk_connect: str, tmp_path: Path, command: str, ways: str
) -> None:
    addresses = {"--zookeeper": zk_connect, "--bootstrap-server": ",".join(str(b.address) for b in brokers)}
    where = [word for way in ways.split() for word in (way, addresses[way])]
    (config := tmp_path / "client.properties").write_text("client.id=me\n")
    for number, (flags, name) in enumerate((((), f"kt-{command.split()[0]}"), (("--command-config", config), "me")), 1):
        for broker in brokers:
            broker.client_ids.clear()
        result = CliRunner().invoke(kt, [*command.split(), *map(str, (*where, *flags))])
        assert result.exit_code in (0, 1), result.output  # a verdict
        for broker in brokers:
            assert broker.count(describe_log_dirs.API) >= number
            assert broker.connections == number and broker.client_ids == {name}
            assert said(broker) == [(3, "kt", __version__)] * number


def test_further_looks_of_a_drain_and_at_the_health_are_over_the_same(brokers: list[FakeBroker], zk: ZooKeeper) -> None:
    with ClusterClient([brokers[0].address], ClientSettings()) as client, Connections() as connections:
        for _ in range(2):
            assert by_request.read(client).answers.told.keys() == {1, 2, 3}
            assert drain_by_request.ByRequest(client).look(None).answers.told.keys() == {1, 2, 3}
        assert [broker.connections for broker in brokers] == [1, 1, 1]
        for _ in range(2):
            assert reading.read(zk, connections).answers.told.keys() == {1, 2, 3}
            assert ByZnode(zk, connections).look(None).answers.told.keys() == {1, 2, 3}
    assert [broker.connections for broker in brokers] == [2, 2, 2]


def test_a_broker_that_was_away_between_two_looks_answers_the_second(brokers: list[FakeBroker]) -> None:
    with ClusterClient([brokers[0].address], ClientSettings()) as client:
        by_request.read(client)
        for broker in brokers:
            broker.drop_connections()
        assert by_request.read(client).answers.silent == {}
    assert [broker.connections for broker in brokers] == [2, 2, 2]
