"""Kafka's own tools for ACLs, users and quotas on a broker of ours with an authorizer."""

import json
import re
import subprocess
from collections.abc import Iterator
from typing import Final

import pytest

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.core.java import find_java
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.compat import real_kafka
from tests.steady import LASTING

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

VERSION: Final = "2.8.2"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    real_kafka.require(VERSION)
    options = {
        **LASTING,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with EmbeddedCluster(1, directory=tmp_path_factory.mktemp("cluster"), options=options) as running:
        yield running


def tool(main: str, cluster: EmbeddedCluster, *arguments: str, expected: int = 0) -> str:
    java = [str(find_java().executable), "-Xmx256M", "-cp", f"{real_kafka.libraries(VERSION)}/*"]
    command = [*java, main, "--bootstrap-server", cluster.bootstrap, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == expected, f"{main} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout + (done.stderr if expected else "")


def acls(cluster: EmbeddedCluster, *arguments: str) -> str:
    return tool("kafka.admin.AclCommand", cluster, *arguments)


def entries(text: str) -> list[str]:
    """Return the entries under ``Current ACLs``, which Kafka's tools print in no order."""
    return sorted(re.findall(r"\(principal=.*?\)", text.partition("Current ACLs")[2]))


def configs(cluster: EmbeddedCluster, *arguments: str) -> str:
    return tool("kafka.admin.ConfigCommand", cluster, *arguments)


def data(cluster: EmbeddedCluster, path: str) -> bytes | None:
    with ZooKeeper(cluster.zookeeper) as zk:
        node = zk.get(path)
        return None if node is None else node.data


@pytest.mark.spec("SEC-77", "SEC-88", "SEC-89", "SEC-113")
def test_kafka_acls_adds_lists_and_removes_and_the_broker_goes_by_it(cluster: EmbeddedCluster) -> None:
    add = ("--add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders")
    alice = "(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)"
    assert entries(acls(cluster, *add)) == [alice]
    assert data(cluster, "/kafka-acl/Topic/orders") == (
        b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","operation":"Read","host":"*"}]}'
    )
    assert entries(acls(cluster, *add)) == [alice], "once more changes nothing"
    acls(cluster, "--add", "--deny-principal", "User:ANONYMOUS", "--operation", "Describe", "--topic", "orders")
    acls(cluster, *add[:-1], "pay", "--resource-pattern-type", "prefixed")
    assert len(entries(acls(cluster, "--list", "--topic", "orders"))) == 2
    matching = acls(cluster, "--list", "--topic", "payments", "--resource-pattern-type", "match")
    assert "ResourcePattern(resourceType=TOPIC, name=pay, patternType=PREFIXED)" in matching
    refused = tool("kafka.admin.TopicCommand", cluster, "--describe", "--topic", "orders", expected=1)
    assert "does not exist as expected" in refused
    acls(cluster, "--remove", "--force", "--topic", "orders")
    acls(cluster, "--remove", "--force", "--topic", "pay", "--resource-pattern-type", "prefixed")
    assert acls(cluster, "--list").strip() == ""
    assert data(cluster, "/kafka-acl/Topic/orders") is None


@pytest.mark.spec("SEC-90", "ADM-79", "SEC-113")
def test_kafka_configs_sets_describes_and_deletes_scram_users(cluster: EmbeddedCluster) -> None:
    user = ("--entity-type", "users", "--entity-name", "bob")
    secret = "SCRAM-SHA-256=[iterations=8192,password=bob-secret],SCRAM-SHA-512=[password=bob-secret]"
    assert "Completed updating config for user bob." in configs(cluster, "--alter", *user, "--add-config", secret)
    described = configs(cluster, "--describe", *user)
    assert "SCRAM-SHA-256=iterations=8192" in described and "SCRAM-SHA-512=iterations=4096" in described
    node = data(cluster, "/config/users/bob")
    assert node is not None and b'"SCRAM-SHA-256":"salt=' in node and b"iterations=8192" in node
    configs(cluster, "--alter", *user, "--delete-config", "SCRAM-SHA-256")
    left = configs(cluster, "--describe", *user)
    assert "SCRAM-SHA-512" in left and "SCRAM-SHA-256" not in left
    few = tool(
        "kafka.admin.ConfigCommand", cluster, "--alter", *user,
        "--add-config", "SCRAM-SHA-256=[iterations=20000,password=x]", expected=1,
    )  # fmt: skip
    assert "Too many iterations" in few


@pytest.mark.spec("ADM-77", "ADM-78", "SEC-113")
def test_kafka_configs_sets_and_describes_quotas_of_users_and_clients(cluster: EmbeddedCluster) -> None:
    both = ("--entity-type", "users", "--entity-name", "a b", "--entity-type", "clients", "--entity-name", "c")
    configs(cluster, "--alter", *both, "--add-config", "producer_byte_rate=1000,request_percentage=12.5")
    assert json.loads(data(cluster, "/config/users/a%20b/clients/c") or b"") == {
        "version": 1,
        "config": {"producer_byte_rate": "1000", "request_percentage": "12.5"},
    }
    described = configs(cluster, "--describe", *both)
    assert "producer_byte_rate=1000.0" in described and "request_percentage=12.5" in described
    configs(cluster, "--alter", *both, "--delete-config", "producer_byte_rate,request_percentage")
    configs(cluster, "--alter", "--entity-type", "clients", "--entity-default", "--add-config", "consumer_byte_rate=5")
    assert b"consumer_byte_rate" in (data(cluster, "/config/clients/<default>") or b"")
