"""``kt reassign --bootstrap-controller``: what moves is listed and cancelled by a controller, no broker being asked."""

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

from kafkatool.commands.main import kt
from kafkatool.core.protocol.messages import alter_partition_reassignments as altering
from kafkatool.core.protocol.messages import describe_configs, incremental_alter_configs
from kafkatool.core.protocol.messages import list_partition_reassignments as listing
from tests.commands.reassign.memory_cluster import Cluster
from tests.core.client.fake_controller import FakeController

pytestmark = pytest.mark.spec("ADM-4")

RATES = {"leader.replication.throttled.rate": "1", "follower.replication.throttled.rate": "1"}
LOG_DIR_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LISTS = {"leader.replication.throttled.replicas": "0:1", "follower.replication.throttled.replicas": "0:3"}


@pytest.fixture
def controller(cluster: Cluster) -> Iterator[FakeController]:
    """The controller of that cluster."""
    apis = (listing.API, altering.API, describe_configs.API, incremental_alter_configs.API)
    with FakeController(11, {api: (0, api.max_version) for api in apis}) as running:
        broker = cluster.brokers[0]
        running.answers |= {api.key: broker.answers[api.key] for api in apis}
        yield running


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    file = tmp_path / "plan.json"
    partitions = [{"topic": "t", "partition": p, "replicas": [3, 2]} for p in (0, 1)]
    file.write_bytes(orjson.dumps({"version": 1, "partitions": partitions}))
    return file


def _run(controller: FakeController, mode: str, *args: object) -> Result:
    flags = ["--bootstrap-controller", str(controller.address)]
    return CliRunner().invoke(kt, ["reassign", f"--{mode}", *flags, *map(str, args)])


def _moving(cluster: Cluster) -> None:
    cluster.moving[0] = ([3, 2, 1], [3], [1])
    for broker in "123":
        cluster.configs[4, broker] = {**RATES, "log.cleaner.threads": "2"}
    cluster.configs[2, "t"] = dict(LISTS)


@pytest.mark.spec("ADM-41")
def test_what_moves_is_listed(cluster: Cluster, controller: FakeController) -> None:
    assert _run(controller, "list").stdout == "No partition reassignments found.\n"
    _moving(cluster)
    found = _run(controller, "list")
    expected = "Current partition reassignments:\nt-0: replicas: 3,2,1. adding: 3. removing: 1.\n"
    assert (found.exit_code, found.stdout) == (0, expected)
    items = orjson.loads(_run(controller, "list", "--output", "json").stdout)
    assert items["cluster_id"] == "C" and items["items"][0]["to"] == [3, 2]
    assert not any(broker.asked for broker in cluster.brokers)


@pytest.mark.spec("ADM-37", "ADM-38", "ADM-19")
def test_what_moves_of_a_plan_is_cancelled_and_its_throttle_comes_off_every_broker(
    cluster: Cluster, controller: FakeController, plan: Path
) -> None:
    _moving(cluster)
    before = dict(cluster.configs)
    shown = _run(controller, "cancel", "--reassignment-json-file", plan, "--dry-run")
    assert shown.exit_code == 0 and [line.split()[:4] for line in shown.stdout.splitlines()] == [
        ["controller", "11", "AlterPartitionReassignments", "1"],
        ["controller", "11", "IncrementalAlterConfigs", "1"],
    ]
    assert cluster.moving and cluster.configs == before
    found = _run(controller, "cancel", "--reassignment-json-file", plan)
    assert (found.exit_code, found.stdout) == (
        0,
        "Successfully cancelled partition reassignment for: t-0\nNone of the specified partition moves are active.\n"
        "Clearing broker-level throttles on brokers 1,2,3\nClearing topic-level throttles on topic t\n",
    )
    assert not cluster.moving and cluster.configs == {
        **{(4, broker): {"log.cleaner.threads": "2"} for broker in "123"},
        (2, "t"): {},
    }
    again = _run(controller, "cancel", "--reassignment-json-file", plan)
    assert again.exit_code == 0 and again.stdout.startswith(
        "None of the specified partition reassignments are active.\nNone of the specified partition moves are active.\n"
    )
    assert not any(broker.asked for broker in cluster.brokers)


@pytest.mark.spec("ADM-37", "ADM-38")
def test_moves_between_log_directories_are_not_said_to_be_cancelled_and_keep_their_rate(
    cluster: Cluster, controller: FakeController, tmp_path: Path
) -> None:
    _moving(cluster)
    cluster.configs[4, "2"][LOG_DIR_RATE] = "5"
    partitions = [{"topic": "t", "partition": 0, "replicas": [3, 2], "log_dirs": ["/new", "/new"]}]
    (plan := tmp_path / "plan.json").write_bytes(orjson.dumps({"version": 1, "partitions": partitions}))
    found = _run(controller, "cancel", "--reassignment-json-file", plan)
    assert found.exit_code == 1 and "None of the specified partition moves are active." not in found.stdout
    assert "whether t-0-2 moves to another log directory only brokers tell" in found.stderr, "3 goes with the cancel"
    assert "Clearing broker-level throttles on brokers 1,2,3\n" in found.stdout
    assert cluster.configs[4, "2"] == {"log.cleaner.threads": "2", LOG_DIR_RATE: "5"}
    assert f"{LOG_DIR_RATE} stays where it is set" in found.stderr


@pytest.mark.spec("ADM-38")
def test_a_throttle_stays_while_others_move_and_where_it_is_to_stay(
    cluster: Cluster, controller: FakeController, plan: Path
) -> None:
    _moving(cluster)
    cluster.moving[2] = ([1, 2, 3], [3], [])
    found = _run(controller, "cancel", "--reassignment-json-file", plan)
    assert found.exit_code == 0 and "other partitions are being moved: the throttle stays" in found.stderr
    del cluster.moving[2]
    assert _run(controller, "cancel", "--reassignment-json-file", plan, "--preserve-throttles").exit_code == 0
    assert cluster.configs[2, "t"] == LISTS and set(RATES) < set(cluster.configs[4, "3"])


@pytest.mark.spec("ADM-37")
def test_what_a_cancel_leaves_otherwise_than_it_was_is_told_by_what_was_listed(
    cluster: Cluster, controller: FakeController, plan: Path, tmp_path: Path
) -> None:
    _moving(cluster)
    cluster.moving[0] = ([3, 2, 1, 4], [3], [1, 4])  # 4 is left of a target that this one replaced
    back = [{"topic": "t", "partition": 0, "replicas": [1, 2]}]
    (tmp_path / "plan.rollback.json").write_bytes(orjson.dumps({"version": 1, "partitions": back}))
    found = _run(controller, "cancel", "--reassignment-json-file", plan)
    assert found.exit_code == 1 and "not as before the plan: t-0; this plan restores it:" in found.stderr
    assert '"partition":0,"replicas":[1,2]' in found.stderr


@pytest.mark.spec("ADM-37")
def test_a_refused_cancel_is_told(cluster: Cluster, controller: FakeController, plan: Path) -> None:
    _moving(cluster)
    cluster.refusals[0] = (31, "no")
    found = _run(controller, "cancel", "--reassignment-json-file", plan, "--output", "json")
    items = orjson.loads(found.stdout)["items"]
    assert found.exit_code == 1 and [(i["partition"], i["status"]) for i in items] == [(0, "in_progress")]
    assert set(RATES) < set(cluster.configs[4, "3"])


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["--verify", "--bootstrap-controller", "c:1"], 'can\'t be used with action "[verify]"'),
        (["--execute", "--bootstrap-controller", "c:1"], 'can\'t be used with action "[execute]"'),
        (["--generate", "--bootstrap-controller", "c:1"], 'can\'t be used with action "[generate]"'),
        (
            ["--list", "--bootstrap-controller", "c:1", "--bootstrap-server", "b:1"],
            "Please specify either --bootstrap-server or --bootstrap-controller",
        ),
        (
            ["--list", "--bootstrap-controller", "c:1", "--zookeeper", "z:1"],
            "Only one of --bootstrap-controller or --zookeeper must be specified",
        ),
        (["--list", "--bootstrap-controller", "c"], "--bootstrap-controller: 'c' is not of the form host:port"),
        (
            ["--cancel", "--rollback", "--bootstrap-controller", "c:1", "--reassignment-json-file", "p"],
            'Option "[bootstrap-controller]" can\'t be used with option "[rollback]"',
        ),
    ],
    ids=["verify", "execute", "generate", "brokers-too", "zookeeper-too", "no-port", "rollback"],
)
def test_what_controllers_cannot_do_is_refused_before_anything_is_connected(args: list[str], why: str) -> None:
    found = CliRunner().invoke(kt, ["reassign", *args])
    assert found.exit_code == 2 and why in found.stderr


def test_a_typed_controller_goes_before_the_settings_of_the_other_ways(
    cluster: Cluster, controller: FakeController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKATOOL_BOOTSTRAP_SERVER", str(cluster.brokers[0].address))
    monkeypatch.setenv("KAFKATOOL_ZOOKEEPER", "127.0.0.1:1")
    assert _run(controller, "list").exit_code == 0
    assert not any(broker.asked for broker in cluster.brokers)
