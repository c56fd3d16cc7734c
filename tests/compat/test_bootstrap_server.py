"""``kt … --bootstrap-server`` beside Kafka's own tools, on real clusters with and without ZooKeeper (ADM-16 to ADM-50)."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from kafkatool.commands.main import kt
from tests.compat import real_kafka
from tests.compat.admin_actors import main_class
from tests.compat.real_kafka import KraftKafka, RealKafka
from tests.steady import LASTING, LASTING_KRAFT, ONE_BATCH_A_FETCH
from tests.waiting import awaited, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

WAIT_S = 120
NO_OTHER_ELECTION = {"auto.leader.rebalance.enable": "false"}
"""So the leader that kt is to put back is not put back before, every five minutes, by the controller."""

CLUSTERS = [
    pytest.param(("4.1.0", KraftKafka), id="4.1.0-kraft"),
    pytest.param(("2.8.2", RealKafka), id="2.8.2"),
    pytest.param(("3.9.1", KraftKafka), id="3.9.1-kraft", marks=pytest.mark.slowest),
    pytest.param(("3.9.1", RealKafka), id="3.9.1", marks=pytest.mark.slowest),
    pytest.param(("1.1.1", RealKafka), id="1.1.1", marks=pytest.mark.slowest),
]


@pytest.fixture(scope="module", params=CLUSTERS)
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    """Three brokers, one cluster after the other."""
    version, kind = request.param
    real_kafka.require(version)
    options = LASTING if kind is RealKafka else LASTING_KRAFT
    with kind(
        version, tmp_path_factory.mktemp("kafka"), options={**options, **ONE_BATCH_A_FETCH, **NO_OTHER_ELECTION}
    ) as running:
        yield running


def _kt(kafka: RealKafka, *args: object) -> Result:
    return CliRunner().invoke(kt, [*map(str, args), "--bootstrap-server", kafka.bootstrap])


def _tool(kafka: RealKafka, *args: str) -> str:
    return kafka.tool(main_class("topics", kafka.version), "--bootstrap-server", kafka.bootstrap, *args).stdout


def _await_told(kafka: RealKafka, *topics: str) -> None:
    """Wait until every broker knows them: each learns of a new topic when the controller tells it."""
    for port in kafka.ports.values():
        args = ["topics", "list", "--bootstrap-server", f"127.0.0.1:{port}"]
        eventually(
            lambda args=args: set(CliRunner().invoke(kt, args).stdout.split()) >= set(topics),  # type: ignore[misc]
            "told of",
            WAIT_S,
        )


def _described(text: str) -> list[str]:
    """Return the lines in order, without what only later tools print."""
    return sorted(re.sub(r"\tElr: .*", "", line).rstrip() for line in text.splitlines() if line)


@pytest.mark.spec("ADM-22", "ADM-23", "ADM-24", "ADM-25", "ADM-26", "ADM-27", "ADM-30", "ADM-31", "SEC-34")
def test_topics_from_their_making_to_their_end(kafka: RealKafka) -> None:
    numbers = ["--partitions", 3, "--replication-factor", 2]
    assert _kt(kafka, "topics", "create", "--topic", "t", *numbers, "--config", "retention.ms=86400000").stdout == (
        "Created topic t.\n"
    )
    assigned = _kt(kafka, "topics", "create", "--topic", "u", "--replica-assignment", "1:2,2:3")
    assert (assigned.exit_code, assigned.stdout) == (0, "Created topic u.\n")
    again = _kt(kafka, "topics", "create", "--topic", "t", *numbers)
    assert again.exit_code == 1
    assert again.stdout == "Error while executing topic command : Topic 't' already exists.\n"
    if kafka.version > "2.4":
        assert _kt(kafka, "topics", "create", "--topic", "defaults").exit_code == 0
        _await_told(kafka, "defaults")
        deleted = _kt(kafka, "topics", "delete", "--topic", "defaults", "--wait", WAIT_S)
        assert deleted.exit_code == 0, deleted.output
    else:
        refused = _kt(kafka, "topics", "create", "--topic", "defaults")
        assert refused.exit_code == 1 and "needs CreateTopics 4" in refused.stderr
    wrong = _kt(kafka, "topics", "create", "--topic", "v", *numbers, "--config", "nonsense=1")
    assert wrong.exit_code == 1 and "nonsense" in wrong.stdout
    _await_told(kafka, "t", "u")
    assert _kt(kafka, "topics", "list").stdout == "t\nu\n"

    grown = _kt(kafka, "topics", "alter", "--topic", "t", "--partitions", 4)
    assert (grown.exit_code, grown.stdout) == (0, "")
    groups = "1:2,2:3,3:1"
    assert (
        _kt(kafka, "topics", "alter", "--topic", "u", "--partitions", 3, "--replica-assignment", groups).exit_code == 0
    )
    fewer = _kt(kafka, "topics", "alter", "--topic", "t", "--partitions", 2)
    assert fewer.exit_code == 1 and fewer.stdout.startswith("Error while executing topic command : ")
    if kafka.version > "2.3":
        changes = ["--config", "segment.ms=1000000", "--delete-config", "retention.ms"]
        changed = _kt(kafka, "topics", "alter", "--topic", "t", *changes)
        assert (changed.exit_code, changed.stdout) == (0, "Updated config for topic t.\n")

    def told() -> str | None:
        """Return what kt shows once the growth and the config are told: each broker learns of them in its own time."""
        found = _kt(kafka, "topics", "describe")
        grown = found.exit_code == 0 and "Partition: 2\tLeader: 3\tReplicas: 3,1" in found.stdout
        altered = "segment.ms=1000000" in found.stdout and "retention.ms" not in found.stdout
        return found.stdout if grown and (altered or kafka.version < "2.4") else None

    def same() -> bool:
        ours = awaited(told, "growth and config to be told", WAIT_S)
        if kafka.version < "2.4":
            return True
        theirs = _tool(kafka, "--describe")  # of any broker, too
        if kafka.version > "3.8":
            return sorted(ours.splitlines()) == sorted(theirs.splitlines())
        return _described(ours) == _described(theirs)

    eventually(same, "the same description by both", WAIT_S)
    assert _kt(kafka, "topics", "delete", "--topic", "t|u", "--force", "--wait", WAIT_S).exit_code == 0
    assert _kt(kafka, "topics", "list").stdout == ""


@pytest.mark.spec("ADM-20", "ADM-26", "ADM-27")
def test_a_dry_run_is_refused_what_the_run_would_be(kafka: RealKafka) -> None:
    made = _kt(kafka, "topics", "create", "--topic", "d", "--replica-assignment", "1:2,2:3")
    assert made.exit_code == 0, made.output
    _await_told(kafka, "d")
    few = ("--partitions", 1, "--replication-factor", 4)
    refused = {
        ("create", "--topic", "d", "--partitions", 1, "--replication-factor", 1): "Topic 'd' already exists.",
        ("create", "--topic", "new", *few): "replication factor",
        ("create", "--topic", "new", "--replica-assignment", "1", "--config", "nonsense=1"): "nonsense",
        ("alter", "--topic", "d", "--partitions", 1): "partition",
        ("alter", "--topic", "d", "--partitions", 3, "--replica-assignment", "1:2,2:3,9:1"): "9",
    }
    if kafka.version > "2.3":
        refused["alter", "--topic", "d", "--config", "segment.ms=soon"] = "segment.ms"
    for action, why in refused.items():
        found = _kt(kafka, "topics", *action, "--dry-run")
        assert found.exit_code == 1, found.output
        assert found.stdout.startswith("Error while executing topic command : "), found.output
        assert why in found.stdout.splitlines()[0] or why in found.stdout.lower(), found.output
    for action in (
        ("create", "--topic", "new", "--replica-assignment", "1"),
        ("alter", "--topic", "d", "--partitions", 3),
    ):
        found = _kt(kafka, "topics", *action, "--dry-run")
        assert found.exit_code == 0 and "brokers were asked" in found.stderr, found.output
    assert _kt(kafka, "topics", "list").stdout == "d\n" and len(_items(kafka, "d")) == 2
    _delete(kafka, "d")


@pytest.mark.spec("ADM-6", "ADM-22", "ADM-45", "ADM-46", "ADM-48")
def test_elections_beside_kafkas_own_tool(kafka: RealKafka) -> None:
    if kafka.version < "2.4":
        pytest.skip("ElectLeaders came with 2.2")
    _kt(kafka, "topics", "create", "--topic", "e", "--replica-assignment", "1:2,2:1")
    _await_told(kafka, "e")
    needless = _kt(kafka, "elect", "--topic", "e", "--partition", 0)
    assert (needless.exit_code, needless.stdout) == (0, "Valid replica already elected for partitions e-0\n")
    unknown = _kt(kafka, "elect", "--topic", "nowhere", "--partition", 0)
    assert unknown.exit_code == 1
    words = "Error completing leader election (PREFERRED) for partition: nowhere-0: "
    assert unknown.stdout.startswith(f"{words}org.apache.kafka.common.errors.UnknownTopicOrPartitionException: ")
    assert unknown.stdout in _elect_tool(kafka, "nowhere")
    # 2.8 names in its second line the partitions of the first
    assert needless.stdout.replace("e-0", "e-0" if kafka.version > "3" else "") in _elect_tool(kafka, "e")
    with kafka.without_broker(1):
        eventually(lambda: _leaders(kafka, "e") == {0: 2, 1: 2}, "broker 2 leads both", WAIT_S)

        def told_down() -> bool:
            """Without ZooKeeper broker 1 may have been the controller: until there is another, nobody can say."""
            down = _kt(kafka, "elect", "--topic", "e", "--partition", 0, "--output", "json")
            print(down.output)  # seen where it fails
            return down.exit_code == 1 and '"status":"preferred_down"' in down.stdout

        eventually(told_down, "the preferred replica to be told as down", WAIT_S)

    def elected() -> bool:
        """Broker 1 must be in sync again before it can lead."""
        found = _kt(kafka, "elect", "--all-topic-partitions")
        return found.exit_code == 0 and "partitions e-0" in found.stdout

    eventually(elected, "the preferred replica leads again", WAIT_S)
    # and so by Kafka's own tool, which finds nothing to do any more
    by_tool = _elect_tool(kafka, "e")
    assert "Error" not in by_tool, by_tool
    eventually(lambda: _leaders(kafka, "e") == {0: 1, 1: 2}, "every broker knows the leader", WAIT_S)
    _delete(kafka, "e")


def _delete(kafka: RealKafka, topic: str) -> None:
    """Delete it, so that the next test finds none."""
    deleted = _kt(kafka, "topics", "delete", "--topic", topic, "--wait", WAIT_S)
    assert deleted.exit_code == 0, deleted.output


def _leaders(kafka: RealKafka, topic: str) -> dict[int, int | None]:
    return {item["partition"]: item["leader"] for item in _items(kafka, topic)}


def _items(kafka: RealKafka, topic: str) -> list[dict[str, Any]]:
    """Return the topic's partitions as they are told; nothing while no broker answers."""
    found = _kt(kafka, "topics", "describe", "--topic", topic, "--output", "json")
    items: list[dict[str, Any]] = orjson.loads(found.stdout)["items"] if found.exit_code == 0 else []
    return items


def _elect_tool(kafka: RealKafka, topic: str) -> str:
    of = ("--election-type", "preferred", "--topic", topic, "--partition", "0")
    return kafka.tool(main_class("elect", kafka.version), "--bootstrap-server", kafka.bootstrap, *of).stdout


def _reassign_tool(kafka: RealKafka, *args: str) -> str:
    return kafka.tool(main_class("reassign", kafka.version), "--bootstrap-server", kafka.bootstrap, *args).stdout


@pytest.mark.spec("ADM-22", "ADM-33", "ADM-34", "ADM-35", "ADM-36", "ADM-37", "ADM-38", "ADM-41")
def test_a_move_from_its_start_over_a_cancel_to_its_end(kafka: RealKafka, tmp_path: Path) -> None:
    if kafka.version < "2.4":
        pytest.skip("AlterPartitionReassignments came with 2.4")
    _kt(kafka, "topics", "create", "--topic", "m", "--replica-assignment", "1:2,2:1")
    _await_told(kafka, "m")
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": "all", "batch.num.messages": 1})
    for _ in range(40):
        producer.produce("m", bytes(50_000), partition=0)
    assert producer.flush(60) == 0
    plan = tmp_path / "plan.json"
    plan.write_text('{"version":1,"partitions":[{"topic":"m","partition":0,"replicas":[3,1]}]}')
    flags = ["--reassignment-json-file", plan]
    started = _kt(kafka, "reassign", "--execute", *flags, "--throttle", 1)
    assert started.exit_code == 0, started.output
    assert started.stdout.endswith(
        "The inter-broker throttle limit was set to 1 B/s\nSuccessfully started partition reassignment for m-0\n"
    )
    listed = "Current partition reassignments:\nm-0: replicas: 3,1,2. adding: 3. removing: 2.\n"
    assert _kt(kafka, "reassign", "--list").stdout == listed == _reassign_tool(kafka, "--list")
    moving = _kt(kafka, "reassign", "--verify", *flags)
    assert (moving.exit_code, moving.stdout) == (
        1,
        "Status of partition reassignment:\nReassignment of partition m-0 is still in progress.\n\n",
    )
    done = tmp_path / "done.json"
    done.write_text('{"version":1,"partitions":[{"topic":"m","partition":1,"replicas":[2,1]}]}')
    assert _kt(kafka, "reassign", "--verify", "--reassignment-json-file", done).exit_code == 0
    assert _kt(kafka, "reassign", "--list").stdout == listed

    moving_slowly = ("Adding Replicas: 3\tRemoving Replicas: 2", "leader.replication.throttled.replicas=0:1,0:2")

    def shown() -> bool:  # the broker that is asked may learn of the throttle after the others
        described = _kt(kafka, "topics", "describe", "--topic", "m").stdout
        return all(part in described for part in moving_slowly)

    eventually(shown, "another plan's verify to have left the throttle", WAIT_S)
    refused = _kt(kafka, "reassign", "--execute", *flags)
    assert refused.exit_code == 1 and "Use --additional to override this" in refused.stdout
    cancelled = _kt(kafka, "reassign", "--cancel", *flags)
    assert (cancelled.exit_code, cancelled.stdout) == (
        0,
        "Successfully cancelled partition reassignment for: m-0\nNone of the specified partition moves are active.\n"
        "Clearing broker-level throttles on brokers 1,2,3\nClearing topic-level throttles on topic m\n",
    )
    ended = _kt(kafka, "reassign", "--execute", *flags, "--throttle", 50_000_000, "--wait", "--timeout", WAIT_S)
    assert ended.exit_code == 0, ended.output
    assert "Reassignment of partition m-0 is completed.\n" in ended.stdout
    eventually(
        lambda: "throttled" not in _kt(kafka, "topics", "describe", "--topic", "m").stdout,
        "the throttle is off",
        WAIT_S,
    )
    back = _kt(kafka, "reassign", "--cancel", "--rollback", *flags, "--timeout", WAIT_S)
    assert back.exit_code == 0, back.output
    eventually(lambda: [1, 2] in [i["replicas"] for i in _items(kafka, "m")[:1]], "the former replicas", WAIT_S)
    _delete(kafka, "m")
