"""Configs that kt does not know: the brokers' word counts, and where they cannot be asked, Kafka's history (TOP-21)."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner, Result

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.commands.main import kt
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


@pytest.mark.spec("ADM-27")
def test_configs_changed_by_request_leave_all_others_of_the_topic_also_with_two_kt_at_once() -> None:
    others = {"retention.ms": "5000", "flush.messages": "7"}
    names = ("flush.ms", "segment.bytes")
    with EmbeddedCluster(brokers=2, options=STEADY) as cluster, ZooKeeper(cluster.zookeeper) as zk:
        cluster.create_topic("new", partitions=1, replication_factor=1)
        topics(cluster.zookeeper, "alter", "--topic", "new", *(f"--config={k}={v}" for k, v in others.items()))

        def alter(*args: object) -> Result:
            words = ["alter", "--bootstrap-server", cluster.bootstrap, "--topic", "new", *map(str, args)]
            return CliRunner().invoke(kt, ["topics", *words])

        def several(name: str) -> list[object]:
            words = ["topics", "alter", "--bootstrap-server", cluster.bootstrap, "--topic", "new"]
            script = "import sys; from click.testing import CliRunner; from kafkatool.commands.main import kt\n"
            script += (
                f"for n in range(1, 9):\n r = CliRunner().invoke(kt, {words!r} + ['--config', f'{name}={{n * 1000}}'])"
            )
            script += "\n print(r.exit_code, end=' ')"
            done = subprocess.run(
                [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300
            )
            return [*map(int, done.stdout.split())]

        eventually(lambda: alter("--config", "flush.ms=1").exit_code == 0, "the broker that is asked to know the topic")
        with ThreadPoolExecutor(2) as both:
            assert list(both.map(several, names)) == [[0] * 8] * 2
        assert stored(zk) == {**others, "flush.ms": "8000", "segment.bytes": "8000"}
        unset = alter("--delete-config", "max.message.bytes", "--delete-config", "flush.ms")
        assert (unset.exit_code, unset.stdout) == (0, "Updated config for topic new.\n")
        assert stored(zk) == {**others, "segment.bytes": "8000"}
