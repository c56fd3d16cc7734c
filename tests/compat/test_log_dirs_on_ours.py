"""Kafka's reassignment tool, log-dirs tool and AdminClient move replicas between the log directories of our brokers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkatool.core.zookeeper.session import ZooKeeper
from tests.commands.reassign.two_dirs import Cluster, started
from tests.compat.admin_actors import main_class
from tests.compat.java_tools import JavaTools
from tests.compat.real_kafka import require, versions
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def cluster(zk: ZooKeeper, zk_connect: str, tmp_path: Path) -> Iterator[Cluster]:
    with started(zk, zk_connect, tmp_path) as made:
        yield made


@pytest.mark.spec("ADM-59", "ADM-68", "ADM-69", "ADM-82")
@pytest.mark.parametrize("version", versions("2.8.2", "4.1.0"))
def test_kafkas_tools_move_a_replica_between_directories(cluster: Cluster, tmp_path: Path, version: str) -> None:
    require(version)
    bootstrap = f"127.0.0.1:{cluster.brokers[1].port}"
    here, there = cluster.lies_in(1), cluster.other(1)
    plan = ("--bootstrap-server", bootstrap, "--reassignment-json-file", str(cluster.plan([1, 2], [there, "any"])))
    reassign = main_class("reassign", version)
    with JavaTools(version, tmp_path / "java") as java:
        begun = java(reassign, *plan, "--execute", "--replica-alter-log-dirs-throttle", "1000")
        assert begun.code == 0, begun.text
        assert "The replica-alter-dir throttle limit was set to 1000 B/s" in begun.text
        assert cluster.rates() == {1: "1000"}
        moving = java(reassign, *plan, "--verify")
        assert "Reassignment of replica t-0-1 is still in progress." in moving.text, moving.text
        listed = java(
            main_class("log dirs", version), "--bootstrap-server", bootstrap, "--describe", "--broker-list", "1"
        )
        (future,) = [part for part in listed.text.split('{"partition":') if '"isFuture":true' in part]
        assert future.startswith('"t-0"'), listed.text

        # A second request for what is under way is taken; the way back ends it.
        again = java(reassign, *plan, "--execute")
        assert again.code == 0, again.text
        asked = java("AdminCalls", bootstrap, "move-log", "t", "0", "1", str(here))
        assert asked.code == 0, asked.text
        assert cluster.lies_in(1) == here and not list(there.glob("*-future"))
        given_up = java(reassign, *plan, "--verify")
        assert f"is not being moved from log dir {here} to {there}." in given_up.text, given_up.text
        assert cluster.rates() == {}, "nothing moves: the tool took the throttle off"

        once_more = java("AdminCalls", bootstrap, "move-log", "t", "0", "1", str(there))
        assert once_more.code == 0, once_more.text
        eventually(lambda: not list(there.glob("*-future")) and not (here / "t-0").exists(), "the move to end")
        done = java(reassign, *plan, "--verify")
        assert "Reassignment of replica t-0-1 completed successfully." in done.text, done.text
        refused = java("AdminCalls", bootstrap, "move-log", "t", "0", "1", "/nowhere")
        assert refused.code != 0 and "LogDirNotFound" in refused.text, refused.text
