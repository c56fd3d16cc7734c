"""kt drain by requests with something in the way: brokers that may not tell, a dying target, a controller that refuses."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result

from kafkatool.commands.main import kt
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.drain import drain as drains
from kafkatool.core.operations.reassignment import following_by_request as following
from kafkatool.core.operations.reassignment.runs.saved_run import Batch, RunState, plan_hash
from kafkatool.core.operations.reassignment.throttles import SavedThrottle
from kafkatool.core.operations.requests import comparing
from kafkatool.core.operations.requests.throttles import RATES, REPLICAS
from kafkatool.core.planner.plan_files import plan_json
from kafkatool.core.protocol.messages import alter_partition_reassignments as altering
from kafkatool.core.protocol.messages import describe_log_dirs, incremental_alter_configs, metadata
from kafkatool.core.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.commands.reassign.memory_cluster import Cluster, cluster_of_four

pytestmark = [pytest.mark.spec("ADM-106"), pytest.mark.usefixtures("unhurried")]
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class Disks:
    """What lies on the brokers' disks: the replicas of ``t``, and what a test puts there."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.more: dict[int, list[str]] = {}
        self.offline: set[int] = set()
        self.not_told: set[int] = set()
        self.topics: dict[str, int] = {}
        """Topics that metadata is asked for by their name -> the error that it answers."""
        asked = cluster.brokers[0].answers[metadata.API.key]
        for broker in cluster.brokers:
            broker.answers[describe_log_dirs.API.key] = self._telling(broker.id)
            broker.answers[metadata.API.key] = self._refusing(asked)

    def _telling(self, broker: int) -> Callable[[Any], object]:
        def tell(_: Any) -> object:
            here = [p for p, replicas in self.cluster.replicas.items() if broker in replicas]
            topics = [DescribeLogDirsTopic(topic="t", partitions=[_replica(p) for p in here])] if here else []
            topics += [DescribeLogDirsTopic(topic=t, partitions=[_replica(0)]) for t in self.more.get(broker, ())]
            results = [] if broker in self.not_told else [DescribeLogDirsResult(log_dir="/d", topics=topics)]
            if broker in self.offline:
                results.append(DescribeLogDirsResult(log_dir="/e", error_code=ErrorCode.KAFKA_STORAGE_ERROR, topics=[]))
            return describe_log_dirs.DescribeLogDirsResponse(results=results)

        return tell

    def _refusing(self, told: Callable[[Any], object]) -> Callable[[Any], object]:
        def tell(request: metadata.MetadataRequest) -> object:
            answer = told(request)
            assert isinstance(answer, metadata.MetadataResponse)
            for name in (t.topic or "" for t in request.topics or ()):
                code = next((code for part, code in self.topics.items() if part in name), None)
                if code is not None:
                    answer.topics.append(metadata.MetadataResponseTopic(error_code=code, topic=name, partitions=[]))
            return answer

        return tell


def _replica(partition: int) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(partition=partition, partition_size=1, offset_lag=0, is_future_key=False)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(following, "FIRST_POLL_S", 0.05)
    monkeypatch.setattr(comparing, "SETTLE_S", 0.0)
    with cluster_of_four() as running:
        yield running


@pytest.fixture
def disks(cluster: Cluster) -> Disks:
    return Disks(cluster)


def run(cluster: Cluster, *args: object) -> Result:
    flags = ["--bootstrap-server", str(cluster.brokers[0].address)]
    return CliRunner().invoke(kt, ["drain", *map(str, args), *flags])


def written(cluster: Cluster) -> bool:
    return bool(cluster.asked(altering.API.name) or cluster.asked(incremental_alter_configs.API.name))


@pytest.mark.spec("ADM-109", "SEC-40")
@pytest.mark.parametrize("flags", ["--dry-run", "", "--resume"])
@pytest.mark.parametrize("hidden", ["disk", "topics", "a topic"])
def test_where_brokers_may_hide_something_nothing_is_begun(
    cluster: Cluster, disks: Disks, hidden: str, flags: str
) -> None:
    cluster.ends_at_once = True
    if flags == "--resume":  # it could be proven when it was begun
        Path("drain-1.state.json").write_text("{}")
    if hidden == "disk":
        disks.not_told = {1}
        why = "not permitted: Describe on cluster (broker 1 as User:ANONYMOUS)"
    elif hidden == "topics":
        disks.topics = {"kt-asks-whether": REFUSED}
        why = "topics that may not be described are left out"
    else:
        disks.more, disks.topics = {2: ["secret"]}, {"secret": REFUSED}
        why = "Describe on topic secret"
    found = run(cluster, 1, "--no-throttle", *flags.split())
    assert found.exit_code == 1, found.output
    assert why in found.stdout and "nothing was written, as it could not be proven" in found.stdout
    assert not written(cluster)
    assert {path.name for path in Path().iterdir()} <= {"drain-1.state.json"}


@pytest.mark.spec("ADM-109", "SEC-40")
def test_what_brokers_may_hide_only_since_it_began_keeps_the_proof_from_holding(
    cluster: Cluster, disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.ends_at_once = True
    monkeypatch.setattr(drains, "PROOF_S", 0.0)
    disks.more = {2: ["deleted"]}
    disks.topics = {"deleted": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}  # on a disk, and nobody's secret
    assert run(cluster, 1, "--no-throttle").exit_code == 0
    disks.more = {1: ["secret"]}
    disks.topics = {"secret": REFUSED}
    found = run(cluster, 1, "--no-throttle", "--output", "json")
    assert found.exit_code == 1 and '"on_disk":["secret-0"]' in found.stdout and "topic secret" in found.stdout
    disks.more, disks.topics = {}, {"kt-asks-whether": REFUSED}
    found = run(cluster, 1, "--no-throttle")
    assert found.exit_code == 1 and "not proven: not permitted: Describe on every topic" in found.stdout
    disks.topics, disks.not_told = {}, {1}
    found = run(cluster, 1, "--no-throttle")
    assert found.exit_code == 1 and "it does not tell what is on its disks" in found.stdout
    disks.not_told, disks.offline = set(), {1}
    found = run(cluster, 1, "--no-throttle")
    assert found.exit_code == 1 and "its directory /e is offline: what is there cannot be told" in found.stdout
    disks.offline = set()
    found = run(cluster, 1, "--no-throttle")
    assert found.exit_code == 0 and "broker 1: drained" in found.stdout


@pytest.mark.spec("ADM-109")
def test_a_dead_broker_is_proven_empty_only_where_all_others_tell_their_disks(
    cluster: Cluster, disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drains, "PROOF_S", 0.0)
    cluster.replicas = {0: [2, 4]}
    cluster.ends_at_once = True
    dead = cluster.brokers.pop()
    dead.close()
    disks.not_told = {3}
    found = run(cluster, 4, "--no-throttle")
    assert found.exit_code == 1 and "not proven: broker 3 does not tell what is on its disks" in found.stdout
    cluster.replicas = {0: [2, 4]}
    disks.not_told = set()
    found = run(cluster, 4, "--no-throttle")
    assert found.exit_code == 0 and "it is dead" in found.stdout, found.output


def test_a_target_that_dies_is_named_and_a_cancel_ends_it(cluster: Cluster, disks: Disks) -> None:
    cluster.configs[4, "2"] = {"leader.replication.throttled.rate": "77"}
    held = run(cluster, 1, "--throttle", 5_000_000, "--timeout", 0.2)
    assert held.exit_code == 1, held.output
    assert cluster.moving and "not finished in time" in held.stderr
    dead = cluster.brokers.pop(2)
    dead.close()
    again = run(cluster, 1, "--resume", "--timeout", 0.2)
    assert again.exit_code == 1, again.output
    assert "what is in progress waits for brokers that are not registered: 3; start them" in again.stderr
    ways_on = [line for line in again.stderr.splitlines() if line.startswith("kt drain 1 ")]
    assert len(ways_on) == 3 and " --resume  #" in ways_on[0] and " --cancel  #" in ways_on[1]
    assert " --cancel --rollback --throttle 5000000  # bring all back" in ways_on[2], "as it was begun"
    cancelled = run(cluster, 1, "--cancel")
    assert cancelled.exit_code == 0, cancelled.output
    assert not cluster.moving and cluster.replicas == {0: [1, 2], 1: [2, 1], 2: [1, 2]}
    assert "broker 3 cannot be asked, being down: a throttle may be left there" in cancelled.stderr
    assert cluster.configs[4, "2"] == {"leader.replication.throttled.rate": "77"}, "as it was"
    assert cluster.configs[2, "t"] == {} == cluster.configs[4, "1"] == cluster.configs[4, "4"]
    assert not Path("drain-1.state.json").exists()


def set_on(cluster: Cluster) -> dict[str, dict[str, str]]:
    return {name: dict(keys) for (_, name), keys in cluster.configs.items() if keys}


def test_the_way_back_of_a_drain_that_has_ended_is_throttled_and_that_stays_while_it_is_cut_short(
    cluster: Cluster, disks: Disks
) -> None:
    cluster.configs[4, "2"] = {RATES[0]: "77"}
    cluster.ends_at_once = True
    assert run(cluster, 1, "--throttle", 5_000_000).exit_code == 0
    assert set_on(cluster) == {"2": {RATES[0]: "77"}}, "as it was"
    gone = {p: list(replicas) for p, replicas in cluster.replicas.items()}
    cluster.ends_at_once = False
    back = ("--cancel", "--rollback", "--throttle", 7_000_000, "--batch-partitions", 2)

    early = run(cluster, 1, *back, "--timeout", 0.2)
    assert early.exit_code == 1 and "what is under way goes on" in early.stderr, early.output
    assert sorted(cluster.moving) == [0, 1], "the first batch"
    assert early.stderr.splitlines()[-2].endswith(
        "--cancel --rollback --throttle 7000000 --batch-partitions 2  # the same command looks again; a throttle stays "
        "until it finds all done"
    )
    origin = {0: [1, 2], 1: [2, 1], 2: [1, 2]}
    lists = {
        REPLICAS[0]: ",".join(sorted(f"{p}:{b}" for p in gone for b in gone[p])),
        REPLICAS[1]: ",".join(sorted(f"{p}:{b}" for p in gone for b in origin[p] if b not in gone[p])),
    }
    involved = {str(b) for replicas in (*gone.values(), *origin.values()) for b in replicas}
    assert set_on(cluster) == {"t": lists, **{b: dict.fromkeys(RATES, "7000000") for b in involved}}

    cluster.replicas |= {p: origin[p] for p in cluster.moving}
    cluster.moving.clear()
    cluster.ends_at_once = True
    again = run(cluster, 1, *back)
    assert again.exit_code == 0 and cluster.replicas == origin, again.output
    assert set_on(cluster) == {"2": {RATES[0]: "77"}}, "as it was"
    assert not Path("drain-1.state.json").exists()


def test_a_drain_that_goes_on_after_its_way_back_was_cut_short_has_the_lists_that_fit_again(
    cluster: Cluster, disks: Disks
) -> None:
    cluster.ends_at_once = True
    assert run(cluster, 1, "--no-throttle").exit_code == 0
    gone = {p: list(replicas) for p, replicas in cluster.replicas.items()}
    cluster.ends_at_once = False
    back = run(cluster, 1, "--cancel", "--rollback", "--throttle", 7_000_000, "--timeout", 0.2)
    assert back.exit_code == 1, back.output
    cluster.replicas = {0: [1, 2], 1: [2, 1], 2: [1, 2]}  # it has arrived
    cluster.moving.clear()
    assert run(cluster, 1, "--resume", "--timeout", 0.2).exit_code == 1
    assert sorted(cluster.moving) == [0, 1, 2]
    lists = {
        REPLICAS[0]: "0:1,0:2,1:1,1:2,2:1,2:2",
        REPLICAS[1]: ",".join(sorted(f"{p}:{b}" for p in gone for b in gone[p] if b not in (1, 2))),
    }
    assert set_on(cluster)["t"] == lists
    assert run(cluster, 1, "--cancel").exit_code == 0 and set_on(cluster) == {}


@pytest.mark.parametrize("moved", [{}, {0: [3, 2]}], ids=["all-turned-round", "one-arrived"])
def test_the_way_back_of_a_drain_cut_short_goes_at_the_rate_given_or_at_none(
    cluster: Cluster, disks: Disks, moved: dict[int, list[int]]
) -> None:
    seen = list[dict[str, dict[str, str]]]()
    alter = cluster.brokers[0].answers[altering.API.key]

    def noting(request: Any) -> object:
        if any(p.replicas is not None for t in request.topics for p in t.partitions):
            seen.append(set_on(cluster))
        return alter(request)

    for terms, rate in ((("--throttle", 7_000_000), "7000000"), (("--no-throttle",), None)):
        cluster.ends_at_once = False
        assert run(cluster, 1, "--throttle", 5_000_000, "--timeout", 0.2).exit_code == 1
        for p, replicas in moved.items():
            cluster.replicas[p] = replicas
            del cluster.moving[p]
        cluster.ends_at_once = True
        cluster.brokers[0].answers[altering.API.key] = noting
        back = run(cluster, 1, "--cancel", "--rollback", *terms)
        cluster.brokers[0].answers[altering.API.key] = alter
        assert back.exit_code == 0 and cluster.replicas == {0: [1, 2], 1: [2, 1], 2: [1, 2]}, back.output
        assert set_on(cluster) == {}
        if moved:
            lists = {REPLICAS[0]: "0:2,0:3", REPLICAS[1]: "0:1"}
            found = seen.pop()
            assert found.get("t") == (None if rate is None else lists)
            assert {keys[RATES[0]] for name, keys in found.items() if name in "123"} == ({rate} if rate else set())
        assert seen == []


def test_what_the_controller_refuses_leaves_no_throttle_and_no_run(cluster: Cluster, disks: Disks) -> None:
    cluster.refusals = dict.fromkeys((0, 1, 2), (ErrorCode.POLICY_VIOLATION, "not today"))
    found = run(cluster, 1, "--throttle", 5_000_000)
    assert found.exit_code == 1
    assert "the controller refuses 3 of 3 partitions: t-0: not today" in found.stdout, found.output
    assert not any(cluster.configs.values())
    assert not Path("drain-1.state.json").exists()


def test_a_topic_that_is_deleted_meanwhile_is_no_failure(cluster: Cluster, disks: Disks) -> None:
    cluster.ends_at_once = True
    alter = cluster.brokers[0].answers[altering.API.key]

    def deleted(request: Any) -> object:
        cluster.replicas.pop(0, None)
        cluster.refusals = {0: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "gone")}
        return alter(request)

    cluster.brokers[0].answers[altering.API.key] = deleted
    found = run(cluster, 1, "--no-throttle")
    assert found.exit_code == 0 and "broker 1: drained" in found.stdout, found.output
    cluster.brokers[0].answers[altering.API.key] = alter
    back = run(cluster, 1, "--cancel", "--rollback", "--no-throttle")
    assert back.exit_code == 0 and cluster.replicas == {1: [2, 1], 2: [1, 2]}, back.output
    assert "1 partition does not exist any more, and is left out: t-0" in back.stderr


@pytest.mark.parametrize("cut_short", ["drain", "way back"])
@pytest.mark.parametrize("before", [{}, {REPLICAS[0]: "*"}], ids=["no list before", "a list before"])
def test_a_throttled_drain_goes_on_without_the_topic_that_is_deleted_meanwhile(
    cluster: Cluster, disks: Disks, before: dict[str, str], cut_short: str
) -> None:
    cluster.ends_at_once = True
    cluster.replicas[0] = [3, 2]
    plan = {TopicPartition("t", p): (3, 2) for p in cluster.replicas} | {TopicPartition("u", 0): (3, 2)}
    Path("drain-1.json").write_text(plan_json(plan))
    saved = [SavedThrottle("brokers", str(b), {}, dict.fromkeys(RATES, "5000000")) for b in (1, 2, 3)]
    saved.append(SavedThrottle("topics", "t", {}, {REPLICAS[0]: "0:1,0:2,1:1,1:2,2:1,2:2", REPLICAS[1]: "0:3,1:3,2:3"}))
    saved.append(SavedThrottle("topics", "u", before, {REPLICAS[0]: "0:1,0:2", REPLICAS[1]: "0:3"}))
    cancelled = cut_short == "way back"
    RunState(plan_hash(plan), 512_000, 0, (Batch(4, sent=True),), tuple(saved), cancelled=cancelled).write(
        Path("drain-1.state.json")
    )
    resumed = run(cluster, 1, "--resume")
    assert resumed.exit_code == 0 and "broker 1: drained" in resumed.stdout, resumed.output
    assert "1 partition does not exist any more, and is left out: u-0\n" in resumed.stderr
    assert resumed.output.count("u-0") == 1 and "topic u" not in resumed.output
    assert cluster.replicas == {0: [3, 2], 1: [3, 2], 2: [3, 2]}
    asked = [r for _, request in cluster.asked(incremental_alter_configs.API.name) for r in request.resources]
    assert {r.resource_name for r in asked} == {"t", "1", "2", "3"}, "the throttle of what is left was set"
    assert set_on(cluster) == {} and not Path("drain-1.state.json").exists()


@pytest.mark.parametrize(
    ("saved", "code", "why"),
    [
        (None, 2, "cannot read drain-1.rollback.json: No such file or directory"),
        ("oops", 2, "drain-1.rollback.json:1:1: not JSON"),
        ('{"version":1,"partitions":[{"topic":"u","partition":0,"replicas":[1]}]}', 1, "which does not have u-0"),
        ('{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}', 1, "lacks t-1,t-2"),
    ],
    ids=["missing", "unreadable", "foreign", "cut"],
)
def test_without_its_way_back_a_drain_is_not_rolled_back_and_nothing_is_touched(
    cluster: Cluster, disks: Disks, saved: str | None, code: int, why: str
) -> None:
    cluster.moving[0] = ([3, 2, 1], [3], [1])
    moves = [{"topic": "t", "partition": p, "replicas": r} for p, r in ((0, [3, 2]), (1, [2, 4]), (2, [3, 2]))]
    Path("drain-1.json").write_text(orjson.dumps({"version": 1, "partitions": moves}).decode())
    Path("drain-1.state.json").write_text("{}")
    if saved is not None:
        Path("drain-1.rollback.json").write_text(saved)
    found = run(cluster, 1, "--cancel", "--rollback", "--no-throttle")
    assert (found.exit_code, why in found.output) == (code, True), found.output
    assert not written(cluster) and Path("drain-1.state.json").read_text() == "{}"
    Path("drain-1.state.json").unlink()
    only = run(cluster, 1, "--cancel")  # which needs none: the controller knows what was before
    assert only.exit_code == 0 and not cluster.moving, only.output
