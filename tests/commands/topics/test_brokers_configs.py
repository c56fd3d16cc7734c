"""Configs that kt does not know: the brokers' word counts, and where they cannot be asked, Kafka's history (TOP-21)."""

import pytest

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.core.model.topic_configs import CONFIGS
from kafkatool.core.operations.topics import brokers_configs
from kafkatool.core.operations.topics.brokers_configs import read_known_configs
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigZnode
from tests.commands.topics.runner import make_orders, topics
from tests.steady import STEADY
from tests.waiting import eventually

CREATE = ("create", "--topic", "new", "--replica-assignment", "1", "--config", "remote.storage.enable=false")


def stored(zk: ZooKeeper) -> dict[str, str]:
    node = zk.get(ConfigZnode.path("topics", "new"))
    return {} if node is None else dict(ConfigZnode.decode("new", node.data))


@pytest.mark.spec("TOP-21")
def test_what_the_brokers_know_may_be_set(zk: ZooKeeper, zk_connect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers_configs, "read_known_configs", lambda *_: frozenset(["remote.storage.enable"]))
    result = topics(zk_connect, *CREATE)
    assert result.exit_code == 0, result.output
    assert stored(zk) == {"remote.storage.enable": "false"} and "note" not in result.stderr
    altered = topics(zk_connect, "alter", "--topic", "new", "--delete-config", "remote.storage.enable")
    assert altered.exit_code == 0 and stored(zk) == {}


@pytest.mark.spec("TOP-21")
def test_what_the_brokers_do_not_know_is_refused(
    zk: ZooKeeper, zk_connect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brokers_configs, "read_known_configs", lambda *_: frozenset(CONFIGS))
    result = topics(zk_connect, *CREATE)
    assert result.exit_code == 1 and "Unknown Log configuration remote.storage.enable." in result.stdout
    assert stored(zk) == {}


@pytest.mark.spec("TOP-21")
def test_where_no_broker_can_be_asked_a_later_kafkas_config_passes_with_a_warning(
    zk: ZooKeeper, zk_connect: str
) -> None:
    make_orders(zk)  # whose brokers are names in ZooKeeper alone
    result = topics(zk_connect, *CREATE)
    assert result.exit_code == 0, result.output
    assert "no broker could be asked whether it knows remote.storage.enable, which Kafka has since 3.6" in result.stderr
    assert stored(zk) == {"remote.storage.enable": "false"}
    unknown = topics(zk_connect, "alter", "--topic", "new", "--config", "remote.storage.enabled=false")
    assert unknown.exit_code == 1 and "Unknown Log configuration remote.storage.enabled." in unknown.stdout


@pytest.mark.spec("TOP-21")
def test_a_broker_tells_what_it_knows_where_there_is_a_topic_to_ask_about() -> None:
    with EmbeddedCluster(brokers=1, options=STEADY) as cluster, ZooKeeper(cluster.zookeeper) as zk:
        assert read_known_configs(zk) is None
        made = topics(cluster.zookeeper, "create", "--topic", "t", "--replica-assignment", "1")
        assert made.exit_code == 0
        eventually(lambda: read_known_configs(zk) == frozenset(CONFIGS), "the broker to know of its topic")
