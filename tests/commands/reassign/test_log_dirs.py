"""``kt reassign --bootstrap-server`` with a plan that names log directories, on brokers that have two each."""

import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from kafkatool.commands.reassign import request_mode
from kafkatool.core.operations.requests import reassignments
from kafkatool.core.operations.requests.log_dirs import DirState, Placement
from kafkatool.core.planner.plan_files import PlacedReplica
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.commands.reassign.runner import run
from tests.commands.reassign.two_dirs import TP, Cluster, started

pytestmark = pytest.mark.usefixtures("unhurried")


@pytest.fixture
def cluster(zk: ZooKeeper, zk_connect: str, tmp_path: Path) -> Iterator[Cluster]:
    with started(zk, zk_connect, tmp_path) as made:
        yield made


def begun(broker: int, path: Path) -> str:
    return f"Successfully started moving log directory to {path} for replica t-0 with broker {broker} "


@pytest.mark.spec("ADM-40", "ADM-34", "ADM-35", "ADM-36", "ADM-38")
def test_a_replica_moves_to_another_directory_under_a_throttle_and_verify_ends_it(cluster: Cluster) -> None:
    here, there = cluster.lies_in(1), cluster.other(1)
    plan = cluster.plan([1, 2], [there, "any"])
    cluster.hold_back(1, 1000)
    found = cluster.run("execute", "--reassignment-json-file", plan, "--replica-alter-log-dirs-throttle", 1000)
    assert found.exit_code == 0, found.output
    assert found.stdout.splitlines()[-4:] == [
        "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed.",
        "The replica-alter-dir throttle limit was set to 1000 B/s",
        "Successfully started partition reassignment for t-0",
        begun(1, there),
    ]
    assert cluster.rates() == {1: "1000"}
    verify = ("--reassignment-json-file", plan)
    still = cluster.run("verify", *verify)
    assert (still.exit_code, still.stdout) == (
        1,
        "Status of partition reassignment:\nReassignment of partition t-0 is completed.\n"
        "Reassignment of replica t-0-1 is still in progress.\n",
    )
    assert cluster.rates() == {1: "1000"}, "while it moves the throttle stays"
    elsewhere = cluster.directory / "elsewhere.json"
    elsewhere.write_text(plan.read_text().replace(str(there), str(here)))
    other = cluster.run("verify", "--reassignment-json-file", elsewhere, "--output", "json")
    assert other.exit_code == 1
    (error,) = orjson.loads(other.stdout)["errors"]
    assert error["message"] == f"Partition t-0 on broker 1 is being moved to log dir {there} instead of {here}."
    assert (error["topic"], error["partition"], error["broker"]) == ("t", 0, 1)

    back = cluster.run("execute", "--reassignment-json-file", elsewhere)
    assert back.exit_code == 0 and back.stdout.splitlines()[-1] == begun(1, here)
    assert cluster.lies_in(1) == here
    cancelled = cluster.run("verify", *verify)
    assert cancelled.exit_code == 1
    assert cancelled.stdout.splitlines()[2:] == [
        f"Partition t-0 on broker 1 is not being moved from log dir {here} to {there}.",
        "Clearing broker-level throttles on broker 1",
    ]
    assert cluster.rates() == {}

    again = cluster.run("execute", *verify, "--wait")
    assert again.exit_code == 0, again.output
    assert again.stdout.splitlines()[-2:] == [
        "Reassignment of partition t-0 is completed.",
        "Reassignment of replica t-0-1 completed successfully.",
    ]
    assert cluster.lies_in(1) == there
    done = cluster.run("verify", *verify)
    assert (
        done.exit_code == 0 and done.stdout.splitlines()[-1] == "Reassignment of replica t-0-1 completed successfully."
    )


@pytest.mark.spec("ADM-37", "ADM-38")
def test_a_cancel_keeps_a_replica_in_its_directory_and_another_plan_leaves_it_its_throttle(cluster: Cluster) -> None:
    here, there = cluster.lies_in(1), cluster.other(1)
    other = cluster.plan([1, 2], ["any", "any"]).rename(cluster.directory / "other.json")
    plan = ("--reassignment-json-file", cluster.plan([1, 2], [there, "any"]))
    cluster.hold_back(1, 1000)
    begun_ = cluster.run("execute", *plan, "--replica-alter-log-dirs-throttle", 1000)
    assert begun_.exit_code == 0, begun_.output
    verified = cluster.run("verify", "--reassignment-json-file", other)
    assert verified.exit_code == 0 and "Clearing" not in verified.stdout, verified.output
    assert "replicas of broker 1 are on their way to other log directories" in verified.stderr
    assert cluster.rates() == {1: "1000"}
    cancelled = cluster.run("cancel", *plan)
    assert cancelled.exit_code == 0, cancelled.output
    assert cancelled.stdout.splitlines() == [
        "None of the specified partition reassignments are active.",
        begun(1, here),
        "Clearing broker-level throttles on broker 1",
    ]
    assert cluster.rates() == {}
    not_moving = f"Partition t-0 on broker 1 is not being moved from log dir {here} to {there}."
    assert cluster.run("verify", *plan).stdout.splitlines()[-1] == not_moving


@pytest.mark.spec("ADM-40", "ADM-68")
def test_a_replica_that_comes_to_a_broker_is_made_in_the_directory_of_the_plan(cluster: Cluster) -> None:
    there = cluster.dir_of(3, "b")
    plan = cluster.plan([1, 3], [cluster.lies_in(1), there])
    found = cluster.run("execute", "--reassignment-json-file", plan, "--wait")
    assert found.exit_code == 0, found.output
    assert {begun(1, cluster.lies_in(1)), begun(3, there)} <= set(found.stdout.splitlines())
    assert cluster.lies_in(3) == there
    assert not list(cluster.directory.glob("2-?/t-0"))


@pytest.mark.spec("ADM-40", "ADM-33")
def test_a_refused_directory_ends_it_with_what_was_begun(cluster: Cluster) -> None:
    plan = cluster.plan([1, 2], ["any", "/nowhere/data"])
    found = cluster.run("execute", "--reassignment-json-file", plan, "--replica-alter-log-dirs-throttle", 1000)
    assert found.exit_code == 1
    assert "# look: what was begun goes on, under the throttle; takes that off when nothing moves" in found.stderr
    started, error = found.stdout.splitlines()[-2:]
    assert started == "Successfully started partition reassignment for t-0"
    assert error.startswith("Error: Failed to alter dir for t-0-2: ") and "LOG_DIR_NOT_FOUND" in error


@pytest.mark.spec("ADM-40")
def test_a_replica_that_no_broker_makes_in_time_is_named(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_mode, "LOG_DIRS_TIMEOUT_S", 0.3)
    # The move is accepted, and carried out later.
    monkeypatch.setattr(reassignments, "send", lambda *_, **__: {TP: None})
    plan = cluster.plan([1, 3], ["any", cluster.dir_of(3, "b")])
    before = time.monotonic()
    found = cluster.run("execute", "--reassignment-json-file", plan)
    assert time.monotonic() - before >= 0.3
    assert found.exit_code == 1
    assert "Timed out before log directory move could be started for: t-0-3" in found.stdout.splitlines()


@pytest.mark.spec("ADM-40", "ADM-20")
def test_a_dry_run_shows_the_requests_to_each_broker(cluster: Cluster) -> None:
    plan = cluster.plan([1, 2], [cluster.other(1), cluster.other(2)])
    flags = ("--replica-alter-log-dirs-throttle", 7, "--dry-run")
    found = cluster.run("execute", "--reassignment-json-file", plan, *flags)
    assert found.exit_code == 0, found.output
    rows = [text.split(" ", 4) for text in found.stdout.splitlines()]
    altered = [(int(row[1]), orjson.loads(row[4])) for row in rows if row[2] == "AlterReplicaLogDirs"]
    assert [(broker, fields["dirs"][0]["path"]) for broker, fields in altered] == [
        (b, str(cluster.other(b))) for b in (1, 2)
    ]
    assert altered[0][1]["dirs"][0]["topics"] == [{"topic": "t", "partitions": [0]}]
    assert cluster.rates() == {} and not list(cluster.directory.glob("*/*-future"))


@pytest.mark.spec("ADM-40", "RSN-5")
def test_by_zookeeper_it_is_refused_with_what_to_type(cluster: Cluster) -> None:
    found = run(
        cluster.zookeeper, "--execute", "--reassignment-json-file", cluster.plan([1, 2], [cluster.other(1), "any"])
    )
    assert found.exit_code == 1
    assert 'log_dirs other than "any"' in found.stdout and "--bootstrap-server" in found.output


@pytest.mark.spec("ADM-40")
@pytest.mark.parametrize(
    ("current", "future", "state", "text"),
    [
        ("/d", None, DirState.COMPLETED, "Reassignment of replica t-0-1 completed successfully."),
        ("/c", "/d", DirState.IN_PROGRESS, "Reassignment of replica t-0-1 is still in progress."),
        (
            "/c",
            "/f",
            DirState.ELSEWHERE_BOUND,
            "Partition t-0 on broker 1 is being moved to log dir /f instead of /d.",
        ),
        ("/c", None, DirState.NOT_MOVING, "Partition t-0 on broker 1 is not being moved from log dir /c to /d."),
        (
            None,
            None,
            DirState.NOT_FOUND,
            "Partition t-0 is not found in any live log dir on broker 1. There is likely an offline log directory on the "
            "broker.",
        ),
        (
            None,
            None,
            DirState.NOT_KNOWN,
            "Partition t-0 cannot be found in any live log directory on broker 1.",
        ),
    ],
)
def test_the_lines_of_verify(current: str | None, future: str | None, state: DirState, text: str) -> None:
    assert Placement(PlacedReplica(TP, 1), "/d", current, future, state).text == text
