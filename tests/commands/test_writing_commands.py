"""What holds for every command that writes to ZooKeeper, whichever: bad usage writes nothing, --dry-run is there."""

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner, Result

from kafkatool.commands.main import kt
from kafkatool.core.planner.plan_files import plan_json
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.commands.topics.runner import make_orders
from tests.core.operations.reassignment.plans import plan
from tests.core.zookeeper import cluster_nodes as nodes

FILE = plan_json(plan({0: (2, 3, 4)}, "orders"))
USAGE = {  # "-" is FILE
    "topics create": "--topic n --partitions 1 --replication-factor 1",
    "topics alter": "--topic orders --partitions 3",
    "topics delete": "--topic orders",
    "reassign": "--execute --reassignment-json-file -",
    "elect": "--topic orders",
    "health": "--remove-throttles",
    "drain": "1 --no-throttle",
    "acls add": "--topic t --allow-principal User:a",
    "acls remove": "--topic t --force",
    "users alter": "--entity-name a --add-config SCRAM-SHA-256=[iterations=8192] --password-file -",
    "zk-acl": "--zookeeper.acl secure",
}
BAD_USAGE = {
    "topics create": ["--topic n", "--topic n --partitions 1 --replication-factor 1 --replica-assignment 1"],
    "topics alter": ["--topic orders", "--topic orders --partitions x"],
    "topics delete": ["", "--topic orders --output none"],
    "reassign": ["", "--execute", "--execute --verify", "--list --cancel"],
    "elect": ["--topic orders --path-to-json-file f", "--topic orders --max-json-size x"],
    "health": ["--dry-run", "--remove-throttles --output none"],
    "drain": [
        "",
        "1",
        "1 --throttle 5000 --no-throttle",
        "1 --throttle x",
        "1 --cancel --dry-run",
        "1 --resume --dry-run",
    ],
    "acls add": ["", "--allow-principal User:a", "--topic t", "--topic t --allow-principal a"],
    "acls remove": ["", "--topic t", "--topic t --force --operation None"],
    "users alter": [
        "--entity-name a",
        "--entity-name a --add-config SCRAM-SHA-256",
        "--entity-name a --delete-config SCRAM-SHA-1",
        "--entity-name a --add-config SCRAM-SHA-256=[iterations=8192] --delete-config SCRAM-SHA-256",
        "--entity-name a --add-config SCRAM-SHA-256=[iterations=8192] --password-file /nowhere",
    ],
    "zk-acl": ["", "--zookeeper.acl other", "--check --zookeeper.acl secure"],
}
READING = {
    "topics list": "",
    "topics describe": "",
    "replica-verify": "--once",
    "brokers": "",
    "acls list": "",
    "users list": "",
    "users describe": "--entity-name a",
    "migrate check": "--bootstrap-server 127.0.0.1:1",
}


def actions(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, set[str]]]:
    """Tell every command that is no group, with its flags."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found
            yield from actions(found, (*path, name))
    else:
        yield " ".join(path), {flag for parameter in command.params for flag in parameter.opts}


def everything(zk: ZooKeeper) -> list[object]:
    """Return each node's path, data, version and ACL."""
    tree = nodes.tree(zk)
    return [*tree.items(), *zk.acls_where_permitted(list(tree))]


@pytest.mark.spec("COM-6X")
def test_every_command_lacking_a_dry_run_reads_or_is_a_server(zk: ZooKeeper, zk_connect: str) -> None:
    flags = {name: has for name, has in actions(kt) if "--zookeeper" in has}
    assert {name for name, has in flags.items() if "--dry-run" in has} == set(BAD_USAGE)
    assert {name for name, has in flags.items() if "--dry-run" not in has} == {*READING, "controller start"}
    make_orders(zk)
    before = everything(zk)
    for name, more in READING.items():
        result = CliRunner().invoke(kt, [*name.split(), "--zookeeper", zk_connect, *more.split()])
        assert result.exit_code in {0, 1}, (name, result.output)
        assert everything(zk) == before, name


@pytest.mark.spec("COM-3X", "COM-6X")
@pytest.mark.parametrize("name", BAD_USAGE)
def test_bad_usage_of_a_writing_command_writes_nothing(zk: ZooKeeper, zk_connect: str, name: str) -> None:
    def run(more: str) -> Result:
        words = [*name.split(), "--zookeeper", zk_connect, *more.split()]
        return CliRunner().invoke(kt, words, input=FILE)

    make_orders(zk)
    before = everything(zk)
    good = USAGE[name]
    for more in (*BAD_USAGE[name], f"{good} --no-such-flag", f"{good} --zk-auth-file /nowhere"):
        result = run(more)
        assert result.exit_code == (3 if name == "health" else 2), (more, result.output)
        assert everything(zk) == before, more
    if name not in {"health", "drain", "zk-acl"}:  # these need live brokers, or a login
        result = run(f"{good} --dry-run")
        assert result.exit_code == 0 and everything(zk) == before, result.output
