"""kt elect as its users see it: Kafka's lines on stdout, honest results and exit codes."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kafkatool.commands.elect.columns import CAUTION
from kafkatool.commands.main import kt
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.watched_node import WatchedNode
from kafkatool.core.zookeeper.znodes import ClusterIdZnode, PreferredElectionZnode, ReassignmentZnode, TopicZnode
from tests.core.zookeeper import cluster_nodes as nodes
from tests.paths import ROOT


def run(zk_connect: str, *args: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(kt, ["elect", "--zookeeper", zk_connect, *map(str, args)], input=stdin)


def run_with_controller(zk_connect: str, *args: object, stdin: str | None = None) -> Result:
    with nodes.controller(zk_connect, PreferredElectionZnode.PATH, lambda own: nodes.elect(own, (1, 2))):
        return run(zk_connect, *args, stdin=stdin)


@pytest.fixture
def cluster(zk: ZooKeeper) -> ZooKeeper:
    """Make t-0 and t-1, led by 2 though they prefer 1, and u-0, led by its preferred 2. Broker 3 is not registered."""
    nodes.make_cluster(
        zk,
        brokers=(1, 2),
        topics={"t": {0: (1, 2), 1: (1, 2)}, "u": {0: (2, 1)}},
        states={TopicPartition("t", 0): (2, (2, 1)), TopicPartition("t", 1): (2, (1, 2))},
    )
    return zk


@pytest.mark.spec("ELE-1", "ELE-3", "ELE-4", "ELE-16X", "COM-2", "COM-9X")
def test_all_partitions(cluster: ZooKeeper, zk_connect: str) -> None:
    result = run_with_controller(zk_connect)
    assert result.exit_code == 0, result.output
    assert result.stdout == (
        "Created preferred replica election path with t-0,t-1,u-0\n"
        "Successfully started preferred replica election for partitions Set(t-0, t-1, u-0)\n"
    )
    assert result.stderr.splitlines() == [
        "t-0: elected, preferred 1, leader 1",
        "t-1: elected, preferred 1, leader 1",
        "u-0: already_preferred, preferred 2, leader 2",
        "1 already_preferred, 2 elected",
    ]


@pytest.mark.spec("ELE-1", "ELE-3", "ELE-5")
def test_a_topic_that_is_so_new_that_nothing_is_below_it_does_not_keep_the_others(
    cluster: ZooKeeper, zk_connect: str
) -> None:
    cluster.create(TopicZnode.path("new"), TopicZnode({0: (1,)}).encode())
    before = nodes.tree(cluster)
    result = run(zk_connect, "--no-wait")
    assert result.stdout.startswith("Created preferred replica election path with t-0,t-1,u-0\n")
    assert "new-0 never had a leader and is left out" in result.stderr
    written = {path: node for path, node in nodes.tree(cluster).items() if before.get(path) != node}
    entries = [{"topic": t, "partition": p} for t, p in (("t", 0), ("t", 1), ("u", 0))]
    assert written.keys() == {PreferredElectionZnode.PATH}
    assert json.loads(written[PreferredElectionZnode.PATH][0]) == {"version": 1, "partitions": entries}


@pytest.mark.spec("ELE-3", "ELE-4", "ELE-5", "ELE-2", "COM-9X")
def test_the_znode_holds_what_exists_and_the_rest_is_named_last(cluster: ZooKeeper, zk_connect: str) -> None:
    file = '{"version":1,"partitions":[{"topic":"x","partition":0},{"topic":"t","partition":9},{"partition":1,"topic":"t"}]}'
    result = run(zk_connect, "--path-to-json-file", "-", "--no-wait", "--partition-form", "bracket", stdin=file)
    assert result.exit_code == 1
    assert result.stdout == (
        "Created preferred replica election path with [t,1]\n"
        "Successfully started preferred replica election for partitions Set([t,1])\n"
        "Skipping preferred replica leader election for partition [t,9] since it doesn't exist.\n"
        "Skipping preferred replica leader election for partition [x,0] since it doesn't exist.\n"
    )
    node = cluster.get(PreferredElectionZnode.PATH)
    assert node is not None and (node.ephemeral_owner, node.version) == (0, 0), "made once, and it stays"
    assert node.data == b'{"version":1,"partitions":[{"topic":"t","partition":1}]}'


@pytest.mark.spec("ELE-16X")
def test_without_waiting_it_ends_as_kafkas_tool_does(cluster: ZooKeeper, zk_connect: str) -> None:
    result = run(zk_connect, "--no-wait")
    assert result.exit_code == 0 and len(result.stdout.splitlines()) == 2
    assert cluster.get(PreferredElectionZnode.PATH) is not None


@pytest.mark.spec("ELE-4", "ELE-5")
def test_nothing_left_to_elect_creates_no_znode(cluster: ZooKeeper, zk_connect: str) -> None:
    for number in (0, 1):
        cluster.delete(f"/brokers/topics/t/partitions/{number}/state")
    file = '{"partitions":[{"topic":"x","partition":0},{"topic":"t","partition":0},{"topic":"t","partition":1}]}'
    result = run(zk_connect, "--path-to-json-file", "-", stdin=file)
    assert result.exit_code == 1
    assert result.stdout == ("Skipping preferred replica leader election for partition x-0 since it doesn't exist.\n")
    for number in (0, 1):
        assert f"t-{number} never had a leader and is left out" in result.stderr
    assert cluster.get(PreferredElectionZnode.PATH) is None


@pytest.mark.spec("ELE-5")
def test_an_empty_file_elects_nothing_and_says_so(cluster: ZooKeeper, zk_connect: str) -> None:
    result = run(zk_connect, "--path-to-json-file", "-", stdin='{"partitions":[]}')
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "no partition to elect: the file names none\n")
    assert cluster.get(PreferredElectionZnode.PATH) is None


@pytest.mark.spec("ELE-2")
def test_a_file_without_a_name_is_not_all_partitions(zk_connect: str, cluster: ZooKeeper) -> None:
    """As of a variable that a script has not set."""
    before = nodes.tree(cluster)
    result = run(zk_connect, "--path-to-json-file", "")
    assert result.exit_code == 2 and "cannot read" in result.stderr
    assert run(zk_connect, "--path-to-json-file", "", "--topic", "t").exit_code == 2
    assert nodes.tree(cluster) == before


@pytest.mark.spec("ELE-19X", "ELE-16X")
def test_a_selection_of_nothing_says_what_there_is(cluster: ZooKeeper, zk_connect: str) -> None:
    assert "no topic matches 'tt'; near: t\n" in run(zk_connect, "--topic", "tt").stderr
    broker = run(zk_connect, "--broker", "9")
    assert broker.stderr == "no partition to elect: none prefers broker 9; registered brokers: 1, 2\n"
    file = '{"partitions":[{"topic":"t","partition":0},{"topic":"t","partition":99}]}'
    unknown = run(zk_connect, "--path-to-json-file", "-", "--timeout", "0", stdin=file)
    assert "t-99: unknown, there is no such partition\n" in unknown.stderr


@pytest.mark.spec("ELE-6")
def test_a_running_election_is_named_and_left_alone(cluster: ZooKeeper, zk_connect: str) -> None:
    running = PreferredElectionZnode.encode([TopicPartition("t", 1), TopicPartition("t", 0)])
    cluster.create(PreferredElectionZnode.PATH, running, make_parents=True)
    result = run(zk_connect)
    assert result.exit_code == 1
    assert result.stdout == (
        "Failed to start preferred replica election\n"
        "Preferred replica leader election currently in progress for t-0,t-1. Aborting operation\n"
    )
    node = cluster.get(PreferredElectionZnode.PATH)
    assert node is not None and node.data == running
    document = json.loads(run(zk_connect, "--output", "json").stdout)
    assert "currently in progress" in document["errors"][0]["message"]


@pytest.mark.spec("ELE-2", "COM-3X")
@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (
            '{"partitions":[{"topic":"t","partition":0},{"topic":"t","partition":1},{"topic":"t","partition":0}]}',
            1,
            "Preferred replica election data contains duplicate partitions: t-0",
        ),
        ('{"version":1}', 1, "Preferred replica election data is empty"),
        ("oops", 2, "stdin:1:1: not JSON"),
    ],
)
def test_bad_files(cluster: ZooKeeper, zk_connect: str, text: str, code: int, message: str) -> None:
    result = run(zk_connect, "--path-to-json-file", "-", stdin=text)
    assert result.exit_code == code
    if code == 1:
        assert result.stdout == f"Failed to start preferred replica election\n{message}\n"
    else:
        assert message in result.stderr and not result.stdout
    assert cluster.get(PreferredElectionZnode.PATH) is None


@pytest.mark.spec("COM-3X", "ELE-16X")
def test_each_outcome_is_told_by_its_name_in_text_and_json(cluster: ZooKeeper, zk_connect: str) -> None:
    for topic, replicas, leader, isr in (("behind", (1, 2), 2, (2,)), ("down", (3, 2), 2, (2,))):
        cluster.create(TopicZnode.path(topic), TopicZnode({0: replicas}).encode())
        nodes.set_state(cluster, TopicPartition(topic, 0), leader, isr)
    asked = [("t", 0), ("t", 1), ("u", 0), ("behind", 0), ("down", 0), ("x", 7)]
    file = json.dumps({"partitions": [{"topic": topic, "partition": number} for topic, number in asked]})

    def act(own: ZooKeeper) -> None:
        nodes.elect(own, (1, 2), fail=[TopicPartition("t", 1)])

    told = {
        "behind-0": "not_in_isr, preferred 1, leader 2",
        "down-0": "preferred_down, preferred 3, leader 2",
        "t-0": "elected, preferred 1, leader 1",
        "t-1": "failed, preferred 1, leader 2",
        "u-0": "already_preferred, preferred 2, leader 2",
        "x-7": "unknown, there is no such partition",
    }
    with nodes.controller(zk_connect, PreferredElectionZnode.PATH, act):
        text = run(zk_connect, "--path-to-json-file", "-", stdin=file)
    assert text.exit_code == 1
    lines = dict(line.split(": ", 1) for line in text.stderr.splitlines() if re.match(r"[a-z]+-\d+: ", line))
    assert lines == told
    nodes.set_state(cluster, TopicPartition("t", 0), 2, (2, 1))
    with nodes.controller(zk_connect, PreferredElectionZnode.PATH, act):
        items = json.loads(run(zk_connect, "--path-to-json-file", "-", "--output", "json", stdin=file).stdout)["items"]
    statuses = {f"{item['topic']}-{item['partition']}": item["status"] for item in items}
    assert statuses == {name: words.split(",")[0] for name, words in told.items()}


@pytest.mark.spec("COM-3X", "ELE-16X")
def test_a_controller_that_does_not_answer_is_told(cluster: ZooKeeper, zk_connect: str) -> None:
    result = run(zk_connect, "--timeout", "0.1")
    assert result.exit_code == 1
    assert "the controller has not finished the election after 0.1 s" in result.stderr
    assert "t-0: failed, preferred 1, leader 2" in result.stderr
    cluster.delete(PreferredElectionZnode.PATH)
    nothing_to_do = run(zk_connect, "--topic", "u", "--timeout", "0.1")
    assert nothing_to_do.exit_code == 1 and "u-0: already_preferred" in nothing_to_do.stderr


@pytest.mark.spec("COM-2", "ELE-14X")
def test_batches_print_their_lines_each(cluster: ZooKeeper, zk_connect: str) -> None:
    result = run_with_controller(zk_connect, "--batch-partitions", "2", "--interval", "0.01")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "Created preferred replica election path with t-0,t-1",
        "Successfully started preferred replica election for partitions Set(t-0, t-1)",
        "Created preferred replica election path with u-0",
        "Successfully started preferred replica election for partitions Set(u-0)",
    ]
    assert "batch 1/2: 2 partitions, 0 of 3 done\n" in result.stderr
    assert re.search(r"batch 2/2: 1 partition, 2 of 3 done, ETA \d+:\d\d", result.stderr)


@pytest.mark.spec("ELE-15X")
def test_only_imbalanced(cluster: ZooKeeper, zk_connect: str) -> None:
    result = run_with_controller(zk_connect, "--only-imbalanced", "--output", "json")
    assert result.exit_code == 0
    assert "left out as an election would not change them: 1 already_preferred" in result.stderr
    document = json.loads(result.stdout)
    assert document["cluster_id"] == "the-cluster"
    assert document["items"][0] == {
        "topic": "t",
        "partition": 0,
        "preferred": 1,
        "leader_before": 2,
        "leader": 1,
        "status": "elected",
    }
    again = run(zk_connect, "--only-imbalanced")
    assert again.exit_code == 0 and not again.stdout


@pytest.mark.spec("ELE-15X", "ELE-5")
def test_what_an_election_would_not_change_is_counted_by_reason(cluster: ZooKeeper, zk_connect: str) -> None:
    for topic, replicas, leader, isr in (
        ("behind", (1, 2), 2, (2,)),
        ("down", (3, 2), 2, (2,)),
        ("new", (1,), 1, (1,)),
    ):
        cluster.create(TopicZnode.path(topic), TopicZnode({0: replicas}).encode())
        if topic != "new":
            nodes.set_state(cluster, TopicPartition(topic, 0), leader, isr)
    left_out = "left out as an election would not change them: 1 already_preferred, 1 never_led, 1 not_in_isr, "
    result = run(zk_connect, "--only-imbalanced", "--no-wait")
    assert result.stdout.startswith("Created preferred replica election path with t-0,t-1\n")
    assert left_out + "1 preferred_down\n" in result.stderr
    assert "never had a leader" not in result.stderr, "counted instead of named"
    only_new = run(zk_connect, "--only-imbalanced", "--topic", "new")
    assert (only_new.exit_code, only_new.stdout) == (0, "")
    assert "an election would not change them: 1 never_led\nno partition to elect\n" in only_new.stderr


@pytest.mark.spec("ELE-18X", "ELE-21", "ELE-11")
def test_report_shows_imbalance_with_the_caution_and_writes_nothing(cluster: ZooKeeper, zk_connect: str) -> None:
    before = nodes.tree(cluster)
    result = run(zk_connect, "--report")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "Broker\tLeaders\tPreferred\tImbalance\tOver 10%",
        "1\t0\t2\t100.0%\tyes",
        "2\t3\t1\t0.0%\tno",
    ]
    assert CAUTION in result.stderr
    assert nodes.tree(cluster) == before
    assert run(zk_connect, "--report", "--threshold", "100").stdout.splitlines()[0].endswith("Over 100%")
    assert "1\t0\t2\t100.0%\tno" in run(zk_connect, "--report", "--threshold", "100").stdout
    items = json.loads(run(zk_connect, "--report", "--output", "json").stdout)["items"]
    assert items[0]["imbalance"] == 1.0 and items[0]["over_threshold"]
    of_one = json.loads(run(zk_connect, "--report", "--topic", "t", "--output", "json").stdout)["items"]
    assert [(i["broker"], i["preferred"]) for i in of_one] == [(1, 2), (2, 0)]
    assert "no topic of 2 matches 'nothing'" in run(zk_connect, "--report", "--topic", "nothing").stderr
    refused = run(zk_connect, "--report", "--broker", "1")
    assert refused.exit_code == 2 and "--report can't be used with --broker: it tells of all brokers" in refused.stderr


@pytest.mark.spec("ELE-21")
def test_the_pages_for_operators_say_what_elections_do_not_do() -> None:
    for page in ("README.md", "docs/commands/elect.md"):
        text = " ".join((ROOT / page).read_text().split())
        for said in (
            "Balanced leaders are not balanced load: leaders differ in traffic by orders of magnitude",
            "auto.leader.rebalance.enable=false",
            "put an alarm on the imbalance",
            "by hand in small batches at a quiet hour",
        ):
            assert said in text, page
    assert "PreferredReplicaImbalanceCount" in (ROOT / "README.md").read_text()


@pytest.mark.spec("ELE-13", "ELE-14X", "ELE-16X", "ELE-21", "COM-4X")
def test_help_says_what_elections_do_not_do() -> None:
    text = " ".join(CliRunner().invoke(kt, ["elect", "--help"]).stdout.split())
    assert CAUTION == (
        "Balanced leaders are not balanced load: leaders differ in traffic by orders of magnitude. In production keep "
        "auto.leader.rebalance.enable=false, put an alarm on the imbalance (--report), and elect by hand in small "
        "batches at a quiet hour."
    )
    assert CAUTION in text
    assert (
        "One znode holds about 13,000 partitions with names of 50 characters; kt cuts larger elections into batches."
    ) in text
    assert "without a file" not in text and "without --path-to-json-file" not in text, "no advice against that"
    assert re.search(r"--max-json-size INTEGER RANGE Bytes of one batch\. \[default: 512000;", text)
    assert "--timeout S Wait per batch. [default: 30;" in text
    assert "topic, partition, preferred, leader_before, leader, status" in text


@pytest.mark.spec("ELE-19X")
def test_a_selection_is_saved_in_files_that_can_be_elected(cluster: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    one = tmp_path / "one.json"
    assert run(zk_connect, "--topic", "t.*", "--write-json", one).exit_code == 0
    assert one.read_text() == ('{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"t","partition":1}]}\n')
    run(zk_connect, "--broker", "1", "--batch-partitions", "1", "--write-json", tmp_path / "b.json")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b-1.json", "b-2.json", "one.json"]
    run(zk_connect, "--topic", "t,u", "--max-json-size", "100", "--write-json", tmp_path / "c.json")
    sizes = {p.name: p.stat().st_size for p in tmp_path.glob("c*.json")}
    assert sorted(sizes) == ["c-1.json", "c-2.json"] and max(sizes.values()) <= 101  # the line's end
    assert [json.loads((tmp_path / f"c-{n}.json").read_text())["partitions"] for n in (1, 2)] == [
        [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}],
        [{"topic": "u", "partition": 0}],
    ]
    assert cluster.get(PreferredElectionZnode.PATH) is None
    assert run_with_controller(zk_connect, "--path-to-json-file", one).exit_code == 0
    both = run(zk_connect, "--path-to-json-file", one, "--topic", "t")
    assert both.exit_code == 2


@pytest.mark.spec("ELE-20X", "COM-6X")
def test_without_a_controller_or_beside_a_reassignment_it_needs_force(cluster: ZooKeeper, zk_connect: str) -> None:
    cluster.create(ReassignmentZnode.PATH, ReassignmentZnode.encode({TopicPartition("t", 0): (1,)}), make_parents=True)
    before = nodes.tree(cluster)
    for flags in ((), ("--dry-run",)):
        refused = run(zk_connect, *flags)
        assert refused.exit_code == 1 and "a reassignment of 1 partition is running" in refused.stdout
        assert nodes.tree(cluster) == before
    assert run(zk_connect, "--dry-run", "--force").stdout.startswith(f"create {PreferredElectionZnode.PATH} ")
    assert run_with_controller(zk_connect, "--force").exit_code == 0
    cluster.delete(ReassignmentZnode.PATH)
    cluster.delete("/controller")
    before = nodes.tree(cluster)
    for flags in ((), ("--dry-run",)):
        refused = run(zk_connect, *flags)
        assert refused.exit_code == 1 and "no controller is elected" in refused.stdout
        assert nodes.tree(cluster) == before
    assert run(zk_connect, "--force", "--no-wait").exit_code == 0
    assert cluster.get(PreferredElectionZnode.PATH) is not None


@pytest.mark.spec("ELE-20X")
def test_beside_a_move_by_request_of_what_is_asked_for_it_needs_force(cluster: ZooKeeper, zk_connect: str) -> None:
    nodes.request(cluster, TopicPartition("t", 0), (1, 3))
    before = nodes.tree(cluster)
    for flags in ((), ("--dry-run",), ("--topic", "t")):
        refused = run(zk_connect, *flags)
        assert refused.exit_code == 1 and "a reassignment of 1 partition is running" in refused.stdout
        assert nodes.tree(cluster) == before
    assert run(zk_connect, "--topic", "u", "--dry-run").exit_code == 0, "what moves is not asked for"
    assert run_with_controller(zk_connect, "--force").exit_code == 0


@pytest.mark.spec("COM-6X", "COM-5X", "COM-10X")
def test_a_dry_run_and_the_guards_write_nothing(cluster: ZooKeeper, zk_connect: str) -> None:
    before = nodes.tree(cluster)
    dry = run(zk_connect, "--topic", "u", "--dry-run")
    assert dry.exit_code == 0
    assert dry.stdout == (
        'create /admin/preferred_replica_election {"version":1,"partitions":[{"topic":"u","partition":0}]}\n'
    )
    in_batches = run(zk_connect, "--topic", "t", "--batch-partitions", "1", "--dry-run").stdout.splitlines()
    entry = '{"version":1,"partitions":[{"topic":"t","partition":%d}]}'
    assert in_batches == [f"create {PreferredElectionZnode.PATH} {entry % number}" for number in (0, 1)]
    other = run(zk_connect, "--cluster-id", "other")
    assert other.exit_code == 1 and "--cluster-id is other, but" in other.stdout and "the-cluster" in other.stdout
    cluster.delete(ClusterIdZnode.PATH)
    without = run(zk_connect, "--cluster-id", "the-cluster")
    assert without.exit_code == 1 and "--cluster-id is the-cluster, but" in without.stdout and "no id" in without.stdout
    assert nodes.tree(cluster) == {path: node for path, node in before.items() if path != ClusterIdZnode.PATH}
    nodes_of_many = json.dumps({"version": 1, "partitions": {str(p): [1] for p in range(40)}}).encode()
    cluster.create("/brokers/topics/" + "x" * 200, nodes_of_many)
    for p in range(40):
        nodes.set_state(cluster, TopicPartition("x" * 200, p), 1, (1,))
    large = run(zk_connect, "--topic", "x*", "--zk-max-bytes", "1024")
    assert large.exit_code == 1 and "limit of 1024 bytes" in large.stdout
    assert cluster.get(PreferredElectionZnode.PATH) is None


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.spec("ELE-14X")
def test_ctrl_c_says_how_many_batches_were_sent_and_how_to_go_on(
    cluster: ZooKeeper, zk_connect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WatchedNode, "read", interrupted)  # the wait for the controller
    result = run(zk_connect, "--topic", "t|u", "--batch-partitions", "1")
    assert result.exit_code == 130
    assert "1 of 3 batches were sent; the controller ends the last without kt. To elect the rest:" in result.stderr
    goes_on = f"kt elect --zookeeper {zk_connect} --topic 't|u' --only-imbalanced --batch-partitions 1"
    assert goes_on in result.stderr.splitlines()


@pytest.mark.spec("ELE-14X", "COM-5X")
def test_what_ctrl_c_says_to_type_has_the_guard_the_pause_and_what_was_on_stdin(
    cluster: ZooKeeper, zk_connect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WatchedNode, "read", interrupted)  # the wait for the controller
    flags = ("--cluster-id", "the-cluster", "--interval", "2.5", "--force", "--path-to-json-file", "-")
    result = run(zk_connect, *flags, stdin='{"partitions":[{"topic":"t","partition":0}]}')
    assert result.exit_code == 130
    assert "To elect the rest, FILE being what was on stdin:\n" in result.stderr
    goes_on = (
        f"kt elect --zookeeper {zk_connect} --cluster-id the-cluster --path-to-json-file - --only-imbalanced "
        "--interval 2.5 --force < FILE"
    )
    assert goes_on in result.stderr.splitlines()


@pytest.mark.spec("ELE-14X")
def test_ctrl_c_while_a_batch_is_being_sent_does_not_say_that_it_was_not(
    cluster: ZooKeeper, zk_connect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ZooKeeper, "create", interrupted)
    result = run(zk_connect, "--batch-partitions", "2")
    assert result.exit_code == 130
    assert "0 of 2 batches were sent, the next perhaps too; the controller ends the last" in result.stderr
