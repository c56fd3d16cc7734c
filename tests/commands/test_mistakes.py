"""The likely mistakes, each over a real ZooKeeper: one line for what Kafka says, one for what to do now; nothing written."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner
from kazoo.client import KazooClient
from kazoo.security import Permissions, make_acl

from kafkatool.commands.main import kt
from kafkatool.commands.shared import options
from kafkatool.core.planner.plan_files import plan_json
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import (
    BrokersZnode,
    ControllerZnode,
    PreferredElectionZnode,
    ReassignmentZnode,
    TopicsZnode,
)
from tests.commands.topics.runner import make_orders
from tests.core.operations.reassignment.plans import plan
from tests.core.zookeeper import cluster_nodes as nodes
from tests.ports import free_port

CURLY = "{“partitions”:[{“topic”:“orders”,“partition”:0,“replicas”:[1]}]}"
FILES = {
    "curly.json": CURLY,
    "cut.json": '{"version":1,"partitions":[\n{"topic":"orders"',
    "empty.json": "",
    "other.json": '{"topics":[{"topic":"orders"}]}',
    "orders.json": plan_json(plan({0: (2, 3, 4)}, "orders")),
    "stale.json": plan_json(plan({7: (1, 2, 3)}, "orders")),
    "unknown.json": plan_json(plan({0: (1, 9, 3)}, "orders")),
}


def close(path: str, permissions: int) -> Callable[[ZooKeeper], None]:
    def act(zk: ZooKeeper) -> None:
        client = KazooClient(zk.connect)
        client.start()
        client.set_acls(path, [make_acl("world", "anyone", all=False, **_named(permissions))])
        client.stop()
        client.close()

    return act


def _named(permissions: int) -> dict[str, bool]:
    names = {"read": Permissions.READ, "write": Permissions.WRITE, "create": Permissions.CREATE}
    return {name: bool(permissions & bit) for name, bit in names.items()}


def no_controller(zk: ZooKeeper) -> None:
    zk.delete(ControllerZnode.PATH)


def reassigning(zk: ZooKeeper) -> None:
    zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode(plan({1: (1, 2, 3)}, "orders")))


class Mistake(NamedTuple):
    """``said``: parts of the one line on stderr; ``kafkas``: of the one line on stdout, where there is one."""

    command: str
    said: tuple[str, ...]
    kafkas: str = ""
    code: int = 1
    before: Callable[[ZooKeeper], None] = lambda _: None


EXECUTE, VERIFY = (f"reassign --zookeeper ZK --{mode} --reassignment-json-file" for mode in ("execute", "verify"))
GENERATE = "reassign --zookeeper ZK --generate --topics-to-move-json-file other.json --broker-list"
CREATE = "topics create --zookeeper ZK --topic"
QUOTE = ("curly.json:1:2: not JSON: typographic quote “ where JSON wants a plain", "copied from a web page?")

MISTAKES = {
    # addresses
    "nothing listens": Mistake("topics list --zookeeper NOBODY", ("no ZooKeeper: nothing listens at NOBODY",)),
    "no such host": Mistake(
        "topics describe --zookeeper no-such-host.invalid:2181",
        ("no such host: no-such-host.invalid; check the address",),
    ),
    "not an address": Mistake("topics list --zookeeper http://zk1", ("'http://zk1'", "host:port"), code=2),
    "no address at all": Mistake(
        "topics list",
        ("no cluster is named", "KAFKATOOL_ZOOKEEPER", "--bootstrap-server", "./.kafkatool.toml", "kt cluster up"),
        code=2,
    ),
    "chroot that is not there": Mistake(
        "topics list --zookeeper ZK/kafka", ("has no path", "/kafka: check the chroot")
    ),
    "chroot forgotten": Mistake(
        "topics describe --zookeeper SERVER --topic orders",
        ("no Kafka cluster at SERVER", "is the chroot missing? There is", "no topic"),
        "Topic 'orders' does not exist as expected",
    ),
    "both addresses": Mistake(
        "topics list --bootstrap-server 127.0.0.1:9092 --zookeeper ZK",
        ("Only one of --bootstrap-server or --zookeeper must be specified",),
        code=2,
    ),
    "a broker without port": Mistake("topics list --bootstrap-server kafka1", ("'kafka1'", "host:port"), code=2),
    "no broker there": Mistake("topics list --bootstrap-server NOBODY", ("no broker answers", "NOBODY: refused")),
    "both addresses, to verify replicas": Mistake(
        "replica-verify --once --bootstrap-server=127.0.0.1:9092 --zookeeper ZK",
        ("Only one of --bootstrap-server or --zookeeper must be specified",),
        code=2,
    ),
    "no broker at the address": Mistake("replica-verify --once --broker-list NOBODY", ("cannot connect to NOBODY",)),
    # names
    "unknown topic, described": Mistake(
        "topics describe --zookeeper ZK --topic order", ("near: orders",), "Topic 'order' does not exist as expected"
    ),
    "unknown topic, deleted": Mistake(
        "topics delete --zookeeper ZK --topic payments",
        ("no topic of 1", "kt topics list"),
        "does not exist on ZK path",
    ),
    "unknown topic, verified": Mistake(
        "replica-verify --once --zookeeper ZK --topic-white-list x", ("No topics found",)
    ),
    "unknown topic, planned for": Mistake(
        "reassign --zookeeper ZK --generate --topics-to-move-json-file no.json --broker-list 1",
        ("cannot read no.json: No such file",),
        code=2,
    ),
    "topic there already": Mistake(
        f"{CREATE} orders --partitions 1 --replication-factor 1", ("--if-not-exists",), "Topic 'orders' already exists."
    ),
    "not a regex": Mistake(
        "topics describe --zookeeper ZK --topic [", ("regex: unterminated",), "[ is an invalid regex."
    ),
    "unknown config": Mistake(
        "topics alter --zookeeper ZK --topic orders --config retention=1",
        ("there are retention.ms, retention.bytes",),
        "Unknown Log configuration retention.",
    ),
    "unknown command": Mistake("topic list", ("no command 'topic': did you mean topics?",), code=2),
    "unknown action": Mistake("topics discribe --zookeeper ZK", ("did you mean describe?",), code=2),
    "unknown flag": Mistake("topics list --zookeper ZK", ("No such option", "--zookeper", "--zookeeper"), code=2),
    "Kafka's spelling": Mistake("topics --list --zookeeper ZK", ("write: kt topics list --zookeeper ZK",), code=2),
    # files
    "curly quotes, executed": Mistake(f"{EXECUTE} curly.json", QUOTE, code=2),
    "curly quotes, verified": Mistake(f"{VERIFY} curly.json", QUOTE, code=2),
    "curly quotes, elected": Mistake("elect --zookeeper ZK --path-to-json-file curly.json", QUOTE, code=2),
    "cut off": Mistake(f"{EXECUTE} cut.json", ("cut.json:2:", "not JSON"), code=2),
    "empty": Mistake(f"{EXECUTE} empty.json", ("empty.json:1:1: not JSON: the file is empty",), code=2),
    "no file": Mistake(f"{EXECUTE} no.json", ("cannot read no.json: No such file or directory",), code=2),
    "unreadable file": Mistake(f"{EXECUTE} .", ("cannot read .: Is a directory",), code=2),
    "other kind of file": Mistake(
        f"{EXECUTE} other.json",
        ('other.json has no partitions; the form is {"version":1,"partitions":[{"topic":"t"',),
        "Partitions reassignment failed due to Partition reassignment data file is empty",
    ),
    "other kind of file, elected": Mistake(
        "elect --zookeeper ZK --path-to-json-file other.json",
        ("other.json has no partitions; the form is",),
        "Failed to start preferred replica election\nPreferred replica election data is empty",
    ),
    # the cluster is not as the operator thinks
    "stale plan": Mistake(
        f"{EXECUTE} stale.json", ("the plan is stale", "--generate"), "non-existent partitions: [orders,7]"
    ),
    "broker down, in a plan": Mistake(
        f"{EXECUTE} unknown.json", ("registered brokers: 1,2,3,4", "--force"), "non-existent brokerIDs: 9"
    ),
    "broker down, to plan for": Mistake(f"{GENERATE} 1,9", (), "not registered: 9 (registered: 1,2,3,4)"),
    "too few brokers": Mistake(
        f"{CREATE} new --partitions 1 --replication-factor 9", ("start the missing ones",), "available brokers: 4"
    ),
    "no controller": Mistake(
        "elect --zookeeper ZK --topic orders",
        (),
        "Failed to start preferred replica election\nno controller is elected, so nobody would carry out",
        before=no_controller,
    ),
    "another reassignment": Mistake(
        f"{EXECUTE} orders.json",
        ("kt reassign --list shows",),
        "There is an existing assignment running.",
        before=reassigning,
    ),
    "another cluster": Mistake(
        f"{CREATE} new --partitions 1 --replication-factor 1 --cluster-id x",
        ("--cluster-id is x, but the cluster at", "has id the-cluster; nothing was written"),
    ),
    # ZooKeeper refuses
    "no permission to read": Mistake(
        "topics list --zookeeper ZK",
        ("no permission for znode /brokers/topics", "this session has no login", "--zk-auth-file"),
        before=close(TopicsZnode.PATH, Permissions.WRITE),
    ),
    "no permission to look around": Mistake(
        f"{CREATE} new --partitions 1 --replication-factor 1",
        ("no permission for znode /brokers/ids",),
        before=close(BrokersZnode.PATH, Permissions.WRITE),
    ),
    "no permission to write": Mistake(
        f"{CREATE} new --partitions 1 --replication-factor 1",
        ("no permission for znode /brokers/topics/new", "this session has no login"),
        before=close(TopicsZnode.PATH, Permissions.READ),
    ),
    "no permission to start": Mistake(
        f"{EXECUTE} orders.json --rollback-file r.json",
        ("log in by --zk-auth-file",),
        "Partitions reassignment failed due to no permission for znode /admin/reassign_partitions",
        before=close("/admin", Permissions.READ),
    ),
    "znode too large": Mistake(
        f"{CREATE} new --partitions 500 --replication-factor 3 --zk-max-bytes 4096",
        (
            "writing znode /brokers/topics/new needs a packet of",
            "over ZooKeeper's limit of 4096 bytes (--zk-max-bytes, a broker's kt.zookeeper.max.packet.bytes)",
        ),
    ),
}


@pytest.mark.usefixtures("no_such_host")
@pytest.mark.spec("COM-1", "COM-2", "COM-3X", "COM-10X", "RSN-17X", "ELE-20X", "RSN-7")
@pytest.mark.parametrize("title", MISTAKES)
def test_a_mistake_is_answered_with_what_where_and_what_now(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, title: str
) -> None:
    mistake = MISTAKES[title]
    nobody, server = f"127.0.0.1:{free_port()}", f"{zk_connect}/outside"  # of the cluster in its chroot
    with ZooKeeper(f"{server}/kafka", create_chroot=True) as inside:
        inside.create(BrokersZnode.PATH, make_parents=True)
    make_orders(zk)
    mistake.before(zk)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(options, "TIMEOUT_MS", 1000 if "NOBODY" in mistake.command else 30_000)
    configs = zk.children("/config/topics")  # a topic is created with its config, in one transaction
    before = nodes.tree(zk) if mistake.code == 2 else {}

    def named(text: str) -> str:
        return text.replace("NOBODY", nobody).replace("SERVER", server).replace("ZK", zk_connect)

    result = CliRunner().invoke(kt, [named(word) for word in mistake.command.split(" ")])
    assert result.exit_code == mistake.code, result.output
    assert all(named(part) in result.stderr for part in mistake.said), result.stderr
    assert mistake.kafkas in result.stdout and bool(mistake.kafkas) == bool(result.stdout)
    assert len(result.stderr.splitlines()) <= 2
    assert "Traceback" not in result.output and "Error: " not in result.stderr
    assert zk.children("/config/topics") == configs
    assert mistake.code != 2 or nodes.tree(zk) == before
    assert zk.get(PreferredElectionZnode.PATH) is None
    if mistake.before is not reassigning:
        assert zk.get(ReassignmentZnode.PATH) is None
