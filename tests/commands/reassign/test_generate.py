"""kt reassign --generate: the five lines that scripts parse, and what is shown beside them."""

import json
from pathlib import Path

import pytest
from click.testing import Result

from kafkatool.core.planner.plan_files import plan_json
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.commands.reassign.runner import GOAL, run
from tests.core.operations.reassignment.plans import NINE, plan


@pytest.mark.spec("RSN-4", "RSN-2", "RSN-32X")
def test_generate_prints_five_lines_whose_last_is_a_plan(seed: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    topics = '{"topics":[{"topic":"t"}],"version":1}'
    flags = ("--generate", "--topics-to-move-json-file", "-", "--broker-list", "2,3", "--out", saved)
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
    assert lines[4] in (plan_json(plan(GOAL)), plan_json(plan({p: (2 + p % 2,) for p in range(9)})))
    assert saved.read_text().strip() == lines[4]
    assert run(zk_connect, "--execute", "--reassignment-json-file", saved).exit_code == 0


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
        ('{"topics":[{"topic":"t"}]}', "1,2,1", "Broker list contains duplicate entries: 1"),
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


@pytest.mark.spec("RSN-26X", "RSN-4")
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
    assert all(text.endswith("  leaves 1") for text in partitions)
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
def test_draining_every_broker_of_the_list_is_refused(seed: ZooKeeper, zk_connect: str) -> None:
    refused = generate(zk_connect, "--broker-list", "1,2", "--exclude-brokers", "2,1")
    assert (refused.exit_code, refused.stderr) == (1, "")
    assert "every broker of the broker list is excluded" in refused.stdout
    typo = generate(zk_connect, "--broker-list", "1,2", "--exclude-brokers", "x")
    assert typo.exit_code == 2 and "--exclude-brokers 'x' is not a list of broker ids" in typo.stderr
    gone = generate(
        zk_connect, "--broker-list", "1,2,9", "--exclude-brokers", "9"
    )  # dead and listed: drained all the same
    assert gone.exit_code == 0


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
