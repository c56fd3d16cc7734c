"""Dry runs are refused what the run would be; and a run of several writes before its first one."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from kazoo.security import ACL, READ_ACL_UNSAFE, make_digest_acl

from kafkatool.commands.main import kt
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigChangeZnode, TopicZnode
from tests.commands.reassign.runner import plan_file
from tests.core.operations.reassignment.plans import config
from tests.core.zookeeper import cluster_nodes as nodes
from tests.core.zookeeper.sessions import link_of

pytestmark = pytest.mark.spec("SEC-25")

THEIRS: list[ACL] = [make_digest_acl("someone", "else", all=True), *READ_ACL_UNSAFE]


@pytest.fixture(autouse=True)
def cluster(zk: ZooKeeper) -> None:
    """Make a cluster of which everything can be read."""
    nodes.make_cluster(zk, topics={"t": {0: (1, 2), 1: (2, 1)}, "u": {0: (1, 2)}})


def close(zk: ZooKeeper, *paths: str) -> None:
    for path in paths:
        link_of(zk).client.set_acls(path, THEIRS)


def run(zk_connect: str, command: str, *args: object) -> Result:
    return CliRunner().invoke(kt, [*command.split(), "--zookeeper", zk_connect, *map(str, args)])


@pytest.mark.parametrize(
    ("command", "closed"),
    [
        ("topics create --topic new --partitions 1 --replication-factor 1", "/brokers/topics"),
        ("topics alter --topic t --partitions 3", TopicZnode.path("t")),
        ("topics alter --topic t --config flush.ms=1", ConfigChangeZnode.PATH),
        ("topics alter --topic t --replication-factor 3", "/admin"),
        ("topics delete --topic t", "/admin/delete_topics"),
        ("elect", "/admin"),
        ("drain 1 --no-throttle", "/admin"),
        ("acls add --allow-principal User:a --operation Read --topic t", "/kafka-acl/Topic"),
        ("users alter --entity-name a --delete-config SCRAM-SHA-256", "/config/users/a"),
    ],
    ids=lambda value: value.partition(" --")[0] if " " in value else None,
)
def test_a_dry_run_is_refused_and_names_the_node(zk: ZooKeeper, zk_connect: str, command: str, closed: str) -> None:
    if closed.startswith("/kafka-acl"):
        zk.create(closed, make_parents=True)
    if closed.startswith("/config/users"):
        zk.create(closed, b'{"version":1,"config":{"SCRAM-SHA-256":"x"}}', make_parents=True)
    allowed = run(zk_connect, command, "--dry-run")
    assert allowed.exit_code == 0 and allowed.stdout, allowed.output
    close(zk, closed)
    before = nodes.tree(zk)
    refused = run(zk_connect, command, "--dry-run")
    assert refused.exit_code == 1 and f"no permission for znode {closed}" in refused.output, refused.output
    assert nodes.tree(zk) == before


def test_a_dry_run_of_cancel_and_of_verify_is_refused(zk: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    file = ("--reassignment-json-file", plan_file(tmp_path / "plan.json", {0: (2, 3)}))
    assert run(zk_connect, "reassign --execute", *file, "--throttle", 5000).exit_code == 0
    close(zk, "/admin/reassign_partitions")
    cancelled = run(zk_connect, "reassign --cancel", *file, "--dry-run")
    assert cancelled.exit_code == 1 and "no permission for znode /admin/reassign_partitions" in cancelled.output
    link_of(zk).client.delete("/admin/reassign_partitions")
    zk.set(TopicZnode.path("t"), TopicZnode({0: (2, 3), 1: (2, 1)}).encode(), 0)
    close(zk, ConfigChangeZnode.PATH)
    verified = run(zk_connect, "reassign --verify", *file, "--dry-run")
    assert verified.exit_code == 1 and f"no permission for znode {ConfigChangeZnode.PATH}" in verified.output


def test_several_changes_of_topics_are_refused_before_the_first_one(zk: ZooKeeper, zk_connect: str) -> None:
    close(zk, TopicZnode.path("u"))
    before = nodes.tree(zk)
    flags = ("--topic", ".*", "--force")
    refused = run(zk_connect, "topics alter", *flags, "--partitions", 3, "--config", "flush.ms=1")
    assert refused.exit_code == 1 and f"no permission for znode {TopicZnode.path('u')}" in refused.output
    assert nodes.tree(zk) == before and config(zk, "topics", "t") is None
    changed = run(zk_connect, "topics alter", *flags, "--config", "flush.ms=1")
    assert changed.exit_code == 0 and config(zk, "topics", "t") == {"flush.ms": "1"}, changed.output
