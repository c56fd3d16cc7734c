"""kt as users who may do little: no answer looks like an empty or a healthy cluster, and each refusal is said once.

alice has no right at all, bob may describe one topic of two, carol all topics and the cluster, admin may do all.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.broker.embedded.secured.rights import allow, await_right
from kafkatool.commands.main import kt
from tests.steady import LASTING

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.usefixtures("unhurried")]

Run = Callable[..., Result]
TOPICS = (
    "kt: not permitted: Describe on every topic (broker {} as User:{}): topics that may not be described are left out"
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(2, directory=tmp_path_factory.mktemp("rights"), options=LASTING, security="sasl_ssl") as made:
        made.create_topic("orders", 2)
        made.create_topic("bills", 2)
        made.add_user("bob")
        made.add_user("carol")
        for user, kind, name in (
            ("bob", "Topic", "orders"),
            ("carol", "Topic", "*"),
            ("carol", "Cluster", "kafka-cluster"),
        ):
            with made.zookeeper_session() as zk:
                right = allow(zk, f"User:{user}", "Describe", kind, name, prefixed=False)
            await_right(made.files.require().ports.values(), right, made.security.as_admin())
        yield made


@pytest.fixture
def run(cluster: EmbeddedCluster, tmp_path: Path) -> Run:
    """Run kt as that user; PLAN and TOPICS in a command are files about topic orders."""
    plan, topics = tmp_path / "plan.json", tmp_path / "topics.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1]}]}))
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "orders"}]}))
    files = {"PLAN": str(plan), "TOPICS": str(topics)}

    def as_user(user: str, command: str, *more: str) -> Result:
        login = cluster.client("java", user=user, mechanism="PLAIN" if user in ("alice", "admin") else "SCRAM-SHA-256")
        words = [files.get(word, word) for word in command.split(" ")]
        way = ("--bootstrap-server", cluster.bootstrap, "--command-config", str(login))
        return CliRunner(env={"KAFKA_OPTS": ""}).invoke(kt, [*words, *more, *way])

    return as_user


def topics_left_out(result: Result, user: str) -> bool:
    """Tell whether it is said, once, that topics may be missing; any broker may have been asked."""
    lines = result.stderr.splitlines()
    return sum(line in (TOPICS.format(1, user), TOPICS.format(2, user)) for line in lines) == 1


@pytest.mark.spec("SEC-40")
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("topics list", 0),
        ("topics describe", 0),
        ("topics describe --under-replicated-partitions", 1),
        ("topics describe --unavailable-partitions", 1),
        ("topics alter --topic or.* --config retention.ms=1 --force", 1),
        ("topics alter --topic or.* --config retention.ms=1 --force --if-exists", 1),
        ("brokers", 1),
        ("elect --report", 1),
        ("elect --all-topic-partitions", 1),
        ("replica-verify --once --topic-white-list orders", 1),
    ],
)
def test_an_answer_from_all_topics_says_that_topics_may_be_missing(run: Run, command: str, code: int) -> None:
    found = run("alice", command)
    assert found.exit_code == code and topics_left_out(found, "alice"), found.output


@pytest.mark.spec("SEC-40")
@pytest.mark.parametrize(
    "command",
    ["topics list", "topics describe --topic orders", "brokers", "elect --report", "transactions list"],
)
def test_who_may_see_everything_is_told_nothing_of_rights(run: Run, command: str) -> None:
    found = run("admin", command)
    assert found.exit_code == 0 and "permitted" not in found.output, found.output
    document = run("admin", command, "--output", "json")
    assert json.loads(document.stdout)["errors"] == []


@pytest.mark.spec("SEC-40")
def test_a_list_shows_what_may_be_seen_and_says_whether_that_is_all(run: Run) -> None:
    some = run("bob", "topics list")
    assert (some.exit_code, some.stdout) == (0, "orders\n") and topics_left_out(some, "bob")
    every = run("carol", "topics list")
    assert (every.exit_code, every.stdout, every.stderr) == (0, "bills\norders\n", "")
    document = json.loads(run("bob", "topics list", "--output", "json").stdout)
    assert [item["topic"] for item in document["items"]] == ["orders"]
    assert [e["error"] for e in document["errors"]] == ["not_permitted"]
    assert document["errors"][0]["message"].startswith("not permitted: Describe on every topic (broker ")
    rows = run("bob", "topics list", "--output", "tsv").stdout.splitlines()
    assert rows[0] == "TOPIC\tMARKED_FOR_DELETION\tINTERNAL\tERROR\tMESSAGE" and rows[1].startswith("orders\t")
    assert rows[2].startswith("\t\t\tnot_permitted\tnot permitted: Describe on every topic ")


@pytest.mark.spec("SEC-40")
@pytest.mark.parametrize(
    ("user", "command", "words"),
    [
        ("alice", "topics describe --topic bills", "Describe on topic bills"),
        ("alice", "topics describe --topic bills --if-exists", "Describe on topic bills"),
        ("alice", "topics delete --topic bills --if-exists", "Describe on topic bills"),
        ("alice", "topics create --topic new --partitions 1 --replication-factor 1", "Create on topic new"),
        ("bob", "topics alter --topic orders --config retention.ms=1", "AlterConfigs on topic orders"),
        ("bob", "topics alter --topic orders --partitions 5", "Alter on topic orders"),
        ("bob", "topics delete --topic orders", "Delete on topic orders"),
        ("alice", "reassign --generate --topics-to-move-json-file TOPICS --broker-list 1", "Describe on topic orders"),
        ("alice", "reassign --list", "Describe on cluster"),
        ("alice", "reassign --verify --reassignment-json-file PLAN", "Describe on cluster"),
        ("alice", "reassign --execute --reassignment-json-file PLAN", "Describe on cluster"),
        ("carol", "reassign --execute --reassignment-json-file PLAN", "Alter on cluster"),
        ("alice", "elect --topic orders --partition 0", "Alter on cluster"),
        ("alice", "acls list", "Describe on cluster"),
        ("carol", "acls add --allow-principal User:x --operation Read --topic x", "Alter on cluster"),
        ("alice", "users list", "Describe on cluster"),
        ("alice", "transactions describe --transactional-id t", "Describe on transactional id t"),
        ("alice", "transactions find-hanging --topic orders", "Describe on topic orders"),
        # what its coordinator keeps from her would seem to hang
        ("carol", "transactions find-hanging --topic orders", "Describe on every transactional id"),
        ("bob", "transactions describe-producers --topic orders --partition 0", "Read on topic orders"),
    ],
)
def test_a_refusal_names_the_right_the_resource_the_broker_and_the_user(
    run: Run, user: str, command: str, words: str
) -> None:
    found = run(user, command)
    told = [f"not permitted: {words} (broker {broker} as User:{user})" for broker in (1, 2)]
    assert found.exit_code == 1 and sum(found.output.count(text) for text in told) == 1, found.output


@pytest.mark.spec("SEC-40", "ADM-105")
def test_a_table_of_brokers_says_what_is_unknown_once_for_all_of_them(run: Run) -> None:
    found = run("carol", "brokers", "--output", "json")
    assert found.exit_code == 1
    document = json.loads(found.stdout)
    assert [item["replicas"] for item in document["items"]] == [4, 4] and all(i["bytes"] for i in document["items"])
    (error,) = document["errors"]
    told = "not permitted: DescribeConfigs on cluster (brokers 1, 2 as User:carol): "
    assert error["message"].startswith(told) and "leader.replication.throttled.rate" in error["message"]
    assert found.stderr == f"kt: {error['message']}\n"
    blind = run("bob", "brokers")
    refused = "kt: not permitted: Describe on cluster (brokers 1, 2 as User:bob)"
    sizes = f"{refused}: log directories and their sizes are not known"
    assert blind.exit_code == 1 and blind.stderr.splitlines().count(sizes) == 1


@pytest.mark.spec("SEC-40")
def test_what_is_permitted_is_shown_beside_what_is_not(run: Run) -> None:
    found = run("bob", "topics describe", "--output", "json")
    document = json.loads(found.stdout)
    assert [(i["topic"], i["partition"]) for i in document["items"]] == [("orders", 0), ("orders", 1)]
    assert [e["message"].split(" (")[0] for e in document["errors"]] == [
        "not permitted: Describe on every topic",
        "not permitted: DescribeConfigs on topic orders",
        "not permitted: Describe on cluster",
    ]
    assert found.exit_code == 1
    verified = run("carol", "reassign --verify --reassignment-json-file PLAN")
    assert "There is no active reassignment of partition orders-0" in verified.stdout
    assert verified.stderr.count("throttles that are set there are not known") == 3  # cluster, two topics
    assert verified.exit_code == 1


@pytest.mark.spec("SEC-40")
def test_sizes_that_may_not_be_asked_for_are_unknown_and_one_hint_tells(
    run: Run, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    cluster.create_topic("alone", 2, replication_factor=1)
    with cluster.zookeeper_session() as zk:
        right = allow(zk, "User:bob", "Describe", "Topic", "alone", prefixed=False)
    await_right(cluster.files.require().ports.values(), right, cluster.security.as_admin())
    (tmp_path / "alone.json").write_text(json.dumps({"version": 1, "topics": [{"topic": "alone"}]}))
    found = run("bob", f"reassign --generate --topics-to-move-json-file {tmp_path / 'alone.json'} --broker-list 1")
    assert found.exit_code == 0 and "Proposed partition reassignment" in found.stdout
    hint = "kt: not permitted: Describe on cluster (brokers 1, 2 as User:bob): sizes of replicas are not known"
    assert found.stderr.splitlines().count(hint) == 1, found.stderr
    deleted = run("admin", "topics delete --topic alone --force --wait 120")
    assert deleted.exit_code == 0, deleted.output


@pytest.mark.spec("SEC-40")
def test_a_comparison_says_which_replicas_may_not_be_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkatool.commands.replica_verify.command.STALL_S", 20.0)  # it does end so: nothing comes
    found = run("carol", "replica-verify --once --topic-white-list orders --output json")
    assert found.exit_code == 1
    told = [item["unreadable"] for item in json.loads(found.stdout)["items"]]
    words = {str(b): f"not permitted: Read on topic orders (broker {b} as User:carol)" for b in (1, 2)}
    assert told == [words, words]


@pytest.mark.spec("SEC-26")
def test_without_a_login_to_zookeeper_what_all_may_read_is_shown(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """Below /config/brokers and /config/users none but the brokers may read."""
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1]}]}))
    login = ("--command-config", str(cluster.client("java")))

    def run(*args: str) -> Result:
        return CliRunner(env={"KAFKA_OPTS": ""}).invoke(kt, [*args, "--zookeeper", cluster.zookeeper])

    for shown in ("topics list", "topics describe", "elect --report", "reassign --list", "acls list"):
        found = run(*shown.split(" "))
        assert (found.exit_code, "no permission" in found.output) == (0, False), found.output
    closed = "no permission for znode /config/brokers: its ACL does not allow this, this session has no login"
    brokers = run("brokers", "--output", "json", *login)
    assert brokers.exit_code == 0, brokers.output
    items = json.loads(brokers.stdout)["items"]
    assert [(i["replicas"], i["leader_throttle"], i["follower_throttle"]) for i in items] == [(4, None, None)] * 2
    assert brokers.stderr == f"kt: warning: {closed}: throttles are not known\n"
    health = run("health", "--output", "json", *login)
    assert health.exit_code in (0, 1), health.output  # a controller of this minute is a change
    told = [(i["level"], i["what"]) for i in json.loads(health.stdout)["items"] if i["check"] == "throttles"]
    assert told == [("unknown", f"of brokers: {closed}")]
    refused = run("health", "--remove-throttles", *login)
    assert refused.exit_code == 3 and "which throttles are forgotten cannot be told" in refused.stderr
    for command in ("users list", "users describe --entity-name alice"):
        assert run(*command.split(" ")).exit_code == 1
    throttled = ("--throttle", "100000", "--rollback-file", str(tmp_path / "back.json"))
    move = run("reassign", "--execute", "--reassignment-json-file", str(plan), *throttled)
    assert move.exit_code == 1 and "no permission for znode /config/brokers" in move.output, move.output
    assert run("reassign", "--list").stdout.startswith("No partition reassignments found")
