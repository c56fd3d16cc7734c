"""--output json and tsv of every command, run against a cluster of processes, held against docs/schemas (COM-4X)."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.commands.lazy import LazyGroup
from kafkatool.commands.main import kt
from kafkatool.commands.shared.options import KtCommand
from tests.commands.logs.tools import EXAMPLE, without_spark
from tests.paths import ROOT
from tests.steady import STEADY

pytestmark = pytest.mark.usefixtures("unhurried")
SCHEMAS = ROOT / "docs" / "schemas"


class Step(NamedTuple):
    """A command, and the shape its items have by the schema; ``code`` its exit code. T: the test's topic."""

    command: str
    shape: str
    code: int = 0
    errors: int = 0


ZK = "--zookeeper ZK"
GROUPS = ("topics", "acls", "users", "logs", "cluster", "migrate", "transactions")
BOOT = "--bootstrap-server BOOT"
CREDENTIAL = "--add-config SCRAM-SHA-256=[] --password-file password.json"
PLAN = "--reassignment-json-file plan.json"
TO_MOVE = "--topics-to-move-json-file topics.json --broker-list 1,2,3"
STORY = (
    Step(f"topics create {ZK} --topic T --replica-assignment 1:2,2:3 --dry-run", "planned"),
    Step(f"topics create {ZK} --topic T --replica-assignment 1:2,2:3 --config retention.ms=3600000", "partition"),
    Step(f"topics create {ZK} --topic T --replica-assignment 1:2,2:3", "partition", 1, 1),
    Step(f"topics list {ZK} --topic T", "topic"),
    Step(f"acls add {ZK} --allow-principal User:a --operation Read --topic T --dry-run", "planned"),
    Step(f"acls add {ZK} --allow-principal User:a --operation Read --topic T", "acl"),
    Step(f"acls list {ZK} --topic T", "acl"),
    Step(f"acls remove {ZK} --allow-principal User:b --topic T --force", "acl"),
    Step(
        f"users alter {ZK} --entity-name T {CREDENTIAL} --dry-run",
        "planned",
    ),
    Step(f"users alter {ZK} --entity-name T {CREDENTIAL}", "credential"),
    Step(f"users list {ZK}", "credential"),
    Step(f"users describe {ZK} --entity-name T", "credential"),
    Step(f"users describe {ZK} --entity-name nobody", "credential", 1, 1),
    Step(f"zk-acl {ZK} --check", "node", 1),
    Step(f"zk-acl {ZK} --zookeeper.acl secure --force --dry-run --zk-auth-file login.properties", "planned"),
    Step(f"topics describe {ZK} --topic T", "partition"),
    Step(f"topics describe {ZK} --topic T --topics-with-overrides", "topic"),
    Step(f"topics describe {ZK} --topic T-is-not-there", "partition", 1, 1),
    Step(f"topics alter {ZK} --topic T --delete-config retention.ms --config segment.ms=70000 --dry-run", "planned"),
    Step(f"topics alter {ZK} --topic T --delete-config retention.ms --config segment.ms=70000", "configs"),
    Step(f"topics alter {ZK} --topic T --partitions 3", "partitions"),
    Step(f"reassign {ZK} --generate {TO_MOVE} --strategy minimal", "move"),
    Step(f"reassign {ZK} --generate {TO_MOVE} --exclude-brokers 1 --explain", "explained broker"),
    Step(f"reassign {ZK} --execute {PLAN} --dry-run", "planned"),
    Step(f"reassign {ZK} --verify {PLAN}", "move", 1),
    Step(f"reassign {ZK} --execute {PLAN} --throttle 5000000 --wait", "move"),
    Step(f"reassign {ZK} --verify {PLAN}", "move"),
    Step(f"reassign {ZK} --cancel --rollback {PLAN}", "move"),
    Step(f"reassign {ZK} --execute --reassignment-json-file wrong.json", "move", 1, 1),
    Step(f"reassign {ZK} --list", "running"),
    Step(f"elect {ZK} --topic T --dry-run", "planned"),
    Step(f"elect {ZK} --topic T", "election"),
    Step(f"elect {ZK} --report", "report"),
    Step(f"elect {ZK} --topic T --write-json chosen.json", "selection"),
    Step(f"replica-verify {ZK} --once --topic-white-list T", "partition"),
    Step(f"brokers {ZK}", "broker"),
    Step(f"health {ZK}", "finding"),
    Step(f"migrate check {ZK} --bootstrap-server BOOT", "condition", 1),
    Step(f"transactions describe-producers {BOOT} --topic T-is-not-there --partition 0", "producer", 1, 1),
    Step(f"transactions find-hanging {BOOT} --topic T-is-not-there", "hanging", 1, 1),
    Step(f"transactions abort {BOOT} --topic T-is-not-there --partition 0 --start-offset 7", "aborted", 1, 1),
    Step(f"drain 2 {ZK} --no-throttle --dry-run", "planned"),
    Step(f"drain 2 {ZK} --no-throttle", "proof"),
    Step(f"topics delete {ZK} --topic T --dry-run", "planned"),
    Step(f"topics delete {ZK} --topic T --wait 60", "topic"),
    Step("logs report --logs LOGS", "report"),
    Step("logs timeline --logs LOGS", "fact"),
    Step("topics list --zookeeper ZK/nowhere", "topic", 1, 1),
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3, options=STEADY) as running:
        yield running


def run(command: str, form: str, cluster: EmbeddedCluster, topic: str) -> Result:
    names = {
        "ZK": cluster.zookeeper,
        "BOOT": cluster.bootstrap,
        "T": topic,
        "LOGS": str(EXAMPLE),
        "T-is-not-there": "x",
        "ZK/nowhere": "",
    }
    names["ZK/nowhere"] = f"{cluster.zookeeper}/nowhere"
    return CliRunner().invoke(kt, [*(names.get(word, word) for word in command.split(" ")), "--output", form])


def name_of(command: str) -> str:
    words = command.split(" ")
    return "-".join(["kt", *words[: 2 if words[0] in GROUPS else 1]])


def schema_of(command: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SCHEMAS / f"{name_of(command)}.schema.json").read_text())
    return found


@pytest.fixture
def topic(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make a name of this test's own, with the files that the story works on."""
    name: str = "contract-" + request.node.callspec.params["form"]
    (tmp_path / "login.properties").write_text("scheme=digest\nusername=kafka\npassword=any\n")
    moved = [{"topic": name, "partition": p, "replicas": [3, 1]} for p in range(2)]
    for file, value in {
        "password.json": "any text will do",
        "topics.json": {"topics": [{"topic": name}]},
        "plan.json": {"version": 1, "partitions": moved},
        "wrong.json": {"version": 1, "partitions": [{"topic": name, "partition": 0, "replicas": [9]}]},
    }.items():
        (tmp_path / file).write_text(json.dumps(value))
    monkeypatch.chdir(tmp_path)
    without_spark(monkeypatch)
    return name


@pytest.mark.spec("COM-4X", "RSN-35X", "SCL-27X", "TOP-26X")
@pytest.mark.parametrize("form", ["json"])
def test_json_of_every_command_is_as_its_schema_says(cluster: EmbeddedCluster, topic: str, form: str) -> None:
    for step in STORY:
        result = run(step.command, form, cluster, topic)
        assert result.exit_code == step.code, (step.command, result.output)
        schema, document = schema_of(step.command), json.loads(result.stdout)
        Draft202012Validator(schema).validate(document)
        assert len(document["errors"]) == step.errors, step.command
        shapes = [{"$defs": schema["$defs"], "$ref": f"#/$defs/{shape}"} for shape in step.shape.split(" ")]
        for item in document["items"]:
            assert any(Draft202012Validator(shape).is_valid(item) for shape in shapes), (step.command, item)
        assert document["items"] or step.errors or step.shape == "running", step.command


@pytest.mark.slow
@pytest.mark.spec("COM-4X")
@pytest.mark.parametrize("form", ["tsv"])
def test_tsv_of_every_command_has_the_columns_of_its_schema(cluster: EmbeddedCluster, topic: str, form: str) -> None:
    for step in STORY:
        result = run(step.command, form, cluster, topic)
        assert result.exit_code == step.code, (step.command, result.output)
        heading, *rows = (line.split("\t") for line in result.stdout.splitlines())
        columns = schema_of(step.command)["$defs"][step.shape.split(" ")[0]]["x-tsv-columns"]
        assert heading == [*(c.upper() for c in columns), "ERROR", "MESSAGE"], step.command
        assert all(len(row) == len(heading) for row in rows)
        assert len([row for row in rows if row[-2]]) == step.errors and all(bool(r[-1]) == bool(r[-2]) for r in rows)


@pytest.mark.spec("COM-4X")
def test_the_local_cluster_describes_itself_as_its_schema_says(cluster: EmbeddedCluster) -> None:
    status = ["cluster", "status", "--dir", cluster.status().directory, "--output"]
    document = json.loads(CliRunner().invoke(kt, [*status, "json"]).stdout)
    Draft202012Validator(schema_of("cluster status")).validate(document)
    assert "items" not in document and CliRunner().invoke(kt, [*status, "tsv"]).exit_code == 2


def commands(group: click.Command, *words: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command that is no group, with its words."""
    if isinstance(group, click.Group):
        ctx = click.Context(group)
        for name in group.list_commands(ctx):
            found = group.get_command(ctx, name)
            assert found is not None
            yield from commands(found, *words, name)
    else:
        yield words, group


@pytest.mark.spec("COM-4X")
def test_each_command_that_has_output_has_a_schema_and_names_its_columns_in_the_help() -> None:
    assert isinstance(kt, LazyGroup)
    named = {"kt-cluster-status.schema.json"}
    for words, command in commands(kt):
        formats = [o for o in command.params if isinstance(o, click.Option) and "--output" in o.opts]
        if not formats or words[0] == "cluster":
            continue
        schema = schema_of(" ".join(words))
        named.add(f"kt-{'-'.join(words)}.schema.json")
        Draft202012Validator.check_schema(schema)
        assert isinstance(command, KtCommand)
        assert schema["properties"]["tool"] == {"const": f"kt {' '.join(words)}"}
        keys = ["tool", "cluster_id", "items", "errors", *["verdict"] * (words == ("logs", "timeline"))]
        assert (schema["required"], list(schema["properties"])) == (keys[:4], keys), words
        assert schema["additionalProperties"] is False, words
        shapes = [shape for name, shape in schema["$defs"].items() if name != "error"]
        assert list(command.columns) in [shape["x-tsv-columns"] for shape in shapes], words
        shown = CliRunner().invoke(kt, [*words, "--help"]).stdout
        columns = {column for shape in shapes for column in shape["x-tsv-columns"]}
        assert [c for c in columns if not re.search(rf"\b{c}\b", shown, re.IGNORECASE)] == [], words
        assert "one document tool, cluster_id, items, errors" in shown
        assert "ERROR" in shown and "MESSAGE" in shown
    assert named == {file.name for file in SCHEMAS.iterdir()}


@pytest.mark.spec("COM-4X")
def test_no_command_that_has_output_is_left_out_of_the_story() -> None:
    played = {name_of(step.command) for step in STORY}
    of_other_tests = {
        "kt-cluster-status",
        "kt-transactions-list",
        "kt-transactions-describe",
    }  # the last two: in compat
    assert played | of_other_tests == {file.name.removesuffix(".schema.json") for file in SCHEMAS.iterdir()}
    assert sum(step.errors for step in STORY) == 8


@pytest.mark.spec("COM-4X")
def test_every_command_shows_an_example_in_its_help() -> None:
    for words, command in commands(kt):
        assert isinstance(command, KtCommand), words
        shown = CliRunner().invoke(kt, [*words, "--help"]).stdout
        assert command.examples and all(example in shown for example in command.examples), words
        assert f"kt {' '.join(words)}" in command.examples[0], words
