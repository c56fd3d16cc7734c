"""kt where its operators work: real clusters behind SASL, TLS and ACLs, by every way to log in."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kafkatool.commands.main import kt
from kafkatool.core.security.zookeeper_security import read_zookeeper_security
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.compat import real_kafka
from tests.compat.secured_kafka import ALICE, SECRETS, SecuredKafka
from tests.steady import LASTING
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

BOB = "bob-word-45"
BY_PASSWORD = ("admin-plain", "admin-scram-sha-256", "admin-scram-sha-512")
WAIT_S = 120


@pytest.fixture(scope="module", params=real_kafka.versions("1.1.1", "2.8.2", "3.9.1"))
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    version: str = request.param
    real_kafka.require(version)
    directory = tmp_path_factory.mktemp("secured") / version
    with SecuredKafka(version, directory, options=LASTING, unencrypted=True) as cluster:
        yield cluster


def run(kafka: SecuredKafka, *args: str, login: bool = True, zookeeper: str | None = None) -> Result:
    """Run kt, as an operator who has or has not KAFKA_OPTS; no secret may show."""
    environment = {"KAFKA_OPTS": kafka.java_options if login else ""}
    result = CliRunner(env=environment).invoke(kt, [*args, "--zookeeper", zookeeper or kafka.connect])
    for secret in SECRETS:
        assert secret not in result.output
    return result


def acls(kafka: SecuredKafka, root: str) -> dict[str, set[str]]:
    """Return who may do what with a node and all below it, by path from there."""
    found = {}
    with ZooKeeper(kafka.connect, security=read_zookeeper_security(auth_file=str(kafka.jaas))) as zk:

        def walk(path: str) -> None:
            found[path.removeprefix(root)] = {str(acl) for acl in zk.acls(path)}
            for name in zk.children(path) or ():
                walk(f"{path}/{name}")

        walk(root)
    return found


def await_leader(kafka: SecuredKafka, topic: str) -> None:
    shown = ("topics", "describe", "--topic", topic)
    eventually(lambda: "Leader: none" not in run(kafka, *shown).stdout, "a leader", WAIT_S)


def is_tls(kafka: SecuredKafka) -> bool:
    return kafka.version != "1.1.1"


@pytest.mark.spec("SEC-16", "SEC-28", "SEC-29", "SEC-30", "SEC-112", "SEC-1")
def test_topics_belong_to_whom_kafkas_own_tool_gives_them_and_get_leaders(kafka: SecuredKafka, tmp_path: Path) -> None:
    made = run(kafka, "topics", "create", "--topic", "ours", "--partitions", "1", "--replication-factor", "2")
    assert (made.exit_code, made.stdout) == (0, 'Created topic "ours".\n'), made.output
    await_leader(kafka, "ours")
    if kafka.version != "3.9.1":  # its tool knows no ZooKeeper
        topic = ("--topic", "theirs", "--partitions", "1", "--replication-factor", "2")
        done = kafka.tool("kafka.admin.TopicCommand", "--zookeeper", kafka.connect, "--create", *topic)
        assert done.returncode == 0, done.stdout
        state = "/partitions/0/state"
        eventually(lambda: state in acls(kafka, "/brokers/topics/theirs"), "the state to be made", WAIT_S)
        assert acls(kafka, "/brokers/topics/ours") == acls(kafka, "/brokers/topics/theirs")
        assert acls(kafka, "/config/topics/ours") == acls(kafka, "/config/topics/theirs")

    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "ours", "partition": 0, "replicas": [1]}]}))
    back = ("--rollback-file", str(tmp_path / "back.json"))
    started = run(kafka, "reassign", "--execute", "--reassignment-json-file", str(plan), "--throttle", "9999", *back)
    assert started.exit_code == 0, started.output
    verify = ("reassign", "--verify", "--reassignment-json-file", str(plan))
    eventually(lambda: run(kafka, *verify).exit_code == 0, "the reassignment to end", WAIT_S)
    assert acls(kafka, "/config/brokers/1") == {"": {"sasl:kafka:cdrwa"}}
    changes = acls(kafka, "/config/changes")
    assert set(map(frozenset, changes.values())) == {frozenset({"sasl:kafka:cdrwa", "world:anyone:r"})}
    elected = run(kafka, "elect", "--topic", "ours")  # another test's may be without a leader yet
    assert elected.exit_code == 0, elected.output


@pytest.mark.spec("SEC-33", "SEC-34", "SEC-35", "SEC-36")
@pytest.mark.parametrize(
    ("protocol", "who"),
    [
        *(("SASL_PLAINTEXT", who) for who in BY_PASSWORD),
        *(("SASL_SSL", who) for who in BY_PASSWORD),
        ("SSL", "admin-ssl"),
    ],
)
def test_replicas_are_compared_by_each_way_to_log_in_to_brokers(
    kafka: SecuredKafka, tmp_path: Path, protocol: str, who: str
) -> None:
    topic = f"by-{protocol}-{who}"
    run(kafka, "topics", "create", "--topic", topic, "--partitions", "1", "--replication-factor", "2")
    compare = ("replica-verify", "--once", "--topic-white-list", topic)
    file = tmp_path / "client.properties"
    file.touch(0o600)
    known = (kafka.files / f"{who}.properties").read_text()
    file.write_text(re.sub(r"(?m)^security\.protocol=.*$", f"security.protocol={protocol}", known))
    results: list[Result] = []

    def are_equal() -> bool:
        results.append(run(kafka, *compare, "--command-config", str(file)))
        return results[-1].exit_code == 0

    eventually(are_equal, "equal replicas", WAIT_S)
    assert "warning" not in results[-1].stderr, "a password as it is does not leave this machine"


@pytest.mark.spec("SEC-38", "SEC-40")
def test_a_listener_that_is_not_there_and_a_user_without_rights_are_told(kafka: SecuredKafka) -> None:
    run(kafka, "topics", "create", "--topic", "closed", "--partitions", "1", "--replication-factor", "1")
    compare = ("replica-verify", "--once", "--topic-white-list", "closed")
    plain = run(kafka, *compare)
    assert plain.exit_code == 1
    assert "brokers have no PLAINTEXT listener but SASL_PLAINTEXT, SASL_SSL, SSL: give --command-config" in plain.stderr
    alice = ("--command-config", str(kafka.files / "alice-plain.properties"))

    def refused() -> bool:
        """A topic without a leader, and a broker that stands still, are told otherwise."""
        result = run(kafka, *compare, *alice)
        assert result.exit_code == 1
        return re.search(r"not permitted: Read on topic closed \(broker \d as User:alice\)", result.output) is not None

    eventually(refused, "the broker to refuse her", WAIT_S)


@pytest.mark.spec("SEC-15", "SEC-19", "SEC-23")
def test_zookeeper_by_tls_and_each_port_taken_for_the_other(kafka: SecuredKafka) -> None:
    if not is_tls(kafka):
        pytest.skip("ZooKeeper of Kafka 1.1.1 has no TLS")
    tls = ("--zk-tls-config-file", str(kafka.files / "zk-tls.properties"))
    new = ("topics", "create", "--topic", "by-tls", "--partitions", "1", "--replication-factor", "1")
    assert run(kafka, *new, *tls, zookeeper=kafka.connect_tls).exit_code == 0
    plain = run(kafka, "topics", "list", *tls)
    assert (plain.exit_code, plain.stdout) == (1, "")
    assert f"kt: {kafka.connect} does not speak TLS: is it the plaintext port?" in plain.stderr
    encrypted = run(kafka, "topics", "list", zookeeper=kafka.connect_tls)
    assert (encrypted.exit_code, encrypted.stdout) == (1, "")
    assert f"kt: {kafka.connect_tls} speaks TLS: give --zk-tls-config-file" in encrypted.stderr


@pytest.mark.spec("SEC-1", "SEC-5", "SEC-21", "SEC-23", "SEC-112")
@pytest.mark.parametrize("user", ["kafka", "nobody"])
def test_a_refused_login_is_said_at_once_and_nothing_is_done(kafka: SecuredKafka, tmp_path: Path, user: str) -> None:
    login = tmp_path / "login.properties"
    login.touch(0o600)
    login.write_text(f"username={user}\npassword=guess-word\n")
    result = run(kafka, "topics", "list", "--zk-auth-file", str(login))
    assert (result.exit_code, result.stdout) == (1, "")
    refused = f"kt: ZooKeeper at {kafka.connect} refused the login of {user} (SASL DIGEST-MD5): check {login}\n"
    assert result.stderr == refused
    assert "guess-word" not in result.output


@pytest.mark.spec("SEC-18", "SEC-24", "SEC-26", "SEC-112")
def test_who_may_not_write_learns_whose_the_node_is(kafka: SecuredKafka, tmp_path: Path) -> None:
    assert run(kafka, "topics", "list", login=False).exit_code == 0
    new = ("topics", "create", "--topic", "refused", "--partitions", "1", "--replication-factor", "1")
    without = run(kafka, *new, login=False)
    assert without.exit_code == 1
    assert "belongs to sasl:kafka, this session has no login" in without.output
    other = tmp_path / "other.properties"
    other.touch(0o600)
    other.write_text("scheme=digest\nusername=me\npassword=guess-word\n")
    digest = run(kafka, *new, "--zk-auth-file", str(other))
    assert digest.exit_code == 1
    assert "belongs to sasl:kafka, this session is digest:me" in digest.output
    assert "refused" not in run(kafka, "topics", "list").stdout


def asked(kafka: SecuredKafka, *args: str, by: str = "admin-scram-sha-512", bootstrap: str | None = None) -> Result:
    """Run kt, as one who has no login to ZooKeeper but one to brokers."""
    login = ("--command-config", str(kafka.files / f"{by}.properties"))
    way = ("--bootstrap-server", bootstrap or kafka.bootstrap, *login)
    result = CliRunner(env={"KAFKA_OPTS": ""}).invoke(kt, [*args, *way])
    for secret in (*SECRETS, BOB):
        assert secret not in result.output
    return result


def told_by_all(kafka: SecuredKafka, *args: str) -> str:
    """Return what ZooKeeper has, once each broker tells the same: it learns of a change when ZooKeeper tells it."""
    written = run(kafka, *args).stdout
    for address in kafka.bootstrap.split(","):
        eventually(
            lambda a=address: asked(kafka, *args, bootstrap=a).stdout == written,  # type: ignore[misc]
            f"{address} to tell what is written",
            WAIT_S,
        )
    return written


def entries(text: str) -> list[str]:
    """Return the entries of an answer, which Kafka's tools print in no order."""
    return sorted(re.findall(r"\(principal=.*?\)", text.partition("Current ACLs")[2]))


@pytest.mark.spec("SEC-40", "ADM-105")
def test_who_may_nothing_is_not_shown_an_empty_cluster(kafka: SecuredKafka) -> None:
    run(kafka, "topics", "create", "--topic", "unseen", "--partitions", "1", "--replication-factor", "1")

    def told(*args: str) -> tuple[int, str, set[str]]:
        found = asked(kafka, *args, by="alice-plain")
        return found.exit_code, found.stdout, set(re.findall(r"not permitted: (.*?) \(brokers? [12]", found.output))

    topics, cluster = "Describe on every topic", "Describe on cluster"
    assert told("topics", "list") == (0, "", {topics})
    assert told("topics", "describe", "--unavailable-partitions") == (1, "", {topics})
    code, _, refused = told("topics", "describe", "--topic", "unseen")
    assert (code, refused) == (1, {"Describe on topic unseen"})
    code, _, refused = told("brokers")
    assert (code, refused) == (1, {topics, cluster, "DescribeConfigs on cluster"})
    code, _, refused = told("elect", "--report")
    assert (code, refused) == (1, {topics})
    create = ("topics", "create", "--topic", "new", "--partitions", "1", "--replication-factor", "1")
    code, _, refused = told(*create)
    # before 2.0 a right of the cluster was asked for
    assert (code, refused) == (1, {"Create on topic new" if is_tls(kafka) else "Create on cluster"})
    if is_tls(kafka):  # these requests came with 2.4
        code, _, refused = told("reassign", "--list")
        assert (code, refused) == (1, {cluster})
        named = ("elect", "--topic", "unseen", "--partition", "0")
        code, _, refused = told(*named)
        assert (code, refused) == (1, {"Alter on cluster"}), "text tells no leaders, so metadata is not asked"
        code, _, refused = told(*named, "--output", "json")
        assert (code, refused) == (1, {"Describe on topic unseen", "Alter on cluster"})
    if kafka.version == "3.9.1":
        assert told("transactions", "list")[::2] == (0, {"Describe on every transactional id"})
        assert told("transactions", "find-hanging", "--broker-id", "1")[0] == 1
    every = asked(kafka, "topics", "list")
    assert every.exit_code == 0 and "unseen" in every.stdout.splitlines() and every.stderr == ""


@pytest.mark.spec("SEC-40", "SEC-88", "SEC-91")
def test_acls_by_requests_are_those_by_zookeeper_and_of_kafkas_tool(kafka: SecuredKafka) -> None:
    consumer = ("--allow-principal", "User:alice", "--consumer", "--topic", "asked", "--group", "readers")
    added = asked(kafka, "acls", "add", *consumer)
    assert added.exit_code == 0, added.output
    topic = ("acls", "list", "--topic", "asked")
    group = ("acls", "list", "--group", "readers")
    told = told_by_all(kafka, *topic)
    assert [line.split("operation=")[1].split(",")[0] for line in entries(told)] == ["DESCRIBE", "READ"]
    told_by_all(kafka, *group)
    if is_tls(kafka):  # 1.1.1 knows no patterns, and prints entries in other words
        admin = ("--command-config", str(kafka.files / "admin-plain.properties"))
        theirs = kafka.tool(
            "kafka.admin.AclCommand", "--bootstrap-server", kafka.bootstrap, *admin, "--list", *topic[2:]
        )
        assert entries(theirs.stdout) == entries(told), theirs.stdout
    refused = asked(kafka, *topic, by="alice-plain")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert re.fullmatch(r"kt: not permitted: Describe on cluster \(broker \d as User:alice\)\n", refused.stderr)
    removed = asked(kafka, "acls", "remove", "--topic", "asked", "--force")
    assert (removed.exit_code, removed.stdout) == (0, "") and removed.stderr.count("to put it back: kt acls add") == 2
    assert told_by_all(kafka, *topic) == ""
    assert told_by_all(kafka, *group)


@pytest.mark.spec("SEC-90", "SEC-93", "SEC-94")
def test_users_by_requests_log_in_and_are_those_by_zookeeper(kafka: SecuredKafka, tmp_path: Path) -> None:
    if not is_tls(kafka):
        unknown = asked(kafka, "users", "list")
        assert unknown.exit_code == 1 and "needs DescribeUserScramCredentials" in unknown.stderr
        return
    password = tmp_path / "password"
    password.write_text(BOB)
    bob = kafka.files / "bob-scram-sha-256.properties"
    bob.touch(0o600)
    alices = (kafka.files / "alice-scram-sha-256.properties").read_text()
    bob.write_text(alices.replace('"alice"', '"bob"').replace(ALICE, BOB))
    named = ("--entity-name", "bob")
    added = ("--add-config", "SCRAM-SHA-256=[iterations=8192]", "--password-file", str(password))
    made = asked(kafka, "users", "alter", *named, *added)
    assert (made.exit_code, made.stdout) == (0, "Completed updating config for user bob.\n"), made.output
    listed = asked(kafka, "users", "list").stdout
    assert listed == run(kafka, "users", "list").stdout
    line = "SCRAM credential configs for user-principal 'bob' are SCRAM-SHA-256=iterations=8192\n"
    assert line in listed and line == asked(kafka, "users", "describe", *named).stdout
    eventually(lambda: asked(kafka, "topics", "list", by="bob-scram-sha-256").exit_code == 0, "bob to get in", WAIT_S)
    gone = asked(kafka, "users", "alter", *named, "--delete-config", "SCRAM-SHA-256")
    assert gone.exit_code == 0, gone.output
    again = asked(kafka, "users", "alter", *named, "--delete-config", "SCRAM-SHA-256")
    assert again.exit_code == 1 and "Attempt to delete a user credential that does not exist" in again.stdout
    assert asked(kafka, "users", "describe", *named).exit_code == 1


def rights(kafka: SecuredKafka) -> dict[str, set[str]]:
    """Return who may do what with each node that both kt and Kafka's tool set the ACL of, and that stays."""
    found: dict[str, set[str]] = {}
    for root in ("/admin", "/brokers", "/cluster", "/config", "/controller", "/controller_epoch", "/kafka-acl"):
        found |= {root + path: acl for path, acl in acls(kafka, root).items()}
    return found


@pytest.mark.spec("SEC-31", "SEC-28")
def test_nodes_are_closed_and_opened_as_by_kafkas_own_tool(kafka: SecuredKafka) -> None:
    own = ("--zk-auth-file", str(kafka.jaas), "--zookeeper.acl")
    before = rights(kafka)
    new = {"/admin/delete_topics", "/brokers/ids/1", "/config/users/admin", "/kafka-acl/Topic"}
    assert new <= before.keys()
    try:
        opened = run(kafka, "zk-acl", *own, "unsecure")
        assert opened.exit_code == 0, opened.output
        assert {frozenset(acl) for acl in rights(kafka).values()} == {frozenset({"world:anyone:cdrwa"})}
        refused = run(kafka, "zk-acl", *own, "secure")
        assert refused.exit_code == 1 and "belongs to world:anyone, this session is sasl:kafka" in refused.stderr
        # Kafka's tool looks at nothing: it takes the brokers' nodes back for sasl:kafka
        migrator = ("kafka.admin.ZkSecurityMigrator", "--zookeeper.connect", kafka.connect, "--zookeeper.acl")
        theirs = kafka.tool(*migrator, "secure")
        closed = rights(kafka)
        assert closed["/config/users/admin"] == {"sasl:kafka:cdrwa"}, theirs.stdout
        checked = run(kafka, "zk-acl", "--check", "--output", "json")
        left = {item["path"] for item in json.loads(checked.stdout)["items"]}
        assert left <= {"/feature", "/latest_producer_id_block"}, left  # what the tool of that version does not know
        kafka.tool(*migrator, "unsecure")
        ours = run(kafka, "zk-acl", *own, "secure", "--force")
        assert ours.exit_code == 0, ours.output
        assert rights(kafka) == closed
        assert run(kafka, "zk-acl", "--check").exit_code == 0
        assert run(kafka, "zk-acl", *own, "secure").stderr.splitlines()[-1] == "nothing to change"
    finally:
        run(kafka, "zk-acl", *own, "secure", "--force")
    assert rights(kafka) == before
    made = run(kafka, "topics", "create", "--topic", "after", "--partitions", "1", "--replication-factor", "2")
    assert made.exit_code == 0, made.output
    await_leader(kafka, "after")  # so its controller and its leader write below these nodes as ever
