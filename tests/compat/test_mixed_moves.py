"""Moves that clients ask for, in a cluster whose controller is now a real 2.8.2 and now ours: either goes on with the
other's, from the topic's node alone.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from kafkatool.commands.main import kt
from kafkatool.core.model.values import TopicPartition
from tests.compat import real_kafka
from tests.compat.admin_actors import Listed, Tools
from tests.compat.admin_rows import ok
from tests.compat.java_tools import JavaTools
from tests.compat.mixed import OURS, WAIT_S, Mixed, mixed_cluster
from tests.integration.load import await_in_sync
from tests.steady import ONE_BATCH_A_FETCH
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

VERSION: Final = "2.8.2"
THEIRS: Final = 1
SLOW, FAST = "1", "100000000"


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    real_kafka.require(VERSION)
    with mixed_cluster(VERSION, "2.3", tmp_path_factory.mktemp("mixed"), ONE_BATCH_A_FETCH) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tools(mixed: Mixed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    directory = tmp_path_factory.mktemp("tools")
    with JavaTools(VERSION, directory) as java:
        yield Tools(java, mixed.bootstrap, directory)


def node(mixed: Mixed, topic: str) -> dict[str, Any]:
    found = mixed.zk.get(f"/brokers/topics/{topic}")
    assert found is not None
    return dict(json.loads(found.data))


def filled(mixed: Mixed, topic: str, replicas: tuple[int, ...]) -> TopicPartition:
    """Create it with so many batches that a throttled replica takes minutes."""
    mixed.create(topic, {0: replicas}, min_in_sync=1)
    producer = Producer({"bootstrap.servers": mixed.bootstrap, "batch.num.messages": 1})
    for _ in range(40):
        producer.produce(topic, bytes(100_000))
    assert producer.flush(WAIT_S) == 0
    return TopicPartition(topic, 0)


def moved(mixed: Mixed, topic: str, replicas: list[int]) -> None:
    def is_done() -> bool:
        found = node(mixed, topic)
        return bool(found["partitions"] == {"0": replicas} and not found.get("adding_replicas"))

    eventually(is_done, f"{topic} to be at {replicas}", WAIT_S)
    assert not node(mixed, topic).get("removing_replicas")
    await_in_sync(mixed.zk, [topic], WAIT_S)


@pytest.mark.spec("ADM-70", "ADM-71", "ADM-72", "ADM-75", "ADM-86")
@pytest.mark.parametrize(("first", "heir"), [(OURS, THEIRS), (THEIRS, OURS)], ids=["ours-first", "theirs-first"])
def test_a_move_is_finished_and_another_cancelled_by_the_other_kind_of_controller(
    mixed: Mixed, tools: Tools, first: int, heir: int
) -> None:
    mixed.reign(first)
    finished = filled(mixed, f"finished-{first}", (1, 2))
    cancelled = filled(mixed, f"cancelled-{first}", (1, 2))
    plans = {finished: (2, OURS), cancelled: (1, OURS)}
    ok(tools.reassign("--execute", plans, "--throttle", SLOW))
    wanted = {
        finished: Listed((2, OURS, 1), (OURS,), (1,)),
        cancelled: Listed((1, OURS, 2), (OURS,), (2,)),
    }
    assert tools.moving() == wanted
    assert node(mixed, finished.topic)["adding_replicas"] == {"0": [OURS]}
    for way in (("--zookeeper", mixed.zookeeper), ("--bootstrap-server", mixed.bootstrap)):
        assert [behind(way, plan.topic) for plan in plans] == ["", ""], "what is added is not missing"

    mixed.reign(heir)

    def goes_on() -> bool:
        return tools.moving() == wanted

    eventually(goes_on, "the heir to know of both", WAIT_S)
    ok(tools.reassign("--cancel", {cancelled: plans[cancelled]}, "--preserve-throttles"))
    moved(mixed, cancelled.topic, [1, 2])
    ok(tools.reassign("--execute", {finished: plans[finished]}, "--throttle", FAST, "--additional"))
    moved(mixed, finished.topic, [2, OURS])
    assert mixed.controller() == heir
    assert "is complete" in ok(tools.reassign("--verify", {finished: plans[finished]}))
    assert tools.moving() == {}
    eventually(lambda: not our_directory(mixed, cancelled).exists(), "what was added to be deleted here", WAIT_S)
    mixed.check_replicas()


def behind(way: tuple[str, str], topic: str) -> str:
    """Return the rows of its partitions that are under-replicated."""
    told = CliRunner().invoke(kt, ["topics", "describe", "--topic", topic, "--under-replicated-partitions", *way])
    assert told.exit_code == 0, told.output
    return told.stdout


def our_directory(mixed: Mixed, partition: TopicPartition) -> Path:
    return mixed.ours.data / f"{partition.topic}-{partition.partition}"
