"""``kt acls --bootstrap-server`` beside ``--zookeeper``: the same words, items and exit codes, whichever way."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator

from kafkatool.commands.main import kt
from kafkatool.core.model.acls import Entry, Filter, Operation, PatternType, Permission, ResourcePattern, ResourceType
from kafkatool.core.protocol.messages import create_acls, delete_acls, describe_acls
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.zookeeper.acl_znodes import ACL_PATHS
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.core.client.fake_broker import FakeBroker
from tests.paths import ROOT

SCHEMA = ROOT / "docs" / "schemas" / "kt-acls-list.schema.json"
SERVED = {describe_acls.API: (0, 2), create_acls.API: (0, 2), delete_acls.API: (0, 2)}
Asked = describe_acls.DescribeAclsRequest | delete_acls.DeleteAclsFilter
READ = ("--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders")
PREFIXED = ("--resource-pattern-type", "prefixed")
STORY = (
    ("add", *READ),
    ("add", "--allow-principal", "User:p", "--producer", "--idempotent", "--topic", "t", "--transactional-id", "x"),
    ("add", "--deny-principal", "User:m", "--deny-host", "10.0.0.9", "--group", "g 1", *PREFIXED),
    ("list",),
    ("list", "--output", "json"),
    ("list", "--group", "g 123", "--resource-pattern-type", "match"),
    ("list", "--principal", "User:alice", "--principal", "User:nobody"),
    ("remove", *READ, "--force"),
    ("remove", *READ, "--force"),
    ("remove", "--topic", "t", "--force", "--output", "tsv"),
    ("remove", "--topic", "orders"),
    ("list", "--output", "json"),
)


class AclBroker(FakeBroker):
    """A broker made of functions that keeps ACLs; it sends words in the order they came."""

    def __init__(self) -> None:
        super().__init__(1, SERVED)
        self.kept: dict[ResourcePattern, list[Entry]] = {}
        self.answers[describe_acls.API.key] = self._describe
        self.answers[create_acls.API.key] = self._create
        self.answers[delete_acls.API.key] = self._delete

    def _selected(self, asked: Asked) -> Iterator[tuple[ResourcePattern, Entry]]:
        wanted = Filter(
            ResourceType(asked.resource_type), asked.resource_name, PatternType(asked.pattern_type),
            asked.principal, asked.host, Operation(asked.operation), Permission(asked.permission_type),
        )  # fmt: skip
        for pattern, entries in self.kept.items():
            if wanted.meets(pattern):
                yield from ((pattern, entry) for entry in entries if wanted.selects(entry))

    def _describe(self, asked: describe_acls.DescribeAclsRequest) -> object:
        found: dict[ResourcePattern, list[describe_acls.DescribedAcl]] = {}
        for pattern, (principal, host, operation, permission) in self._selected(asked):
            told = describe_acls.DescribedAcl(
                principal=principal, host=host, operation=operation, permission_type=permission
            )
            found.setdefault(pattern, []).append(told)
        resources = [
            describe_acls.DescribedAclResource(
                resource_type=p.type, resource_name=p.name, pattern_type=p.pattern_type, acls=acls
            )
            for p, acls in found.items()
        ]
        return describe_acls.DescribeAclsResponse(resources=resources)

    def _create(self, asked: create_acls.CreateAclsRequest) -> object:
        for one in asked.creations:
            kind, pattern_type = ResourceType(one.resource_type), PatternType(one.pattern_type)
            entries = self.kept.setdefault(ResourcePattern(kind, one.resource_name, pattern_type), [])
            entry = Entry(one.principal, one.host, Operation(one.operation), Permission(one.permission_type))
            if entry not in entries:
                entries.append(entry)
        return create_acls.CreateAclsResponse(results=[create_acls.AclCreationResult() for _ in asked.creations])

    def _delete(self, asked: delete_acls.DeleteAclsRequest) -> object:
        for one in asked.filters:
            for pattern, entry in list(self._selected(one)):
                self.kept[pattern].remove(entry)
        results = [delete_acls.DeleteAclsFilterResult(matching_acls=[]) for _ in asked.filters]
        return delete_acls.DeleteAclsResponse(filter_results=results)


@pytest.fixture
def broker() -> Iterator[AclBroker]:
    with AclBroker() as made:
        yield made


def asked(broker: AclBroker, action: str, *args: str) -> Result:
    return CliRunner().invoke(kt, ["acls", action, "--bootstrap-server", str(broker.address), *args])


@pytest.mark.spec("SEC-91", "SEC-92")
def test_both_ways_say_the_same(broker: AclBroker, zk: ZooKeeper, zk_connect: str) -> None:
    for path in ("/brokers/ids", *ACL_PATHS):
        zk.create(path, make_parents=True)
    for action, *args in STORY:
        here = asked(broker, action, *args)
        there = CliRunner().invoke(kt, ["acls", action, "--zookeeper", zk_connect, *args])
        assert here.exit_code == there.exit_code == (2 if args == ["--topic", "orders"] else 0), here.output
        way, other = f"--bootstrap-server {broker.address}", f"--zookeeper {zk_connect}"
        assert here.stderr == there.stderr.replace(other, way)
        if "json" in args:
            assert json.loads(here.stdout)["items"] == json.loads(there.stdout)["items"]
        else:
            assert here.stdout == there.stdout


@pytest.mark.spec("SEC-91")
def test_brokers_of_before_patterns_are_asked_for_all_they_have() -> None:
    """Those of Kafka 1.x know literal names alone: who adds a right to read asks them for those of all groups."""
    broker = AclBroker()
    broker.apis |= dict.fromkeys(SERVED, (0, 0))
    with broker:
        assert asked(broker, "add", *READ).exit_code == 0
        newer = asked(broker, "list", "--topic", "orders", "--resource-pattern-type", "match")
    assert newer.exit_code == 1 and "kt acls needs DescribeAcls 1; broker 1 has none" in newer.stderr


@pytest.mark.spec("SEC-91", "SEC-40")
def test_a_refusal_is_said_in_the_brokers_words_and_exits_with_1(broker: AclBroker) -> None:
    broker.answers[describe_acls.API.key] = lambda _: describe_acls.DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured.", resources=[]
    )
    disabled = asked(broker, "list")
    assert disabled.exit_code == 1 and "No Authorizer is configured." in disabled.output
    broker.answers[describe_acls.API.key] = lambda _: describe_acls.DescribeAclsResponse(resources=[])
    broker.answers[create_acls.API.key] = lambda _: create_acls.CreateAclsResponse(
        results=[create_acls.AclCreationResult(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]
    )
    refused = asked(broker, "add", *READ)
    assert refused.exit_code == 1 and refused.stderr.endswith(
        "kt: not permitted: Alter on cluster (broker 1 as User:ANONYMOUS)\n"
    )


@pytest.mark.spec("SEC-92", "ADM-20")
def test_a_dry_run_prints_the_request_and_sends_nothing(broker: AclBroker) -> None:
    added = asked(broker, "add", *READ, *PREFIXED, "--dry-run", "--output", "json")
    (item,) = json.loads(added.stdout)["items"]
    assert (item["broker"], item["api"], item["version"]) == (1, "CreateAcls", 2)
    assert item["fields"] == {"creations": [
        {
            "resource_type": 2, "resource_name": "orders", "pattern_type": 4, "principal": "User:alice", "host": "*",
            "operation": 3, "permission_type": 3,
        }
    ]}  # fmt: skip
    assert broker.kept == {}
    asked(broker, "add", *READ)
    removed = asked(broker, "remove", *READ, "--dry-run", "--output", "json")
    (item,) = json.loads(removed.stdout)["items"]
    assert (item["broker"], item["api"], item["version"]) == (1, "DeleteAcls", 2)
    assert item["fields"] == {
        "filters": [
            {
                "resource_type": 2, "resource_name": "orders", "pattern_type": 3, "principal": "User:alice",
                "host": "*", "operation": 3, "permission_type": 3,
            }
        ]
    }  # fmt: skip
    assert [len(entries) for entries in broker.kept.values()] == [1]


@pytest.mark.spec("SEC-92")
def test_what_a_removal_by_match_would_take_is_told_before_it_is_asked_for(broker: AclBroker) -> None:
    refused = delete_acls.DeleteAclsFilterResult(
        error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None, matching_acls=[]
    )
    broker.answers[delete_acls.API.key] = lambda asked: delete_acls.DeleteAclsResponse(
        filter_results=[refused for _ in asked.filters]
    )
    assert asked(broker, "add", *READ).exit_code == 0
    failed = asked(broker, "remove", "--topic", "orders", "--resource-pattern-type", "match", "--force")
    assert failed.exit_code == 1 and broker.count(delete_acls.API) == 1
    assert failed.stderr.startswith("these would go:\nCurrent ACLs for resource")
    listed, _, after = failed.stderr.partition("to put it back: kt acls add ")  # before it is sent: no answer may come
    assert "User:alice" in listed and "not permitted" in after


@pytest.mark.spec("SEC-92", "ADM-56")
def test_a_removal_that_is_not_answered_leaves_its_way_back(broker: AclBroker, tmp_path: Path) -> None:
    assert asked(broker, "add", *READ).exit_code == 0
    hurry = tmp_path / "client.properties"
    hurry.write_text("retries=0\n")
    broker.answers[delete_acls.API.key] = lambda _: None  # carried out or not, nobody knows
    lost = asked(broker, "remove", *READ, "--force", "--command-config", str(hurry))
    assert lost.exit_code == 1
    back, cut = lost.stderr.splitlines()[:2]
    assert back.startswith("to put it back: kt acls add ") and cut.startswith("cut short: part of it may be done")


@pytest.mark.spec("SEC-78", "SEC-91")
def test_acls_of_later_releases_are_shown_as_they_came(broker: AclBroker) -> None:
    def told(operation: int, permission: int = 3) -> describe_acls.DescribedAcl:
        return describe_acls.DescribedAcl(principal="User:a", host="*", operation=operation, permission_type=permission)

    broker.answers[describe_acls.API.key] = lambda _: describe_acls.DescribeAclsResponse(
        resources=[
            describe_acls.DescribedAclResource(resource_type=kind, resource_name="x", pattern_type=pattern, acls=acls)
            for kind, pattern, acls in (
                (7, 3, [told(13), told(14)]),
                (5, 3, [told(15), told(3)]),
                (9, 6, [told(16, 5), told(17)]),
            )
        ]
    )
    listed = asked(broker, "list", "--output", "json")
    assert listed.exit_code == 0, listed.output
    document = json.loads(listed.stdout)
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(document)
    keys = ("resource_type", "pattern_type", "operation", "permission")
    assert [tuple(item[key] for key in keys) for item in document["items"]] == [
        ("TRANSACTIONAL_ID", "LITERAL", "READ", "ALLOW"),
        ("TRANSACTIONAL_ID", "LITERAL", "TWO_PHASE_COMMIT", "ALLOW"),
        ("USER", "LITERAL", "CREATE_TOKENS", "ALLOW"),
        ("USER", "LITERAL", "DESCRIBE_TOKENS", "ALLOW"),
        ("UNKNOWN(9)", "UNKNOWN(6)", "UNKNOWN(16)", "UNKNOWN(5)"),
        ("UNKNOWN(9)", "UNKNOWN(6)", "UNKNOWN(17)", "ALLOW"),
    ]
    text = asked(broker, "list")
    assert "(principal=User:a, host=*, operation=UNKNOWN(16), permissionType=UNKNOWN(5))" in text.stdout
    removed = asked(broker, "remove", "--transactional-id", "x", "--force")
    assert removed.exit_code == 1 and "an ACL about TWO_PHASE_COMMIT is shown here, not changed" in removed.stderr
    assert not broker.count(delete_acls.API)


def test_the_address_in_kafkas_own_flag_is_not_given_twice(broker: AclBroker) -> None:
    both = ["--zookeeper", "zk:1", "--authorizer-properties", "zookeeper.connect=zk:2"]
    result = CliRunner().invoke(kt, ["acls", "list", *both])
    assert result.exit_code == 2 and "not both" in result.stderr
    both = ["--bootstrap-server", "b:1", "--authorizer-properties", "zookeeper.connect=zk:2"]
    result = CliRunner().invoke(kt, ["acls", "list", *both])
    assert result.exit_code == 2 and "Only one of" in result.stderr
