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
     b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Fly","host":"*"}]}'],
    ids=range(7),
)  # fmt: skip
def test_what_cannot_be_read_is_said(data: bytes) -> None:
    with pytest.raises(ZnodeFormatError, match="/kafka-acl/Topic/orders"):
        AclZnode.decode(ResourcePattern(ResourceType.TOPIC, "orders", LITERAL), data)
