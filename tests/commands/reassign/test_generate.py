"""kt reassign --generate: the five lines that scripts parse, and what is shown beside them."""

import json
import re
from pathlib import Path

import pytest
from click.testing import Result

from kafkatool.core.model.assignment import SOME_RACKS
from kafkatool.core.planner.plan_files import plan_json
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ReassignmentZnode, TopicZnode
from tests.commands.reassign.runner import GOAL, run
from tests.core.operations.reassignment.plans import NINE, plan, tp
from tests.core.zookeeper import cluster_nodes as nodes


@pytest.mark.spec("RSN-4", "RSN-2", "RSN-26X", "RSN-32X", "COM-2")
def test_generate_prints_five_lines_whose_last_is_a_plan(seed: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    topics = '{"topics":[{"topic":"t"}],"version":1}'
    flags = ("--generate", "--topics-to-move-json-file", "-", "--broker-list", "2,3")
    result = run(zk_connect, *flags, stdin=topics)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[:4] == [
        "Current partition replica assignment",
        plan_json(plan(NINE)),
        "",
        "Proposed partition reassignment configuration",
    ]
    assert len(lines) == 5
    like_new = (plan_json(plan(GOAL)), plan_json(plan({p: (2 + p % 2,) for p in range(9)})))
    assert lines[4] in like_new
    with_file = run(zk_connect, *flags, "--out", saved, stdin=topics)
    assert with_file.stdout == f"9 partitions planned: {saved}\n"  # of 1,500 nobody reads them on the screen
    assert saved.read_text().removesuffix("\n") in like_new
    assert run(zk_connect, "--execute", "--reassignment-json-file", saved).exit_code == 0
    verified = run(zk_connect, "--verify", "--reassignment-json-file", "-", stdin=lines[4])
    assert verified.stdout.count("is still in progress") == 9, "the last line alone is a plan"


@pytest.mark.spec("ASG-3")
def test_what_kafkas_strategy_proposes_is_drawn_anew_each_time(seed: ZooKeeper, zk_connect: str) -> None:
    first = generate(zk_connect, "--broker-list", "1,2,3").stdout
    assert any(generate(zk_connect, "--broker-list", "1,2,3").stdout != first for _ in range(50))


@pytest.mark.spec("RSN-2", "RSN-17X")
@pytest.mark.parametrize(
    ("topics", "brokers", "message"),
    [
        ('{"topics":[{"topic":"t"}],"version":2}', "1", "Not supported version field value 2"),
        (
            '{"topics":[{"topic":"t"},{"topic":"t"}]}',
            "1",
            "List of topics to reassign contains duplicate entries: t",
        ),
        (
            '{"topics":[{"topic":"t"},{"topic":"u"},{"topic":"v"},{"topic":"t"},{"topic":"u"}],"version":1}',
            "1",
            "List of topics to reassign contains duplicate entries: t,u",
        ),
        ('{"topics":[{"topic":"t"}]}', "1,2,1", "Broker list contains duplicate entries: 1"),
        ('{"topics":[{"topic":"t"}]}', "3,2,1,3,2", "Broker list contains duplicate entries: 2,3"),
        (
            '{"topics":[{"topic":"t"}]}',
            "1,9",
            "Broker list contains brokers that are not registered: 9 (registered: 1,2,3)",
        ),
        ('{"topics":[{"topic":"x"}]}', "1", "List of topics to reassign contains topics that do not exist: x"),
    ],
)
def test_generate_refuses_before_any_output_of_a_plan(
    seed: ZooKeeper, zk_connect: str, topics: str, brokers: str, message: str
) -> None:
    flags = ("--generate", "--topics-to-move-json-file", "-", "--broker-list", brokers)
    result = run(zk_connect, *flags, stdin=topics)
    assert result.exit_code == 1
    assert result.stdout == f"Partitions reassignment failed due to {message}\n"


@pytest.mark.spec("RSN-17X", "COM-3X")
@pytest.mark.parametrize("brokers", ["1,x", "-1", "1,,2", "1.5", ""])
def test_a_broker_list_that_holds_no_ids_is_bad_usage(seed: ZooKeeper, zk_connect: str, brokers: str) -> None:
    result = generate(zk_connect, "--broker-list", brokers)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--broker-list" in result.stderr


@pytest.mark.spec("RSN-3")
def test_topics_of_uneven_replica_counts_are_told_of_beside_the_plan(seed: ZooKeeper, zk_connect: str) -> None:
    seed.set(TopicZnode.path("t"), b'{"version":1,"partitions":{"0":[1,2],"1":[3]}}', 0)
    before = nodes.tree(seed)
    result = generate(zk_connect, "--broker-list", "1,2,3")
    assert result.exit_code == 0 and len(result.stdout.splitlines()) == 5
    assert "partitions of t have different numbers of replicas; all are planned with partition 0's\n" in result.stderr
    assert nodes.tree(seed) == before


@pytest.mark.spec("ASG-14")
def test_of_racks_on_some_brokers_only_those_of_the_list_count(zk: ZooKeeper, zk_connect: str) -> None:
    racks = {1: "r1", 2: "r2", 3: "r2", 4: "r1"}
    nodes.make_cluster(zk, brokers=(1, 2, 3, 4, 5), topics={"t": dict.fromkeys(range(8), (1, 2, 3))}, racks=racks)
    refused = generate(zk_connect, "--broker-list", "1,2,5")
    assert (refused.exit_code, refused.stdout) == (1, f"Partitions reassignment failed due to {SOME_RACKS}\n")
    aware = generate(zk_connect, "--broker-list", "1,2,3,4")
    assert aware.exit_code == 0
    planned = json.loads(aware.stdout.splitlines()[-1])["partitions"]
    assert all({racks[b] for b in entry["replicas"][:2]} == {"r1", "r2"} for entry in planned)
    assert generate(zk_connect, "--broker-list", "1,2,5", "--disable-rack-aware").exit_code == 0


@pytest.mark.spec("RSN-35X")
def test_generate_as_json(seed: ZooKeeper, zk_connect: str) -> None:
    topics = '{"topics":[{"topic":"t"}]}'
    flags = ("--generate", "--topics-to-move-json-file", "-", "--broker-list", "2", "--output", "json")
    document = json.loads(run(zk_connect, *flags, stdin=topics).stdout)
    assert document["cluster_id"] == "the-cluster" and not document["errors"]
    assert [item["status"] for item in document["items"]] == [
        "noop" if NINE[p] == (2,) else "pending" for p in range(9)
    ]
    assert document["items"][0] == {"topic": "t", "partition": 0, "from": [1], "to": [2], "status": "pending"}


def generate(zk_connect: str, *flags: object) -> Result:
    source = ("--generate", "--topics-to-move-json-file", "-")
    return run(zk_connect, *source, *flags, stdin='{"topics":[{"topic":"t"}]}')


@pytest.mark.spec("RSN-26X", "RSN-4", "COM-2")
def test_the_minimal_strategy_shows_what_it_does_beside_the_five_lines(seed: ZooKeeper, zk_connect: str) -> None:
    result = generate(zk_connect, "--broker-list", "1,2,3", "--strategy", "minimal")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "Current partition replica assignment",
        plan_json(plan(NINE)),
        "",
        "Proposed partition reassignment configuration",
        plan_json(plan(NINE)),
    ]
    assert result.stderr.splitlines() == [
        "broker  replicas  leaders  in  out",
        "     1    3 -> 3   3 -> 3   0    0",
        "     2    3 -> 3   3 -> 3   0    0",
        "     3    3 -> 3   3 -> 3   0    0",
        "0 of 9 partitions change, 0 replicas to copy",
    ]


@pytest.mark.spec("RSN-28X", "RSN-29X")
def test_a_drained_broker_is_explained(seed: ZooKeeper, zk_connect: str) -> None:
    flags = ("--broker-list", "1,2,3", "--exclude-brokers", "1", "--explain")
    minimal = generate(zk_connect, *flags, "--strategy", "minimal")
    assert minimal.exit_code == 0, minimal.output
    assert len(minimal.stdout.splitlines()) == 5
    *partitions, _, first, second, third, total = minimal.stderr.splitlines()
    assert [text.split(" ")[0] for text in partitions] == ["[t,0]:", "[t,3]:", "[t,6]:"]
    assert all(re.fullmatch(r"\[t,\d\]: 1 -> [23]  leaves 1", text) for text in partitions)
    assert first.split() == ["1", "3", "->", "0", "3", "->", "0", "0", "3"]
    assert sorted(row.split()[3] for row in (second, third)) == ["4", "5"]
    assert total == "3 of 9 partitions change, 3 replicas to copy"
    kafkas = generate(zk_connect, *flags)
    assert all(1 not in r["replicas"] for r in json.loads(kafkas.stdout.splitlines()[-1])["partitions"])


@pytest.mark.spec("RSN-28X")
@pytest.mark.parametrize("strategy", ["kafka", "minimal"])
def test_more_replicas_keep_those_there_are(seed: ZooKeeper, zk_connect: str, strategy: str) -> None:
    result = generate(zk_connect, "--broker-list", "1,2,3", "--strategy", strategy, "--replication-factor", 2)
    grown = json.loads(result.stdout.splitlines()[-1])["partitions"]
    assert all(len(e["replicas"]) == 2 and e["replicas"][0] == NINE[e["partition"]][0] for e in grown)
    assert "9 of 9 partitions change, 9 replicas to copy" in result.stderr
    refused = generate(zk_connect, "--broker-list", "1,2,3", "--strategy", strategy, "--replication-factor", 4)
    assert refused.exit_code == 1 and "replication factor: 4 larger than available brokers: 3" in refused.stdout


@pytest.mark.spec("RSN-28X")
@pytest.mark.parametrize("strategy", ["kafka", "minimal"])
def test_draining_every_broker_of_the_list_is_refused(seed: ZooKeeper, zk_connect: str, strategy: str) -> None:
    refused = generate(zk_connect, "--broker-list", "1,2", "--exclude-brokers", "2,1", "--strategy", strategy)
    assert (refused.exit_code, refused.stderr) == (1, "")
    assert "every broker of the broker list is excluded" in refused.stdout
    typo = generate(zk_connect, "--broker-list", "1,2", "--exclude-brokers", "x")
    assert typo.exit_code == 2 and "--exclude-brokers 'x' is not a list of broker ids" in typo.stderr
    seed.delete("/brokers/ids/3")  # dead and listed: drained all the same
    gone = generate(zk_connect, "--broker-list", "1,2,3", "--exclude-brokers", "3", "--strategy", strategy)
    assert gone.exit_code == 0, gone.output
    planned = [entry["replicas"] for entry in json.loads(gone.stdout.splitlines()[-1])["partitions"]]
    assert {broker for replicas in planned for broker in replicas} == {1, 2}


@pytest.mark.spec("RSN-29X", "RSN-35X")
def test_an_explained_plan_as_json_has_reasons_and_an_item_for_each_broker(seed: ZooKeeper, zk_connect: str) -> None:
    flags = ("--broker-list", "2,3", "--strategy", "minimal", "--explain", "--output")
    items = json.loads(generate(zk_connect, *flags, "json").stdout)["items"]
    assert items[0]["reason"] == "leaves 1" and items[0]["copies_to"] == items[0]["to"]
    assert items[1] == {
        "topic": "t",
        "partition": 1,
        "from": [2],
        "to": [2],
        "status": "noop",
        "reason": None,
        "copies_to": [],
    }
    assert items[9] == {
        "broker": 1,
        "replicas_before": 3,
        "replicas_after": 0,
        "leaders_before": 3,
        "leaders_after": 0,
        "incoming": 0,
        "outgoing": 3,
        "copied_bytes": 0,
    }
    assert [item["broker"] for item in items[9:]] == [1, 2, 3]
    assert items[10]["copied_bytes"] is None  # no broker listens in this test
    heading, *rows = generate(zk_connect, *flags, "tsv").stdout.splitlines()
    assert heading.split("\t")[:7] == ["TOPIC", "PARTITION", "FROM", "TO", "STATUS", "REASON", "COPIES_TO"]
    assert len(rows) == 12
    assert rows[1].split("\t")[:7] == ["t", "1", "2", "2", "noop", "", ""]
    told = dict(zip(heading.split("\t"), rows[9].split("\t"), strict=True))
    assert [told[c] for c in ("BROKER", "REPLICAS_BEFORE", "REPLICAS_AFTER", "LEADERS_BEFORE", "LEADERS_AFTER")] == [
        *("1", "3", "0", "3", "0")
    ]


@pytest.mark.spec("RSN-3", "RSN-4", "ADM-70")
@pytest.mark.parametrize("strategy", ["kafka", "minimal"])
def test_what_a_request_moves_is_planned_from_its_replicas_before_the_move(
    zk: ZooKeeper, zk_connect: str, strategy: str
) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1, 2, 3), 1: (1, 2, 3), 2: (3, 2, 1)}}, brokers=(1, 2, 3, 4, 5, 6))
    nodes.request(zk, tp(0), (4, 5, 6))
    nodes.request(zk, tp(1), (2, 3, 4))
    flags = ("--broker-list", "1,2,3,4,5,6", "--strategy", strategy)
    found = generate(zk_connect, *flags)
    assert found.exit_code == 0, found.output
    _, current, _, _, proposed = found.stdout.splitlines()
    before = [set(e["replicas"]) for e in json.loads(current)["partitions"]]
    assert before == [{1, 2, 3}] * 3, "executed, it is the way back"
    assert [len(e["replicas"]) for e in json.loads(proposed)["partitions"]] == [3, 3, 3]
    assert found.stderr.startswith("[t,0],[t,1]: being moved; planned from the replicas before the move\n")
    assert "different numbers" not in found.stderr
    nodes.end_requests(zk, "t")
    assert "being moved" not in generate(zk_connect, *flags).stderr


@pytest.mark.spec("RSN-3", "RSN-4")
def test_where_controllers_do_not_tell_what_was_before_a_move_it_is_planned_from_its_target(
    zk: ZooKeeper, zk_connect: str
) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (4, 5, 1, 2), 1: (1, 2)}}, brokers=(1, 2, 3, 4, 5))
    moves = {**plan({0: (4, 5)}), **plan({1: (4, 5)})}  # of 1 the controller has not begun
    zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode(moves))
    found = generate(zk_connect, "--broker-list", "1,2,3,4,5", "--strategy", "minimal")
    assert found.exit_code == 0, found.output
    _, current, _, _, proposed = found.stdout.splitlines()
    assert [e["replicas"] for e in json.loads(current)["partitions"]] == [[4, 5], [1, 2]]
    assert [len(e["replicas"]) for e in json.loads(proposed)["partitions"]] == [2, 2]
    assert found.stderr.splitlines()[:2] == [
        "[t,1]: being moved; planned from the replicas before the move",
        "[t,0]: being moved, and nothing tells what was there before; planned from the replicas to come",
    ]
