"""kt drain on brokers of processes: from a plan to the proof, interrupted, resumed, cancelled, in rounds."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.commands.drain.drain_output import DrainOutput
from kafkatool.commands.main import kt
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.drain import drain
from kafkatool.core.operations.reassignment import events
from kafkatool.core.operations.reassignment.following import Progress
from kafkatool.core.operations.reassignment.throttles import RATES, REPLICAS, rates_by_broker
from kafkatool.core.planner import plan_files
from kafkatool.core.zookeeper.cluster_view import read_cluster, read_states
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.core.operations.reassignment.plans import config
from tests.core.zookeeper import cluster_nodes as nodes
from tests.steady import STEADY, crash
from tests.waiting import eventually

pytestmark = [pytest.mark.spec("ADM-106"), pytest.mark.usefixtures("unhurried")]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedCluster]:
    monkeypatch.chdir(tmp_path)
    with EmbeddedCluster(brokers=4, options=STEADY) as running:
        running.create_topic("t", partitions=8, replication_factor=2)
        running.create_topic("u", partitions=2, replication_factor=3)
        yield running


def run(cluster: EmbeddedCluster, *args: object) -> Result:
    words = ["drain", *map(str, args), "--zookeeper", cluster.zookeeper]
    return CliRunner().invoke(kt, words)


def replicas_on(zk: ZooKeeper, broker: int) -> int:
    topics = read_cluster(zk).topics.values()
    return sum(broker in replicas for topic in topics for replicas in topic.assignment.values())


def create_on(broker: int, cluster: EmbeddedCluster, topic: str) -> None:
    """Create it, and wait until the controller has: a partition without a leader is not to be drained."""
    flags = ["--topic", topic, "--replica-assignment", f"{broker}:1"]
    assert CliRunner().invoke(kt, ["topics", "create", "--zookeeper", cluster.zookeeper, *flags]).exit_code == 0
    with ZooKeeper(cluster.zookeeper) as zk:
        eventually(lambda: bool(read_states(zk, [TopicPartition(topic, 0)])), f"{topic} is led")


def throttling(before: Mapping[str, tuple[bytes, int]], plan: str) -> Iterator[tuple[str, str, str]]:
    """Tell what is written before ``plan``: the rates of its brokers and the lists of its topics, each notified of."""
    rates = dict.fromkeys(RATES, "5000000")
    entities: dict[str, dict[str, str]] = {}
    lists = defaultdict[str, tuple[list[str], list[str]]](lambda: ([], []))
    for topic, partition, new in (entry.values() for entry in json.loads(plan)["partitions"]):
        data, _ = before[f"/brokers/topics/{topic}"]
        old = json.loads(data)["partitions"][str(partition)]
        entities |= {f"brokers/{broker}": rates for broker in (*old, *new)}
        lists[topic][0].extend(f"{partition}:{broker}" for broker in old)
        lists[topic][1].extend(f"{partition}:{broker}" for broker in new if broker not in old)
    for topic, both in lists.items():
        entities[f"topics/{topic}"] = dict(zip(REPLICAS, map(",".join, both), strict=True))
    for entity, settings in sorted(entities.items()):
        verb = "set" if f"/config/{entity}" in before else "create"
        yield verb, f"/config/{entity}", compact(version=1, config=settings)
        yield "create sequential", "/config/changes/config_change_", compact(version=2, entity_path=entity)


def compact(**fields: object) -> str:
    return json.dumps(fields, separators=(",", ":"))


def entries(plan: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(Path(plan).read_text())["partitions"]
    return found


def interrupt(self: DrainOutput, *_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.spec("COM-6X")
def test_a_broker_is_emptied_in_batches_under_a_throttle_and_that_is_proven(cluster: EmbeddedCluster) -> None:
    with ZooKeeper(cluster.zookeeper) as zk:
        before = nodes.tree(zk)
        planned = run(cluster, 3, "--throttle", 5_000_000, "--dry-run", "--output", "json")
        assert planned.exit_code == 0, planned.output
        would = [tuple(item.values()) for item in json.loads(planned.stdout)["items"]]
        assert nodes.tree(zk) == before and list(Path().iterdir()) == []
        result = run(cluster, 3, "--throttle", 5_000_000, "--batch-partitions", 2, "--output", "json")
        assert result.exit_code == 0, result.output
        (item,) = json.loads(result.stdout)["items"]
        assert item == {
            "broker": 3,
            "live": True,
            "drained": True,
            "assigned": [],
            "in_isr": [],
            "leads": [],
            "on_disk": [],
        }
        assert replicas_on(zk, 3) == 0
        assert rates_by_broker(zk) == {} and config(zk, "topics", "t") == {}
        assert sorted(path.name for path in Path().iterdir()) == ["drain-3.json", "drain-3.rollback.json"]
        plan = Path("drain-3.json").read_text()
        assert would == [*throttling(before, plan), ("create", "/admin/reassign_partitions", plan.rstrip("\n"))]
        again = run(cluster, 3, "--no-throttle")
        assert again.exit_code == 0 and "broker 3: drained: no replica" in again.stdout


def test_a_drain_cut_short_is_gone_on_with_or_undone(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with ZooKeeper(cluster.zookeeper) as zk:
        assignments = {topic: node.assignment for topic, node in read_cluster(zk).topics.items()}
        for way, code in (("--resume", 0), ("--cancel --rollback --throttle 5000000", 0)):
            with monkeypatch.context() as patch:
                patch.setattr(DrainOutput, "progress", interrupt)
                result = run(cluster, 4, "--throttle", 5_000_000, "--batch-partitions", 1)
            assert result.exit_code == 130, result.output
            assert "kt drain 4 --zookeeper" in result.stderr and "--resume  # go on" in result.stderr
            refused = run(cluster, 4, "--no-throttle")
            assert refused.exit_code == 1 and "was not finished" in refused.stdout
            result = run(cluster, 4, *way.split())
            assert result.exit_code == code, result.output
            assert rates_by_broker(zk) == {}
            if way == "--resume":
                assert replicas_on(zk, 4) == 0
                assert run(cluster, 4, "--cancel", "--rollback", "--no-throttle").exit_code == 0
            assert {topic: node.assignment for topic, node in read_cluster(zk).topics.items()} == assignments
        assert run(cluster, 4, "--resume").exit_code == 1


@pytest.mark.slow
def test_the_way_back_of_a_drain_that_has_ended_goes_in_batches_under_the_throttle_given(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[tuple[Mapping[int, Mapping[str, str]], Mapping[str, str] | None]]()
    batches = set[int]()
    show, progress = DrainOutput.show, DrainOutput.progress

    def noting_throttles(self: DrainOutput, event: events.Event) -> None:
        if isinstance(event, events.Following) and event.what == "back":
            seen.append((rates_by_broker(zk), config(zk, "topics", "t")))
        show(self, event)

    def noting_batches(self: DrainOutput, p: Progress) -> None:
        batches.add(p.batches)
        progress(self, p)

    with ZooKeeper(cluster.zookeeper) as zk:
        assert run(cluster, 3, "--no-throttle").exit_code == 0
        to = {(p["topic"], p["partition"]): p["replicas"] for p in entries("drain-3.json")}
        origin = {(p["topic"], p["partition"]): p["replicas"] for p in entries("drain-3.rollback.json")}
        before, saved = nodes.tree(zk), Path("drain-3.rollback.json").rename("elsewhere.json")
        lost = run(cluster, 3, "--cancel", "--rollback", "--throttle", 5_000_000)
        assert lost.exit_code == 2 and "cannot read drain-3.rollback.json: No such file" in lost.stderr, lost.output
        assert nodes.tree(zk) == before
        saved.rename("drain-3.rollback.json")
        monkeypatch.setattr(DrainOutput, "show", noting_throttles)
        monkeypatch.setattr(DrainOutput, "progress", noting_batches)
        back = run(cluster, 3, "--cancel", "--rollback", "--throttle", 5_000_000, "--batch-partitions", 1)
        assert back.exit_code == 0, back.output
        ((rates, lists),) = seen
        moved = sorted(p for p in origin if p[0] == "t" and origin[p] != to[p])
        leaders = ",".join(f"{p[1]}:{b}" for p in moved for b in to[p])
        followers = ",".join(f"{p[1]}:{b}" for p in moved for b in origin[p] if b not in to[p])
        assert lists == dict(zip(REPLICAS, (leaders, followers), strict=True))
        assert rates == dict.fromkeys((1, 2, 3, 4), dict.fromkeys(RATES, "5000000"))
        assert len(origin) in batches
        assert rates_by_broker(zk) == {} and config(zk, "topics", "t") == {}
        found = read_cluster(zk).topics
        assert {p: list(found[p[0]].assignment[p[1]]) for p in origin} == origin
        assert not Path("drain-3.state.json").exists()


@pytest.mark.slow
def test_further_rounds_of_a_resumed_drain_go_under_its_throttle(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = list[drain.Planned]()
    show = DrainOutput.show

    def noting(self: DrainOutput, event: events.Event) -> None:
        if isinstance(event, drain.Planned):
            planned.append(event)
        show(self, event)

    with monkeypatch.context() as patch:
        patch.setattr(DrainOutput, "progress", interrupt)
        assert run(cluster, 4, "--throttle", 5_000_000).exit_code == 130
    with ZooKeeper(cluster.zookeeper) as zk:
        eventually(lambda: not read_cluster(zk, []).moving, "what was sent has arrived")
    create_on(4, cluster, "new")
    monkeypatch.setattr(DrainOutput, "show", noting)
    result = run(cluster, 4, "--resume")
    assert result.exit_code == 0, result.output
    assert [(round_.number, round_.throttle) for round_ in planned] == [(2, 5_000_000)]


@pytest.mark.slow
def test_what_comes_onto_the_broker_meanwhile_is_drained_in_further_rounds_up_to_three(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[str]()
    limit, topics = "one", 1

    def create_and_write(path: Path, text: str) -> Path | None:
        made.append(path.name)
        if len(made) <= topics:
            create_on(2, cluster, f"new-{limit}-{len(made)}")
        return plan_files.write_file(path, text)

    monkeypatch.setattr(drain, "write_file", create_and_write)
    result = run(cluster, 2, "--no-throttle")
    assert result.exit_code == 0, result.output
    assert made == ["drain-2.json", "drain-2.round-2.json"]
    with ZooKeeper(cluster.zookeeper) as zk:
        assert replicas_on(zk, 2) == 0
    create_on(2, cluster, "old")
    made.clear()
    limit, topics = "three", 3
    result = run(cluster, 2, "--no-throttle")
    assert result.exit_code == 1, result.output
    assert made == ["drain-2.json", "drain-2.round-2.json", "drain-2.round-3.json"]
    assert "broker 2: still assigned: new-three-3-0" in result.stdout


@pytest.mark.slow
def test_a_dead_broker_is_drained(cluster: EmbeddedCluster) -> None:
    with ZooKeeper(cluster.zookeeper) as zk:
        crash(cluster, zk, 4)
        eventually(lambda: 4 not in read_cluster(zk, [], states=False).brokers, "4 gone")
        refused = run(cluster, 3, "--no-throttle")
        assert refused.exit_code == 1 and "not live: 4" in refused.stdout, refused.output
        result = run(cluster, 4, "--throttle", 5_000_000)
        assert result.exit_code == 0, result.output
        assert "broker 4: drained: no replica, no ISR, no leader; it is dead" in result.stdout
        assert replicas_on(zk, 4) == 0 and rates_by_broker(zk) == {}
        misspelt = run(cluster, 44, "--no-throttle")
        assert misspelt.exit_code == 1 and "no such broker: 44, neither registered" in misspelt.stdout


@pytest.mark.spec("COM-6X")
@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ("", "give --throttle B/S, or --no-throttle"),
        ("--throttle 5000 --no-throttle", "can't be used with --no-throttle"),
        ("--throttle 5", "1024"),
        ("--rollback --no-throttle", "--rollback needs --cancel"),
        ("--cancel --resume", "--resume can't be used with --cancel"),
        ("--cancel --throttle 5000", "--cancel takes --throttle and --no-throttle with --rollback alone"),
        ("--cancel --rollback", "an unthrottled way back may take all of the network"),
        ("--resume --dry-run", "--resume can't be used with --dry-run"),
        ("--cancel --dry-run", "--cancel can't be used with --dry-run"),
    ],
    ids=[
        *("none", "both", "tiny", "rollback", "cancel-resume", "cancel-throttle", "way-back", "resume-dry-run"),
        "cancel-dry-run",
    ],
)
def test_bad_usage(zk_connect: str, flags: str, why: str) -> None:
    result = CliRunner().invoke(kt, ["drain", "3", "--zookeeper", zk_connect, *flags.split()])
    assert (result.exit_code, result.stdout) == (2, "") and why in result.stderr
