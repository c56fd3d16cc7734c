"""The nodes of ACLs: real Kafka's bytes are read, ours are read back, bad ones are named."""

import pytest

from kafkatool.core.errors import ZnodeFormatError
from kafkatool.core.model.acls import Entry, Operation, PatternType, Permission, ResourcePattern, ResourceType
from kafkatool.core.zookeeper.acl_znodes import AclChangeZnode, AclZnode

ALLOW, DENY = Permission.ALLOW, Permission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED

NODES = {  # as Kafka 2.8.2 left them
    "/kafka-acl/Topic/orders": (
        ResourcePattern(ResourceType.TOPIC, "orders", LITERAL),
        b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","operation":"Read","host":"*"}]}',
        {Entry("User:alice", "*", Operation.READ, ALLOW)},
    ),
    "/kafka-acl/Group/g 1*%": (
        ResourcePattern(ResourceType.GROUP, "g 1*%", LITERAL),
        b'{"version":1,"acls":[{"principal":"User:mallory","permissionType":"Deny","operation":"All","host":"10.0.0.9"}]}',
        {Entry("User:mallory", "10.0.0.9", Operation.ALL, DENY)},
    ),
    "/kafka-acl/Cluster/kafka-cluster": (
        ResourcePattern(ResourceType.CLUSTER, "kafka-cluster", LITERAL),
        b'{"version":1,"acls":[{"principal":"User:p","permissionType":"Allow","operation":"IdempotentWrite","host":"*"}]}',
        {Entry("User:p", "*", Operation.IDEMPOTENT_WRITE, ALLOW)},
    ),
    "/kafka-acl-extended/prefixed/TransactionalId/tx": (
        ResourcePattern(ResourceType.TRANSACTIONAL_ID, "tx", PREFIXED),
        b'{"version":1,"acls":[{"principal":"User:p","permissionType":"Allow","operation":"Write","host":"*"}]}',
        {Entry("User:p", "*", Operation.WRITE, ALLOW)},
    ),
}


@pytest.mark.spec("SEC-77", "SEC-78")
@pytest.mark.parametrize("path", NODES)
def test_what_kafka_wrote_is_read_and_written_alike(path: str) -> None:
    pattern, data, entries = NODES[path]
    assert AclZnode.path(pattern) == path
    assert AclZnode.decode(pattern, data) == entries
    assert AclZnode.encode(entries) == data


@pytest.mark.spec("SEC-77")
@pytest.mark.parametrize(
    ("kind", "data", "pattern"),
    [
        (LITERAL, b"Topic:orders", ResourcePattern(ResourceType.TOPIC, "orders", LITERAL)),
        (LITERAL, b"TOPIC:orders", ResourcePattern(ResourceType.TOPIC, "orders", LITERAL)),
        (LITERAL, b"TRANSACTIONAL_ID:a:b", ResourcePattern(ResourceType.TRANSACTIONAL_ID, "a:b", LITERAL)),
        (LITERAL, b"GROUP:g 1*%", ResourcePattern(ResourceType.GROUP, "g 1*%", LITERAL)),
        (
            PREFIXED,
            b'{"version":1,"resourceType":"TOPIC","name":"orders","patternType":"PREFIXED"}',
            ResourcePattern(ResourceType.TOPIC, "orders", PREFIXED),
        ),
    ],
    ids=["of 1.1.1", "of 2.8.2", "with a colon", "odd name", "prefixed"],
)
def test_changes_are_read_in_each_form(kind: PatternType, data: bytes, pattern: ResourcePattern) -> None:
    assert AclChangeZnode.decode(kind, data) == pattern
    assert AclChangeZnode.decode(kind, AclChangeZnode.encode(pattern)) == pattern
    if kind is PREFIXED:
        assert AclChangeZnode.encode(pattern) == data


@pytest.mark.spec("SEC-78")
@pytest.mark.parametrize(
    "data",
    [b"{", b'{"version":2,"acls":[]}', b'{"version":1}', b'{"version":1,"acls":[{"principal":"User:a"}]}', b"[]",
     b'{"version":1,"acls":[{"principal":7,"permissionType":"Allow","operation":"Read","host":"*"}]}',
     b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":7,"host":"*"}]}'],
    ids=range(7),
)  # fmt: skip
def test_what_cannot_be_read_is_said(data: bytes) -> None:
    with pytest.raises(ZnodeFormatError, match="/kafka-acl/Topic/orders"):
        AclZnode.decode(ResourcePattern(ResourceType.TOPIC, "orders", LITERAL), data)


@pytest.mark.spec("SEC-78")
def test_words_of_no_release_known_are_read_as_they_are_and_written_alike() -> None:
    entry = b'{"principal":"User:a","permissionType":"%s","operation":"%s","host":"*"}'
    words = ((b"Allow", b"Fly"), (b"Allow", b"fly"), (b"Perhaps", b"Read"))
    data = b'{"version":1,"acls":[%s]}' % b",".join(entry % one for one in words)
    entries = AclZnode.decode(ResourcePattern(ResourceType.TOPIC, "orders", LITERAL), data)
    assert {(one.permission.name, one.operation.name) for one in entries} == {
        ("ALLOW", "UNKNOWN(Fly)"), ("ALLOW", "UNKNOWN(fly)"), ("UNKNOWN(Perhaps)", "READ")
    }  # fmt: skip
    assert sum(not one.is_known for one in entries) == len(entries) == 3
    assert AclZnode.decode(ResourcePattern(ResourceType.TOPIC, "orders", LITERAL), AclZnode.encode(entries)) == entries
    assert all(entry % one in AclZnode.encode(entries) for one in words)


@pytest.mark.spec("SEC-78")
@pytest.mark.parametrize(
    ("operation", "word"),
    [
        *((Operation.READ, "Read"), (Operation.WRITE, "Write"), (Operation.CREATE, "Create")),
        *((Operation.DELETE, "Delete"), (Operation.ALTER, "Alter"), (Operation.DESCRIBE, "Describe")),
        *((Operation.CLUSTER_ACTION, "ClusterAction"), (Operation.DESCRIBE_CONFIGS, "DescribeConfigs")),
        *((Operation.ALTER_CONFIGS, "AlterConfigs"), (Operation.IDEMPOTENT_WRITE, "IdempotentWrite")),
        *((Operation.CREATE_TOKENS, "CreateTokens"), (Operation.DESCRIBE_TOKENS, "DescribeTokens")),
        *((Operation.TWO_PHASE_COMMIT, "TwoPhaseCommit"), (Operation.ALL, "All")),
    ],
)
@pytest.mark.parametrize(("permission", "other"), [(ALLOW, "Allow"), (DENY, "Deny")])
def test_each_word_is_written_as_kafka_does_and_read_in_any_case(
    operation: Operation, word: str, permission: Permission, other: str
) -> None:
    pattern = ResourcePattern(ResourceType.TOPIC, "t", LITERAL)

    def data(permission_type: str, name: str) -> bytes:
        entry = f'"principal":"User:a","permissionType":"{permission_type}","operation":"{name}","host":"*"'
        return f'{{"version":1,"acls":[{{{entry}}}]}}'.encode()

    entries = frozenset({Entry("User:a", "*", operation, permission)})
    assert AclZnode.encode(entries) == data(other, word)
    for spelling in (str, str.upper, str.lower):
        assert AclZnode.decode(pattern, data(spelling(other), spelling(word))) == entries


@pytest.mark.spec("SEC-78")
@pytest.mark.parametrize(
    ("kind", "word", "later"),
    [
        (ResourceType.TOPIC, "Topic", "TOPIC"),
        (ResourceType.GROUP, "Group", "GROUP"),
        (ResourceType.CLUSTER, "Cluster", "CLUSTER"),
        (ResourceType.TRANSACTIONAL_ID, "TransactionalId", "TRANSACTIONAL_ID"),
        (ResourceType.DELEGATION_TOKEN, "DelegationToken", "DELEGATION_TOKEN"),
    ],
)
def test_each_type_has_its_path_and_its_changes_are_read_as_each_release_writes_them(
    kind: ResourceType, word: str, later: str
) -> None:
    pattern = ResourcePattern(kind, "x", LITERAL)
    assert AclZnode.path(pattern) == f"/kafka-acl/{word}/x"
    assert AclChangeZnode.encode(pattern) == f"{word}:x".encode()
    for told in (word, later, word.lower()):
        assert AclChangeZnode.decode(LITERAL, f"{told}:x".encode()) == pattern
