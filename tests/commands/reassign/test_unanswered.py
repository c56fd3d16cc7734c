"""``kt reassign --bootstrap-server`` where answers stay out: what is known, what is not, and that kt ends."""

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from kafkatool.core.protocol.messages import alter_partition_reassignments as altering
from kafkatool.core.protocol.messages import list_partition_reassignments as listing
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.commands.reassign.memory_cluster import Cluster
from tests.waiting import eventually


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    file = tmp_path / "plan.json"
    partitions = [{"topic": "t", "partition": p, "replicas": [3, 2]} for p in (0, 1, 2)]
    file.write_bytes(orjson.dumps({"version": 1, "partitions": partitions}))
    return file


def _first_only(cluster: Cluster) -> None:
    """Have the controller answer the first request that alters, and end the connection at the next ones."""
    answer = cluster.brokers[0].answers[altering.API.key]

    def once(request: Any) -> object:
        return answer(request) if len(cluster.asked("AlterPartitionReassignments")) == 1 else None

    cluster.brokers[0].answers[altering.API.key] = once


@pytest.mark.spec("ADM-56", "ADM-57")
def test_a_batch_whose_answer_never_came_is_told_to_be_unknown(cluster: Cluster, plan: Path, hurried: Path) -> None:
    _first_only(cluster)
    flags = ["--reassignment-json-file", plan, "--command-config", hurried]
    found = cluster.run("execute", *flags, "--batch-partitions", 1, "--wait")
    assert found.exit_code == 1
    assert "Successfully started partition reassignment for t-0\n" in found.stdout
    assert found.stdout.endswith(
        "closed the connection; done before: t-0; whether it was done is not known of t-1; not asked for: t-2\n"
    ), found.stdout
    assert (
        f"--verify --reassignment-json-file {plan}  # look: what was begun goes on, under the throttle" in found.stderr
    )


@pytest.mark.spec("ADM-56")
@pytest.mark.parametrize(
    ("code", "end"),
    [
        (ErrorCode.NOT_CONTROLLER, "not done: t-2"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not done: t-2"),
        (ErrorCode.REQUEST_TIMED_OUT, "whether it was done is not known of t-2"),
    ],
)
def test_what_was_begun_is_told_however_a_later_request_ends(
    cluster: Cluster, plan: Path, tmp_path: Path, code: ErrorCode, end: str
) -> None:
    cluster.refusals = {1: (ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no such")}
    answer = cluster.brokers[0].answers[altering.API.key]

    def once(request: Any) -> object:
        if len(cluster.asked("AlterPartitionReassignments")) == 1:
            return answer(request)
        if code == ErrorCode.NOT_CONTROLLER:
            for broker in cluster.brokers:
                broker.controller_id = -1
        return altering.AlterPartitionReassignmentsResponse(error_code=code, topics=[])

    cluster.brokers[0].answers[altering.API.key] = once
    (tmp_path / "client.properties").write_text("retries=1\n")
    flags = ["--reassignment-json-file", plan, "--command-config", tmp_path / "client.properties"]
    found = cluster.run("execute", *flags, "--batch-partitions", 2)
    told = f"; done before: t-0; refused before: t-1 (no such); {end}"
    assert found.exit_code == 1 and found.stdout.endswith(f"{told}\n"), found.output
    assert "Successfully started partition reassignment for t-0\n" in found.stdout
    assert "# look: what was begun goes on" in found.stderr
    no_controller = "no controller is elected; this request was not sent;" in found.stdout
    assert no_controller == (code == ErrorCode.NOT_CONTROLLER)


@pytest.mark.spec("ADM-56")
def test_json_tells_what_was_begun_before_an_answer_stayed_out(cluster: Cluster, plan: Path, hurried: Path) -> None:
    _first_only(cluster)
    flags = ["--reassignment-json-file", plan, "--command-config", hurried, "--output", "json"]
    found = cluster.run("execute", *flags, "--batch-partitions", 1)
    (error,) = orjson.loads(found.stdout)["errors"]
    assert found.exit_code == 1 and error["error"] == "cut_short"
    assert "; done before: t-0; whether it was done is not known of t-1; not asked for: t-2" in error["message"]


@pytest.mark.spec("ADM-56")
def test_a_plan_refused_as_a_whole_at_first_has_begun_nothing(cluster: Cluster, plan: Path, hurried: Path) -> None:
    refused = altering.AlterPartitionReassignmentsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, topics=[])
    cluster.brokers[0].answers[altering.API.key] = lambda _: refused
    found = cluster.run("execute", "--reassignment-json-file", plan, "--command-config", hurried)
    assert found.exit_code == 1 and "not done" not in found.output and "# look" not in found.output


@pytest.mark.spec("ADM-56", "ADM-37")
def test_a_way_back_whose_answer_never_came_is_told_to_be_unknown(
    cluster: Cluster, plan: Path, hurried: Path, tmp_path: Path
) -> None:
    back = [{"topic": "t", "partition": p, "replicas": [2, 3]} for p in (0, 1)]
    (tmp_path / "plan.rollback.json").write_bytes(orjson.dumps({"version": 1, "partitions": back}))
    cluster.brokers[0].answers[altering.API.key] = lambda _: None
    found = cluster.run("cancel", "--reassignment-json-file", plan, "--rollback", "--command-config", hurried)
    assert found.exit_code == 1 and "whether it was done is not known of t-0,t-1\n" in found.stdout
    assert "--cancel --rollback" in found.stderr and "# look again, and send back the rest" in found.stderr


@pytest.mark.spec("ADM-56", "ADM-57", "ADM-37")
def test_a_cancel_whose_answer_never_came_is_told_to_be_unknown(cluster: Cluster, plan: Path, hurried: Path) -> None:
    cluster.moving = {p: ([3, 2, 1], [3], [1]) for p in (0, 1)}
    cluster.brokers[0].answers[altering.API.key] = lambda _: None
    found = cluster.run("cancel", "--reassignment-json-file", plan, "--command-config", hurried)
    assert found.exit_code == 1 and "whether it was done is not known of t-0,t-1\n" in found.stdout
    assert "Successfully" not in found.stdout
    assert "the same command looks again, and cancels what still moves" in found.stderr


@pytest.fixture
def silent(cluster: Cluster) -> Iterator[Cluster]:
    """A controller that takes a request for what moves, and never answers."""
    over = threading.Event()

    def answer(_: object) -> None:
        over.wait()

    cluster.brokers[0].answers[listing.API.key] = answer
    yield cluster
    over.set()


def _started(cluster: Cluster, properties: Path) -> "subprocess.Popen[str]":
    flags = ["--bootstrap-server", str(cluster.brokers[0].address), "--command-config", str(properties), "--list"]
    command = [sys.executable, "-m", "kafkatool", "reassign", *flags]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))


@pytest.mark.spec("ADM-57", "ADM-9")
def test_the_whole_time_ends_a_command_that_waits_for_an_answer(silent: Cluster, tmp_path: Path) -> None:
    """A kt that stands still may have no time left before it asks: then another one is given more."""
    properties, whole_ms = tmp_path / "client.properties", itertools.count(1000, 1000)

    def waited() -> bool:
        properties.write_text(f"default.api.timeout.ms={next(whole_ms)}\nrequest.timeout.ms=3600000\n")
        with _started(silent, properties) as process:
            out, err = process.communicate(timeout=120)  # the broker is silent until the test is over
        told = "did not answer ListPartitionReassignments: timed out" in out
        assert process.returncode == 1 and (told or not silent.asked("ListPartitionReassignments")), out + err
        return told

    eventually(waited, "a command to have waited for the answer")


@pytest.mark.spec("ADM-57")
def test_ctrl_c_ends_a_command_that_waits_for_an_answer(silent: Cluster, tmp_path: Path) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text("default.api.timeout.ms=3600000\nrequest.timeout.ms=3600000\n")
    with _started(silent, properties) as process:
        eventually(lambda: bool(silent.asked("ListPartitionReassignments")), "the request was sent", 60)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130, out + err
    assert "Traceback" not in err
