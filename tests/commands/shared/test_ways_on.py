"""Commands that kt tells a person to type can be pasted as they are: each has all flags of its connection."""

import ast
import shlex
from itertools import pairwise
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import kafkatool
from kafkatool.commands.main import kt
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import BrokersZnode, BrokerZnode
from tests.commands.reassign.runner import plan_file
from tests.core.zookeeper import cluster_nodes as nodes

pytestmark = pytest.mark.spec("COM-5X")

HOMES = {
    "commands/shared/options.py",
    *("commands/reassign/modes.py", "commands/drain/command.py"),  # the way by brokers instead, flags from options.py
    "commands/lazy.py",  # what was typed, in another order
}


@pytest.fixture
def flags(zk: ZooKeeper, zk_connect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make a cluster, and return all flags that a connection to it can have; the context is in a file of settings."""
    nodes.make_cluster(zk, topics={"t": {0: (1, 2)}})
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".kafkatool.toml").write_text("[contexts.prod]\n")
    digest = tmp_path / "kt's login.properties"
    digest.write_text("scheme=digest\nusername=a\npassword=b\n")
    digest.chmod(0o600)
    client = tmp_path / "client.properties"
    client.write_text("security.protocol=PLAINTEXT\n")
    return [
        *("--zookeeper", zk_connect, "--cluster-id", "the-cluster", "--zk-max-bytes", "2000000"),
        *("--command-config", str(client), "--listener", "PLAINTEXT", "--zk-set-acl", "false"),
        *("--zk-auth-file", str(digest)),
    ]


def run(command: str, *args: object) -> Result:
    return CliRunner().invoke(kt, ["--context", "prod", *command.split(), *map(str, args)])


def told(result: Result) -> list[list[str]]:
    """Return the words of each command that was printed to be typed."""
    lines = [line.partition("to put it back: ")[2] or line for line in result.stderr.splitlines()]
    return [
        shlex.split(line, comments=True) for line in lines if line.startswith("kt ") and not line.startswith("kt: ")
    ]


def check(result: Result, flags: list[str]) -> None:
    """Check that commands were told, each with all the flags, and that kt takes them as they are."""
    found = told(result)
    assert found, result.output
    for words in found:
        assert words[:3] == ["kt", "--context", "prod"], words
        given = set(pairwise(words))
        assert given >= set(zip(flags[::2], flags[1::2], strict=True)), words
        command: click.Command = kt
        rest = words[3:]
        with click.Context(kt) as ctx:
            while isinstance(command, click.Group):
                name, command, rest = command.resolve_command(ctx, rest)  # type: ignore[assignment]
            command.make_context(name, rest, parent=ctx, resilient_parsing=True)


def test_those_of_reassign(flags: list[str], tmp_path: Path) -> None:
    file = ("--reassignment-json-file", plan_file(tmp_path / "plan.json", {0: (2, 3)}))
    check(run("reassign --execute --wait --timeout 0", *file, "--throttle", 5000, *flags), flags)


def test_those_of_drain(flags: list[str]) -> None:
    cut_short = run("drain 1 --throttle 5000 --timeout 0 --batch-partitions 7", *flags)
    check(cut_short, flags)
    (resumed,) = (words for words in told(cut_short) if "--resume" in words)
    further = {"--throttle": "5000", "--batch-partitions": "7"}  # a further round is moved as this one
    assert set(further.items()) <= set(pairwise(resumed))
    assert run("drain 1 --cancel --timeout 0", *flags).exit_code == 1


def test_those_of_acls(flags: list[str]) -> None:
    entry = ("--allow-principal", "User:a", "--operation", "Read", "--topic", "t")
    assert run("acls add", *entry, *flags).exit_code == 0
    check(run("acls remove --force", *entry, *flags), flags)


def test_no_other_module_writes_such_a_command() -> None:
    root = Path(kafkatool.__file__).parent
    found = set()
    for file in [*root.glob("commands/**/*.py"), *root.glob("core/operations/**/*.py")]:
        for node in ast.walk(ast.parse(file.read_text())):
            first = node.values[0] if isinstance(node, ast.JoinedStr) else None
            if isinstance(first, ast.Constant) and str(first.value).startswith("kt "):
                found.add(str(file.relative_to(root)))
    assert found == HOMES


@pytest.mark.spec("SEC-33")
@pytest.mark.parametrize(
    "command", ["drain 1 --no-throttle", "drain 1 --no-throttle --dry-run", "health", "reassign --execute"]
)
def test_brokers_that_want_a_login_are_said_to_at_once(
    zk: ZooKeeper, flags: list[str], tmp_path: Path, command: str
) -> None:
    path = f"{BrokersZnode.PATH}/1"
    for broker in (1, 2, 3):
        node = zk.get(path.replace("/1", f"/{broker}"))
        assert node is not None
        zk.set(BrokerZnode.path(broker), node.data.replace(b"PLAINTEXT", b"SASL_SSL"), node.version)
    before = nodes.tree(zk)
    file = plan_file(tmp_path / "plan.json", {0: (2, 3)})
    plan = ["--reassignment-json-file", str(file)] if command.startswith("reassign") else []
    result = CliRunner().invoke(kt, [*command.split(), *flags[:2], *plan])
    assert "brokers have no PLAINTEXT listener but SASL_SSL: give --command-config" in result.output
    if plan:  # it is begun, and who begins it has been told
        assert result.exit_code == 0
        warning = result.stderr.index("on --cancel asks the controller, so without that this plan cannot be cancelled")
        assert warning < result.stderr.index("rollback plan")
    elif command != "health":
        assert result.exit_code == 1 and nodes.tree(zk) == before and not list(Path().glob("drain-*"))
