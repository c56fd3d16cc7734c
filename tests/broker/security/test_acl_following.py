"""The ACLs in a real ZooKeeper: read at the start, and again when a change node says so."""

import logging
import time
from collections.abc import Iterator, Sequence

import pytest

from kafkatool.broker.administration.acls import AclAdmin
from kafkatool.broker.security.acl_following import AclFollower
from kafkatool.broker.security.authorizer import Authorizer
from kafkatool.broker.security.principal import ANONYMOUS
from kafkatool.core.errors import ZooKeeperError
from kafkatool.core.model.acls import (
    Binding,
    Entry,
    Filter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.zookeeper.acl_znodes import AclChangeZnode, AclZnode
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.core.zookeeper.memory import MemoryEnsemble, MemoryZooKeeper
from tests.waiting import eventually

ORDERS = ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL)
PAY = ResourcePattern(ResourceType.TOPIC, "pay", PatternType.PREFIXED)
ALLOWED = frozenset({Entry("User:ANONYMOUS", "*", Operation.READ, Permission.ALLOW)})


@pytest.fixture
def authorizer() -> Authorizer:
    return Authorizer((), allow_without_acl=False)


@pytest.fixture
def follower(zk: ZooKeeper, authorizer: Authorizer) -> Iterator[AclFollower]:
    made = AclFollower(zk, authorizer)
    yield made
    made.stop()


def reads(authorizer: Authorizer, topic: str) -> bool:
    return authorizer.allows(ANONYMOUS, "127.0.0.1", Operation.READ, ResourceType.TOPIC, topic, "")


def tell(zk: ZooKeeper, pattern: ResourcePattern, data: bytes | None = None) -> None:
    told = AclChangeZnode.encode(pattern) if data is None else data
    zk.create(AclChangeZnode.prefix(pattern), told, sequential=True, make_parents=True)


@pytest.mark.spec("SEC-77", "SEC-79")
def test_the_nodes_are_made_what_is_there_is_read_and_changes_hold_when_they_are_told(
    zk: ZooKeeper, authorizer: Authorizer, follower: AclFollower
) -> None:
    zk.create(AclZnode.path(ORDERS), AclZnode.encode(ALLOWED), make_parents=True)
    follower.start()
    assert reads(authorizer, "orders") and not reads(authorizer, "payments")
    kinds = {"Topic", "Group", "Cluster", "TransactionalId", "DelegationToken"}
    assert set(zk.children("/kafka-acl") or ()) == kinds == set(zk.children("/kafka-acl-extended/prefixed") or ())
    for root in ("/kafka-acl", "/kafka-acl-extended/prefixed"):
        assert {node.data for kind in kinds if (node := zk.get(f"{root}/{kind}"))} == {b""}, "without data"
    assert zk.children("/kafka-acl-changes") == [] == zk.children("/kafka-acl-extended-changes")
    zk.create(AclZnode.path(PAY), AclZnode.encode(ALLOWED))
    assert not reads(authorizer, "payments"), "nobody told of it yet"
    tell(zk, PAY)
    eventually(lambda: reads(authorizer, "payments"), "the change holds")
    zk.delete(AclZnode.path(ORDERS))
    tell(zk, ORDERS, b"TOPIC:orders")  # as 2.8.2 writes it
    eventually(lambda: not reads(authorizer, "orders"), "the change holds")


@pytest.mark.spec("SEC-78", "SEC-79")
def test_a_damaged_node_denies_its_resource_alone_and_a_damaged_change_has_all_read_again(
    zk: ZooKeeper, authorizer: Authorizer, follower: AclFollower, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    every = ORDERS._replace(name="*")
    zk.create(AclZnode.path(every), AclZnode.encode(ALLOWED), make_parents=True)
    zk.create(AclZnode.path(ORDERS), b'{"version":2,"acls":[]}')
    zk.create("/kafka-acl/Spaceship/x", make_parents=True)
    follower.start()
    assert not reads(authorizer, "orders") and reads(authorizer, "others")
    assert [r.levelname for r in caplog.records] == ["WARNING", "ERROR"]
    assert zk.get("/kafka-acl/Spaceship/x") is not None, "left alone"
    zk.set(AclZnode.path(ORDERS), AclZnode.encode(ALLOWED), 0)
    tell(zk, ORDERS, b"\xff")
    eventually(lambda: reads(authorizer, "orders"), "the change holds")


@pytest.mark.spec("SEC-78")
@pytest.mark.parametrize(
    ("permission", "operation", "shown"),
    [
        ("Allow", "Fly", "UNKNOWN(Fly)"),
        ("Deny", "Fly", "UNKNOWN(Fly)"),
        ("Perhaps", "Read", "UNKNOWN(Perhaps)"),
        ("Deny", "Any", "ANY"),
    ],
)
def test_an_entry_that_is_not_understood_lets_nobody_in_and_is_told(
    zk: ZooKeeper,
    authorizer: Authorizer,
    follower: AclFollower,
    caplog: pytest.LogCaptureFixture,
    permission: str,
    operation: str,
    shown: str,
) -> None:
    """It may deny, or take back, what the entries beside it allow."""
    caplog.set_level(logging.WARNING)
    allowed = '{"principal":"User:ANONYMOUS","permissionType":"Allow","operation":"Read","host":"*"}'
    strange = f'{{"principal":"User:x","permissionType":"{permission}","operation":"{operation}","host":"*"}}'
    zk.create(AclZnode.path(ORDERS), f'{{"version":1,"acls":[{allowed},{strange}]}}'.encode(), make_parents=True)
    zk.create(AclZnode.path(PAY), AclZnode.encode(ALLOWED), make_parents=True)
    of_later = ResourcePattern(ResourceType.TRANSACTIONAL_ID, "x", PatternType.LITERAL)
    later = (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS, Operation.TWO_PHASE_COMMIT, Operation.WRITE)
    entries = [Entry("User:ANONYMOUS", "*", one, Permission.ALLOW) for one in later]
    zk.create(AclZnode.path(of_later), AclZnode.encode(entries), make_parents=True)
    follower.start()
    assert not reads(authorizer, "orders") and reads(authorizer, "payments")
    writes = (ANONYMOUS, "127.0.0.1", Operation.WRITE, ResourceType.TRANSACTIONAL_ID)
    assert authorizer.allows(*writes, "x", ""), "those of later releases say nothing about what is asked here"
    (record,) = caplog.records
    assert record.levelname == "ERROR" and "/kafka-acl/Topic/orders" in record.getMessage()
    assert shown in record.getMessage() and "nobody but super users" in record.getMessage()
    admin = AclAdmin(zk, authorizer, follower, prefixed_allowed=True)
    binding = Binding(ORDERS, Entry("User:ANONYMOUS", "*", Operation.WRITE, Permission.ALLOW))
    (refused,) = admin.add([binding])
    assert refused is not None and shown in str(refused), "it would let nobody in"
    for later_one in later[:3]:
        (refused,) = admin.add([Binding(PAY, Entry("User:a", "*", later_one, Permission.ALLOW))])
        assert refused is not None and refused.code == ErrorCode.INVALID_REQUEST, "other brokers may not know it"


@pytest.mark.spec("SEC-79", "SEC-89")
def test_what_a_broker_that_died_changed_and_did_not_tell_is_told_by_the_one_that_is_asked_again(
    zk: ZooKeeper, authorizer: Authorizer, follower: AclFollower, request: pytest.FixtureRequest
) -> None:
    """It goes by what it knows itself, as all others do: the node alone has changed."""
    zk.create(AclZnode.path(ORDERS), AclZnode.encode(ALLOWED), make_parents=True)
    follower.start()
    others = Authorizer((), allow_without_acl=False)
    other = AclFollower(zk, others, name="other acls")
    other.start()
    request.addfinalizer(other.stop)
    admin = AclAdmin(zk, authorizer, follower, prefixed_allowed=True)
    (entry,) = ALLOWED
    zk.delete(AclZnode.path(ORDERS))
    assert reads(others, "orders"), "nobody told of it"
    admin.remove([Filter.just(Binding(ORDERS, entry))])
    eventually(lambda: not reads(others, "orders"), "the removal holds everywhere")
    zk.create(AclZnode.path(ORDERS), AclZnode.encode(ALLOWED))
    assert admin.add([Binding(ORDERS, entry)]) == [None]
    eventually(lambda: reads(others, "orders"), "the addition holds everywhere")


@pytest.mark.spec("SEC-79", "BRK-122")
def test_after_a_reconnection_everything_is_read_again(authorizer: Authorizer) -> None:
    zk = MemoryZooKeeper(MemoryEnsemble())
    follower = AclFollower(zk, authorizer)
    follower.start()
    zk.create(AclZnode.path(ORDERS), AclZnode.encode(ALLOWED))  # and nobody told of it
    former = zk.session_id
    zk.expire()
    zk.reconnect()
    assert zk.session_id != former
    eventually(lambda: reads(authorizer, "orders"), "the entry holds")
    zk.create(AclZnode.path(PAY), AclZnode.encode(ALLOWED))
    tell(zk, PAY)
    eventually(lambda: reads(authorizer, "payments"), "the new session's watch to tell of the change")
    follower.stop()


@pytest.mark.spec("SEC-79")
def test_while_zookeeper_is_away_the_last_state_holds(
    authorizer: Authorizer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    zk = MemoryZooKeeper(MemoryEnsemble())
    zk.create(AclZnode.path(ORDERS), AclZnode.encode(ALLOWED), make_parents=True)
    follower = AclFollower(zk, authorizer)
    follower.start()

    def gone(path: str, watch: object = None) -> None:
        raise ZooKeeperError(f"{path}: connection lost")

    with monkeypatch.context() as away:
        away.setattr(zk, "children", gone)
        tell(zk, ORDERS)
        eventually(lambda: "those known hold until then" in caplog.text, "a look in vain")
        assert reads(authorizer, "orders")
    zk.delete(AclZnode.path(ORDERS))
    zk.reconnect()
    eventually(lambda: not reads(authorizer, "orders"), "all to be read again")
    follower.stop()


@pytest.mark.spec("SEC-79")
def test_what_changes_while_all_is_read_is_not_missed(authorizer: Authorizer, monkeypatch: pytest.MonkeyPatch) -> None:
    zk = MemoryZooKeeper(MemoryEnsemble())
    follower = AclFollower(zk, authorizer)
    children_many = zk.children_many

    def changing(paths: Sequence[str]) -> object:
        found = children_many(paths)
        monkeypatch.undo()
        zk.create(AclZnode.path(ORDERS), AclZnode.encode(ALLOWED))
        tell(zk, ORDERS)
        return found

    monkeypatch.setattr(zk, "children_many", changing)
    follower.start()
    eventually(lambda: reads(authorizer, "orders"), "the entry made meanwhile")
    follower.stop()


@pytest.mark.spec("SEC-79")
def test_changes_older_than_a_quarter_of_an_hour_are_deleted_by_who_sees_them(
    zk: ZooKeeper, authorizer: Authorizer, follower: AclFollower, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower.start()
    tell(zk, ORDERS)
    tell(zk, PAY)
    roots = list(AclChangeZnode.PATHS.values())
    assert all(zk.children(root) for root in roots)
    later_s = time.time() + 15 * 60 + 1
    monkeypatch.setattr(time, "time", lambda: later_s)
    zk.create(AclZnode.path(ORDERS), AclZnode.encode(ALLOWED))
    for root in roots:  # whatever wakes it
        zk.create(f"{root}/acl_changes_", b"TOPIC:orders", sequential=True)
    eventually(lambda: not any(zk.children(root) for root in roots), "all of them are gone")
    eventually(lambda: reads(authorizer, "orders"), "what they told holds all the same")
