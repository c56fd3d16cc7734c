"""A throttle that an earlier plan has left, as nobody verified it to its end: it is named, and what takes it off works."""

import shlex
from pathlib import Path

import pytest

from kafkatool.core.operations.config_writes import read_configs
from kafkatool.core.operations.reassignment import throttles
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigZnode, ReassignmentZnode, TopicZnode
from tests.commands.reassign.runner import plan_file, run
from tests.core.operations.reassignment.plans import config, plan, tp
from tests.core.zookeeper import cluster_nodes as nodes

RATES = " and ".join(throttles.RATES)
LISTS = " and ".join(throttles.REPLICAS)


@pytest.fixture
def left(zk: ZooKeeper, zk_connect: str, tmp_path: Path) -> ZooKeeper:
    """Make two topics on four brokers; a plan moved one from broker 1 to 2, and nobody has looked since."""
    nodes.make_cluster(zk, brokers=(1, 2, 3, 4), topics={"t": {0: (1,)}, "u": {0: (3,), 1: (4,)}})
    file = plan_file(tmp_path / "earlier.json", {0: (2,)})
    flags = ("--execute", "--reassignment-json-file", file, "--throttle", "5000")
    assert run(zk_connect, *flags).exit_code == 0
    nodes.reassign(zk)
    return zk


@pytest.mark.spec("RSN-23X", "RSN-38X")
def test_list_names_it_and_the_command_that_takes_it_off(left: ZooKeeper, zk_connect: str) -> None:
    result = run(zk_connect, "--list")
    assert (result.exit_code, result.stdout) == (0, "No partition reassignments found.\n")
    what, _, way = result.stderr.splitlines()
    assert what == f"though nothing is being moved a throttle stands: {RATES} of brokers 1,2; {LISTS} of topic t"
    echo, _, command = way.partition(" | ")
    (_, text), words = shlex.split(echo), shlex.split(command)
    assert words[:4] == ["kt", "reassign", "--zookeeper", zk_connect]
    taken_off = run(zk_connect, *words[4:], stdin=text)
    assert (taken_off.exit_code, taken_off.stdout.splitlines()[-1]) == (0, "Throttle was removed.")
    assert config(left, "brokers", "1") == {} == config(left, "topics", "t")
    assert run(zk_connect, "--list").stderr == ""


@pytest.mark.spec("RSN-23X")
@pytest.mark.parametrize("flags", [(), ("--throttle", "7000", "--wait", "--timeout", "0")])
def test_the_next_plan_names_it_before_it_starts(
    left: ZooKeeper, zk_connect: str, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    file = plan_file(tmp_path / "next.json", {0: (4,)}, "u")
    told = run(zk_connect, "--execute", "--reassignment-json-file", file, *flags).stderr.splitlines()
    assert told[:2] == [
        "an earlier plan has left its throttle, and this one may move under it: "
        f"{RATES} of brokers 1,2; {LISTS} of topic t",
        f"kt reassign --zookeeper {zk_connect} --list  # when this plan has ended: tells how to take that off",
    ]


@pytest.mark.spec("RSN-38X")
def test_while_others_move_their_rates_are_theirs(left: ZooKeeper, zk_connect: str) -> None:
    left.create(ReassignmentZnode.PATH, ReassignmentZnode.encode(plan({0: (4,)}, "u")))
    listed = run(zk_connect, "--list")
    assert listed.stdout.startswith("Current partition reassignments:\n[u,0]")
    assert listed.stderr.splitlines() == [
        f"{LISTS} of topic t, of which nothing is under way: of a part that has ended, or left by an earlier plan",
        f"kt reassign --zookeeper {zk_connect} --list  # when the rest has ended: tells how to take it off",
    ]


@pytest.mark.spec("RSN-38X")
@pytest.mark.parametrize("by", ["znode", "request"])
def test_a_throttle_that_something_moves_under_is_not_left(left: ZooKeeper, zk_connect: str, by: str) -> None:
    if by == "znode":
        left.create(ReassignmentZnode.PATH, ReassignmentZnode.encode(plan({0: (3,)})))
    else:
        left.set(TopicZnode.path("t"), b'{"version":2,"partitions":{"0":[3,2]},"adding_replicas":{"0":[3]}}', -1)
    assert run(zk_connect, "--list").stderr == ""


@pytest.mark.spec("RSN-38X", "ADM-41")
def test_a_rate_is_not_left_while_a_request_moves_whatever_topic_and_list_shows_that(
    zk: ZooKeeper, zk_connect: str
) -> None:
    nodes.make_cluster(zk, topics={"a": {0: (1, 2)}, "u": {0: (1, 2)}})
    zk.create("/config/brokers/1", ConfigZnode.encode(dict.fromkeys(throttles.RATES, "5000")), make_parents=True)
    nodes.request(zk, tp(0, "u"), (1, 2, 3))
    listed = run(zk_connect, "--list")
    assert listed.stdout.splitlines() == [
        "Current partition reassignments:",
        "[u,0]: replicas: 1,2,3. target: 1,2,3. isr: 1,2.",
    ]
    assert listed.stderr == "" and listed.exit_code == 0


@pytest.mark.spec("RSN-38X")
def test_a_rate_alone_is_named_by_list_and_stops_no_plan_from_starting_in_silence(
    left: ZooKeeper, zk_connect: str, tmp_path: Path
) -> None:
    (lists,) = read_configs(left, [("topics", "t")])
    lists.dropping(throttles.REPLICAS).write(left)
    assert f"a throttle stands: {RATES} of brokers 1,2\n" in run(zk_connect, "--list").stderr
    file = plan_file(tmp_path / "next.json", {0: (4,)}, "u")
    assert "throttle" not in run(zk_connect, "--execute", "--reassignment-json-file", file).stderr
