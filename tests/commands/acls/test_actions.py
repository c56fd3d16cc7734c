"""kt acls: Kafka's words, the nodes that are written, what is warned of and refused."""

import json
from collections.abc import Sequence

import pytest
from click.testing import CliRunner, Result

from kafkatool.commands.main import kt
from kafkatool.core.errors import ConnectionLostError
from kafkatool.core.zookeeper.acl_znodes import ACL_PATHS
from kafkatool.core.zookeeper.session import Op, ZooKeeper
from tests.core.zookeeper.cluster_nodes import tree as nodes_below

ALICE = ("--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders")
PREFIXED = ("--resource-pattern-type", "prefixed")


@pytest.fixture(autouse=True)
def nodes(zk: ZooKeeper) -> None:
    for path in ("/brokers/ids", *ACL_PATHS):
        zk.create(path, make_parents=True)


def acls(zk_connect: str, *args: str) -> Result:
    action, *rest = args
    return CliRunner().invoke(kt, ["acls", action, "--zookeeper", zk_connect, *rest])


def done(zk_connect: str, *args: str) -> str:
    result = acls(zk_connect, *args)
    assert result.exit_code == 0, result.output
    return result.stdout


def data(zk: ZooKeeper, path: str) -> bytes | None:
    node = zk.get(path)
    return None if node is None else node.data


@pytest.mark.spec("SEC-91", "SEC-89")
def test_add_writes_and_prints_what_kafkas_tool_does(zk: ZooKeeper, zk_connect: str) -> None:
    orders = "for resource `ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)`: \n"
    entry = " \t(principal=User:alice, host=*, operation=READ, permissionType=ALLOW) \n\n"
    assert done(zk_connect, "add", *ALICE) == f"Adding ACLs {orders}{entry}Current ACLs {orders}{entry}"
    written = (
        b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","operation":"Read","host":"*"}]}'
    )
    assert data(zk, "/kafka-acl/Topic/orders") == written
    assert data(zk, "/kafka-acl-changes/acl_changes_0000000000") == b"Topic:orders"
    version = zk.get("/kafka-acl/Topic/orders")
    done(zk_connect, "add", *ALICE)
    assert zk.get("/kafka-acl/Topic/orders") == version, "what is there is not written again"
    assert len(zk.children("/kafka-acl-changes") or ()) == 2, "brokers are told: an earlier add may have been cut short"


@pytest.mark.spec("SEC-91")
def test_sugar_prefixes_and_hosts(zk: ZooKeeper, zk_connect: str) -> None:
    done(zk_connect, "add", "--allow-principal", "User:p", "--producer", "--idempotent", "--topic", "t",
         "--transactional-id", "x")  # fmt: skip
    done(zk_connect, "add", "--allow-principal", "User:c", "--consumer", "--topic", "pay", "--group", "g", *PREFIXED)
    done(zk_connect, "add", "--deny-principal", "User:m", "--deny-host", "10.0.0.9", "--group", "g 1*%")
    items = json.loads(done(zk_connect, "list", "--output", "json"))["items"]
    found = {
        (i["resource_type"], i["resource_name"], i["pattern_type"], i["operation"], i["permission"], i["host"])
        for i in items
    }
    assert found == {
        *(("TOPIC", "t", "LITERAL", one, "ALLOW", "*") for one in ("WRITE", "DESCRIBE", "CREATE")),
        *(("TRANSACTIONAL_ID", "x", "LITERAL", one, "ALLOW", "*") for one in ("WRITE", "DESCRIBE")),
        ("CLUSTER", "kafka-cluster", "LITERAL", "IDEMPOTENT_WRITE", "ALLOW", "*"),
        *(("TOPIC", "pay", "PREFIXED", one, "ALLOW", "*") for one in ("READ", "DESCRIBE")),
        ("GROUP", "g", "PREFIXED", "READ", "ALLOW", "*"),
        ("GROUP", "g 1*%", "LITERAL", "ALL", "DENY", "10.0.0.9"),
    }
    matching = done(zk_connect, "list", "--topic", "payments", "--resource-pattern-type", "match")
    assert "name=pay, patternType=PREFIXED" in matching and "name=t," not in matching
    assert done(zk_connect, "list", "--topic", "pay") == ""
    of_m = done(zk_connect, "list", "--principal", "User:m")
    assert of_m.startswith("ACLs for principal `User:m`\nCurrent ACLs for") and of_m.count("Current") == 1


@pytest.mark.spec("SEC-91", "SEC-92")
def test_remove_takes_what_is_named_and_says_how_to_put_it_back(zk: ZooKeeper, zk_connect: str) -> None:
    done(zk_connect, "add", *ALICE)
    done(zk_connect, "add", "--allow-principal", "User:bob", "--operation", "Write", "--topic", "orders")
    unasked = acls(zk_connect, "remove", "--topic", "orders")
    assert unasked.exit_code == 2 and "--force" in unasked.stderr and data(zk, "/kafka-acl/Topic/orders")
    result = acls(zk_connect, "remove", *ALICE, "--force")
    assert "User:bob" in result.stdout and "User:alice" not in result.stdout
    assert result.stderr == (
        f"to put it back: kt acls add --zookeeper {zk_connect} --allow-principal User:alice --allow-host '*' "
        "--operation Read --topic orders\n"
    )
    again = acls(zk_connect, "remove", *ALICE, "--force")
    assert again.exit_code == 0 and "User:bob" in again.stdout, "what is not there is taken away all the same"
    assert "nothing is removed: no such ACL is there" in again.stderr
    assert done(zk_connect, "remove", "--topic", "orders", "--force") == ""
    assert data(zk, "/kafka-acl/Topic/orders") is None


def cut_short(monkeypatch: pytest.MonkeyPatch, why: BaseException) -> None:
    """Have a command end as ``why`` ends it, when its first change is made and it has not heard so."""
    commit = ZooKeeper.commit

    def cut(zk: ZooKeeper, ops: Sequence[Op]) -> list[int | None]:
        commit(zk, ops)
        raise why

    monkeypatch.setattr(ZooKeeper, "commit", cut)


def told(zk: ZooKeeper) -> list[bytes | None]:
    return [data(zk, f"/kafka-acl-changes/{one}") for one in sorted(zk.children("/kafka-acl-changes") or ())]


@pytest.mark.spec("SEC-89", "SEC-92")
@pytest.mark.parametrize("why", [ConnectionLostError("gone"), KeyboardInterrupt()], ids=["ZooKeeper lost", "Ctrl-C"])
@pytest.mark.parametrize("action", ["add", "remove"])
def test_a_change_of_which_nothing_was_heard_is_told_once_more_by_the_same_command(
    zk: ZooKeeper, zk_connect: str, monkeypatch: pytest.MonkeyPatch, action: str, why: BaseException
) -> None:
    """Kafka's brokers write first and then tell: a right that one of them withdrew would hold on for ever elsewhere."""
    if action == "remove":
        done(zk_connect, "add", *ALICE)
    command = (action, *ALICE, *["--force"] * (action == "remove"))
    before = told(zk)
    with monkeypatch.context() as patched:
        cut_short(patched, why)
        cut = acls(zk_connect, *command)
    assert cut.exit_code == (130 if isinstance(why, KeyboardInterrupt) else 1)
    assert "cut short: part of it may be done; the same command again does the rest, and tells brokers" in cut.stderr
    assert ("to put it back: " in cut.stderr) == (action == "remove")
    assert (data(zk, "/kafka-acl/Topic/orders") is None) == (action == "remove")
    assert told(zk) == [*before, b"Topic:orders"]
    done(zk_connect, *command)
    assert told(zk) == [*before, b"Topic:orders", b"Topic:orders"]


@pytest.mark.spec("SEC-92")
def test_the_way_back_of_all_is_told_before_the_first_goes_and_the_rest_goes_later(
    zk: ZooKeeper, zk_connect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = ("--allow-principal", "User:alice", "--operation", "Read", "--topic", "a", "--topic", "b")
    done(zk_connect, "add", *both)
    before = told(zk)
    with monkeypatch.context() as patched:
        cut_short(patched, ConnectionLostError("gone"))
        cut = acls(zk_connect, "remove", *both, "--force")
    assert cut.exit_code == 1 and data(zk, "/kafka-acl/Topic/a") is None and data(zk, "/kafka-acl/Topic/b")
    assert [line.rpartition(" ")[2] for line in cut.stderr.splitlines() if line.startswith("to put it back")] == [
        "a",
        "b",
    ]
    done(zk_connect, "remove", *both, "--force")
    assert told(zk) == [*before, b"Topic:a", b"Topic:a", b"Topic:b"] and data(zk, "/kafka-acl/Topic/b") is None


@pytest.mark.spec("SEC-92", "COM-6X")
def test_removing_nothing_tells_brokers_of_the_patterns_that_are_named(zk: ZooKeeper, zk_connect: str) -> None:
    both = "create sequential /kafka-acl-changes/acl_changes_ Topic:orders\n"
    both += 'create sequential /kafka-acl-extended-changes/acl_changes_ {"version":1,"resourceType":"TOPIC",'
    both += '"name":"orders","patternType":"PREFIXED"}\n'
    for kind in ("any", "match"):
        dry = acls(zk_connect, "remove", "--topic", "orders", "--resource-pattern-type", kind, "--dry-run")
        assert (dry.exit_code, dry.stdout) == (0, both)
    before = nodes_below(zk)
    for name in ("", "a/b", "..", "*"):
        removed = acls(zk_connect, "remove", "--topic", name, "--force", "--resource-pattern-type", "any")
        assert (removed.exit_code, removed.stderr) == (0, "nothing is removed: no such ACL is there\n")
    made = sorted(path.rpartition("/")[0] for path in nodes_below(zk).keys() - before.keys())
    assert made == ["/kafka-acl-changes", "/kafka-acl-extended-changes"]
    assert told(zk) == [b"Topic:*"], "no node has another of these names"


@pytest.mark.spec("SEC-92")
def test_removing_nothing_makes_no_node_where_no_broker_goes_by_acls(zk: ZooKeeper, zk_connect: str) -> None:
    for path in sorted(ACL_PATHS, key=len, reverse=True):
        zk.delete(path)
    for path in ("/kafka-acl-extended/prefixed", "/kafka-acl-extended", "/kafka-acl"):
        zk.delete(path)
    before = nodes_below(zk)
    for kind in ("literal", "prefixed", "any"):
        done(zk_connect, "remove", "--topic", "orders", "--force", "--resource-pattern-type", kind)
    assert nodes_below(zk) == before


@pytest.mark.spec("COM-5X", "COM-6X", "SEC-92")
def test_a_dry_run_shows_each_write_and_another_cluster_gets_none(zk: ZooKeeper, zk_connect: str) -> None:
    entry = '{"principal":"User:alice","permissionType":"Allow","operation":"Read","host":"*"}'
    change = "create sequential /kafka-acl-changes/acl_changes_ Topic:orders\n"
    before = nodes_below(zk)
    assert done(zk_connect, "add", *ALICE, "--dry-run") == (
        f'create /kafka-acl/Topic/orders {{"version":1,"acls":[{entry}]}}\n{change}'
    )
    refused = acls(zk_connect, "add", *ALICE, "--cluster-id", "other")
    assert refused.exit_code == 1 and "--cluster-id is other, but" in refused.output
    assert nodes_below(zk) == before
    done(zk_connect, "add", *ALICE)
    before = nodes_below(zk)
    assert done(zk_connect, "remove", *ALICE, "--dry-run") == f"delete /kafka-acl/Topic/orders\n{change}"
    assert acls(zk_connect, "remove", *ALICE, "--force", "--cluster-id", "other").exit_code == 1
    assert nodes_below(zk) == before


@pytest.mark.spec("SEC-92")
def test_consequences_are_told_and_a_dry_run_writes_nothing(zk: ZooKeeper, zk_connect: str) -> None:
    result = acls(zk_connect, "add", *ALICE, "--dry-run")
    assert result.stderr == (
        "the first ACL about Topic orders: where allow.everyone.if.no.acl.found is set, everybody else loses it\n"
        "User:alice may read in no group yet: consumers that commit need --operation Read --group NAME\n"
        "dry run: nothing was written\n"
    )
    assert "/kafka-acl/Topic/orders" in result.stdout and "Topic:orders" in result.stdout
    assert data(zk, "/kafka-acl/Topic/orders") is None and zk.children("/kafka-acl-changes") == []
    zk.delete("/kafka-acl-extended/prefixed/Topic")
    for kind in zk.children("/kafka-acl-extended/prefixed") or ():
        zk.delete(f"/kafka-acl-extended/prefixed/{kind}")
    zk.delete("/kafka-acl-extended/prefixed")
    refused = acls(zk_connect, "add", *ALICE, *PREFIXED)
    assert refused.exit_code == 1 and "/kafka-acl-extended/prefixed is missing" in refused.stderr


@pytest.mark.spec("SEC-78", "SEC-91")
def test_acls_of_unknown_kinds_are_shown_and_kept_and_neither_made_nor_removed(zk: ZooKeeper, zk_connect: str) -> None:
    entry = '{"principal":"User:a","permissionType":"%s","operation":"%s","host":"*"}'
    strange = entry % ("Perhaps", "FlyHigh")
    for path, *entries in (
        ("/kafka-acl/User/a", entry % ("Allow", "CreateTokens"), entry % ("Allow", "DescribeTokens")),
        ("/kafka-acl/Spaceship/x", entry % ("Deny", "Read")),
        ("/kafka-acl/Topic/orders", strange),
    ):
        zk.create(path, f'{{"version":1,"acls":[{",".join(entries)}]}}'.encode(), make_parents=True)
    done(zk_connect, "add", *ALICE)
    assert strange in (data(zk, "/kafka-acl/Topic/orders") or b"").decode()
    items = json.loads(done(zk_connect, "list", "--output", "json"))["items"]
    assert [(i["resource_type"], i["operation"], i["permission"]) for i in items] == [
        ("TOPIC", "UNKNOWN(FlyHigh)", "UNKNOWN(Perhaps)"),
        ("TOPIC", "READ", "ALLOW"),
        ("USER", "CREATE_TOKENS", "ALLOW"),
        ("USER", "DESCRIBE_TOKENS", "ALLOW"),
        ("UNKNOWN(Spaceship)", "READ", "DENY"),
    ]
    before = nodes_below(zk)
    refused = acls(zk_connect, "remove", "--topic", "orders", "--force")
    assert refused.exit_code == 1 and "an ACL about UNKNOWN(FlyHigh) is shown here, not changed" in refused.stderr
    for name in ("CreateTokens", "FlyHigh"):
        made = acls(zk_connect, "add", "--allow-principal", "User:a", "--operation", name, "--topic", "orders")
        assert made.exit_code == 2
    assert nodes_below(zk) == before
    done(zk_connect, "remove", *ALICE, "--force")
    assert data(zk, "/kafka-acl/Topic/orders") == f'{{"version":1,"acls":[{strange}]}}'.encode()


DAMAGED = ("/kafka-acl/Topic/broken", "/kafka-acl-extended/prefixed/Group/broken-")


@pytest.mark.spec("SEC-78", "SEC-91", "COM-3X")
def test_a_node_that_cannot_be_read_is_told_by_its_path_and_hides_no_other(zk: ZooKeeper, zk_connect: str) -> None:
    done(zk_connect, "add", *ALICE)
    of_alice = done(zk_connect, "list")
    zk.create(DAMAGED[0], b'{"version":1,"acls":[{"principal":')
    zk.create(DAMAGED[1], b'{"version":2,"acls":[]}')
    for flags in ((), ("--principal", "User:alice")):
        listed = acls(zk_connect, "list", *flags)
        assert listed.exit_code == 1 and of_alice in listed.stdout
        told = [line for line in listed.stderr.splitlines() if "holds no ACLs that can be read" in line]
        assert [line.split()[1] for line in told] == [*DAMAGED], listed.stderr
    as_json = acls(zk_connect, "list", "--output", "json")
    answer = json.loads(as_json.stdout)
    assert as_json.exit_code == 1 and [item["resource_name"] for item in answer["items"]] == ["orders"]
    assert [(e["path"], e["error"], e["path"] in e["message"]) for e in answer["errors"]] == [
        (path, "znode_format", True) for path in DAMAGED
    ]
    assert done(zk_connect, "list", "--topic", "orders") == of_alice, "what was not asked for hides nothing"


@pytest.mark.spec("SEC-78", "SEC-89", "SEC-92")
def test_beside_a_node_that_cannot_be_read_others_are_changed_and_it_is_not(zk: ZooKeeper, zk_connect: str) -> None:
    """Its entries would be lost; and that nobody may read in a group is not known where one cannot be read."""
    zk.create(DAMAGED[0], b"{")
    zk.create(DAMAGED[1], b"{")
    added = acls(zk_connect, "add", *ALICE)
    assert added.exit_code == 0 and data(zk, "/kafka-acl/Topic/orders") is not None
    assert f"no group yet, as far as is known ({DAMAGED[1]} cannot be read): " in added.stderr
    assert acls(zk_connect, "remove", "--topic", "orders", "--force").exit_code == 0
    assert data(zk, "/kafka-acl/Topic/orders") is None
    before = nodes_below(zk)
    for action in (("add", *ALICE[:-1], "orders", "--topic", "broken"), ("remove", "--topic", "broken", "--force")):
        for flags in ((), ("--dry-run",)):
            refused = acls(zk_connect, *action, *flags)
            assert refused.exit_code == 1 and f"znode {DAMAGED[0]} " in refused.stderr, refused.output
            assert refused.stdout == "" and nodes_below(zk) == before
    by_match = ("--group", "broken-g", "--resource-pattern-type", "match")
    assert f"znode {DAMAGED[1]} " in acls(zk_connect, "remove", *by_match, "--force").stderr
    assert nodes_below(zk) == before


@pytest.mark.spec("SEC-92")
def test_what_has_no_consequence_is_not_told_of(zk_connect: str) -> None:
    first = "where allow.everyone.if.no.acl.found is set, everybody else loses it"
    told = "".join(f"the first ACL about {one}: {first}\n" for one in ("Topic t", "Group g"))
    consumer = ("--consumer", "--topic", "t", "--group", "g")
    assert acls(zk_connect, "add", "--allow-principal", "User:a", *consumer).stderr == told
    for more in (consumer, ("--operation", "Read", "--topic", "t"), ("--operation", "Write", "--topic", "t")):
        assert acls(zk_connect, "add", "--allow-principal", "User:b", *more).stderr == ""
    write = ("--allow-principal", "User:in-no-group", "--operation", "Write", "--topic", "t")
    assert acls(zk_connect, "add", *write).stderr == "", "who only writes needs no group"
    deny = ("--deny-principal", "User:in-no-group", "--operation", "Read", "--topic", "t")
    assert acls(zk_connect, "add", *deny).stderr == "", "nor does who is denied"


@pytest.mark.spec("SEC-92")
def test_a_removal_by_match_says_first_what_would_go(zk: ZooKeeper, zk_connect: str) -> None:
    for more in (("pa", *PREFIXED), ("pay",)):
        done(zk_connect, "add", "--allow-principal", "User:c", "--operation", "Read", "--topic", *more)
    matching = ("--topic", "pay", "--resource-pattern-type", "match")
    for flags, code in (((), 2), (("--force",), 0)):
        result = acls(zk_connect, "remove", *matching, *flags)
        listed, _, after = result.stderr.partition("these would go:\n")[2].partition(
            "to put it back: " if flags else "kt: "
        )
        assert result.exit_code == code and after
        assert listed.count("Current ACLs for resource") == 2
        for name, kind in (("pa", "PREFIXED"), ("pay", "LITERAL")):
            assert f"ResourcePattern(resourceType=TOPIC, name={name}, patternType={kind})" in listed
        assert (data(zk, "/kafka-acl/Topic/pay") is None) == bool(flags)


@pytest.mark.spec("SEC-80", "SEC-92")
@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("10.0.0.0/8", "brokers go by single addresses, not by names or networks"),
        ("localhost", "brokers go by single addresses, not by names or networks"),
        ("::1", "brokers write it 0:0:0:0:0:0:0:1"),
        ("::ffff:10.0.0.1", "brokers write it 10.0.0.1"),
        ("*", ""),
        ("10.0.0.1", ""),
        ("0:0:0:0:0:0:0:1", ""),
    ],
)
def test_a_host_that_no_client_comes_from_is_told_as_its_denial_denies_nothing(
    zk_connect: str, host: str, why: str
) -> None:
    for side, means in (("deny", "denies"), ("allow", "allows")):
        entry = (f"--{side}-principal", "User:eve", f"--{side}-host", host, "--operation", "Write", "--topic", "orders")
        done = acls(zk_connect, "add", *entry)
        assert done.exit_code == 0
        told = f"no client comes from host {host}: {why}; the entry {means} nothing to anybody\n"
        assert (told in done.stderr, "no client" in done.stderr) == (bool(why), bool(why))


@pytest.mark.spec("SEC-91")
@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("add", "--allow-principal", "User:a"), "You must specify at least one resource"),
        (("add", "--topic", "t"), "needs --allow-principal"),
        (("add", "--allow-principal", "a", "--topic", "t"), "write User:NAME"),
        (("add", "--allow-principal", "User:a", "--topic", "t", "--operation", "ClusterAction"),
         "ResourceType TOPIC only supports operations"),
        (("add", "--allow-principal", "User:a", "--topic", "t", "--resource-pattern-type", "match"),
         "A '--resource-pattern-type' value of 'MATCH' is not valid when adding acls."),
        (("add", "--allow-principal", "User:a", "--group", "a/b"), "invalid resource name: a/b"),
        (("add", "--allow-principal", "User:a", "--consumer", "--topic", "t"), "a --topic and a --group"),
        (("add", "--allow-host", "h", "--topic", "t"), "--allow-host needs --allow-principal"),
        (("remove", "--force"), "You must specify at least one resource"),
    ],
    ids=range(9),
)  # fmt: skip
def test_what_is_wrong_is_told_before_anything_is_written(zk_connect: str, args: tuple[str, ...], why: str) -> None:
    result = acls(zk_connect, *args)
    assert result.exit_code == 2 and why in result.stderr


@pytest.mark.spec("SEC-91")
def test_kafkas_own_spelling_is_answered_or_taken(zk_connect: str) -> None:
    result = CliRunner().invoke(kt, ["acls", "--add", "--allow-principal", "User:a", "--topic", "t"])
    assert result.exit_code == 2 and "kt acls add --allow-principal User:a --topic t" in result.stderr
    properties = ["acls", "list", "--authorizer-properties", f"zookeeper.connect={zk_connect}"]
    assert CliRunner().invoke(kt, properties).exit_code == 0
