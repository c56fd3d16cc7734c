"""A throttle that an earlier plan has left, as nobody verified it to its end: it is named, and what takes it off works."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from kafkatool.commands.reassign.run_output import RunOutput
from kafkatool.core.errors import ConnectionLostError
from kafkatool.core.operations.config_writes import read_configs
from kafkatool.core.operations.reassignment import throttles
from kafkatool.core.operations.reassignment.following import Progress
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


@pytest.mark.spec("RSN-23X")
@pytest.mark.parametrize(
    ("at", "code", "told", "left"),
    [
        ("before", 130, ["nothing of the plan is under way; throttles are as they were"], False),
        (
            "after",
            130,
            [
                "the plan was begun and goes on without kt; the throttle stays",
                "kt reassign --zookeeper ZK --verify --reassignment-json-file FILE"
                "  # look; takes the throttle off when all is done",
            ],
            True,
        ),
        (
            "lost",
            1,
            [
                "gone: whether the plan was begun, and its throttle stays, cannot be seen",
                "kt reassign --zookeeper ZK --list  # shows what moves, and how to take off a throttle that is left",
            ],
            True,
        ),
    ],
)
def test_a_start_under_a_throttle_that_is_cut_short_says_where_things_stand(
    zk: ZooKeeper,
    zk_connect: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at: str,
    code: int,
    told: list[str],
    left: bool,
) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1,)}})
    file = plan_file(tmp_path / "plan.json", {0: (2,)})
    create = ZooKeeper.create

    def gone(*_: Any, **__: Any) -> Any:
        raise ConnectionLostError("gone")

    def cut(self: ZooKeeper, path: str, *args: Any, **more: Any) -> str:
        if path != ReassignmentZnode.PATH:
            return create(self, path, *args, **more)
        if at == "lost":
            for name in ("get", "get_many", "set", "create", "children"):
                patch.setattr(ZooKeeper, name, gone)
            gone()
        if at == "after":
            create(self, path, *args, **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ZooKeeper, "create", cut)
        found = run(zk_connect, "--execute", "--reassignment-json-file", file, "--throttle", 5000)
    assert found.exit_code == code, found.output
    wanted = [line.replace("ZK", zk_connect).replace("FILE", str(file)) for line in told]
    lines = found.stderr.splitlines()
    assert [line for line in lines if line in wanted] == wanted, found.output
    assert bool(config(zk, "topics", "t")) == left


@pytest.mark.spec("RSN-10", "RSN-23X")
def test_rates_set_for_a_move_that_no_list_throttles_are_told_to_slow_nothing(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path
) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1,)}, "u": {0: (1,)}})
    file = plan_file(tmp_path / "plan.json", {0: (2,)})
    flags = ("--execute", "--reassignment-json-file", file, "--throttle", 5000)
    nothing = "topic t: no list of throttled replicas is set, so that these rates do not slow its move"
    zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode({**plan({0: (2,)}), **plan({0: (2,)}, "u")}))
    lists = dict.fromkeys(throttles.REPLICAS, "")  # as of a plan under a throttle that copies nothing
    zk.create(ConfigZnode.path("topics", "u"), ConfigZnode.encode(lists), make_parents=True)
    found = run(zk_connect, *flags)
    assert found.exit_code == 0 and found.stdout.endswith("The throttle limit was set to 5000 B/s\n"), found.output
    assert nothing in found.stderr.splitlines(), found.stderr
    zk.create(ConfigZnode.path("topics", "t"), ConfigZnode.encode(dict.fromkeys(throttles.REPLICAS, "0:1")))
    assert "no list" not in run(zk_connect, *flags).stderr


@pytest.mark.spec("RSN-23X", "RSN-10")
@pytest.mark.parametrize("throttle", [(), ("--throttle", 3000)], ids=["unthrottled", "throttled"])
def test_a_run_that_ends_names_the_rates_that_others_have_set_meanwhile(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, throttle: tuple[object, ...]
) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1,)}, "u": {0: (3,)}}, brokers=(1, 2, 3, 4))
    standing = dict.fromkeys(
        throttles.RATES, "999"
    )  # which an administrator wants to stand, and nobody needs to hear of
    zk.create(ConfigZnode.path("brokers", "4"), ConfigZnode.encode(standing), make_parents=True)
    file, other = plan_file(tmp_path / "plan.json", {0: (2,)}), plan_file(tmp_path / "other.json", {0: (3,)}, "u")
    show = RunOutput.progress

    def set_rates(self: RunOutput, p: Progress) -> None:
        show(self, p)
        if p.left:
            flags = ("--execute", "--reassignment-json-file", other, "--throttle", 5000)
            assert run(zk_connect, *flags).exit_code == 0
            nodes.reassign(zk)

    monkeypatch.setattr(RunOutput, "progress", set_rates)
    found = run(zk_connect, "--execute", "--reassignment-json-file", file, "--wait", *throttle)
    assert found.exit_code == 0, found.output
    assert found.stderr.splitlines()[-2:] == [
        f"meanwhile somebody else has set {RATES} of broker 3, which stand",
        f"kt reassign --zookeeper {zk_connect} --list  # tells how to take them off",
    ], found.output
    assert (config(zk, "brokers", "3") or {})[throttles.RATES[0]] == "5000"
    assert config(zk, "brokers", "4") == standing


@pytest.mark.spec("RSN-23X")
def test_rates_that_stood_before_a_run_are_not_told_at_its_end(zk: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1,)}})
    standing = dict.fromkeys(throttles.RATES, "999")
    zk.create(ConfigZnode.path("brokers", "1"), ConfigZnode.encode(standing), make_parents=True)
    file = plan_file(tmp_path / "plan.json", {0: (2,)})
    with nodes.controller(zk_connect, ReassignmentZnode.PATH, nodes.reassign):
        for throttle in ((), ("--throttle", 5000)):
            found = run(zk_connect, "--execute", "--reassignment-json-file", file, "--wait", *throttle)
            assert found.exit_code == 0 and "meanwhile" not in found.stderr, found.output
