"""What the authorizer adds to a table: super users, what holds without entries, a memory of answers, and a log."""

import logging
import time
import tracemalloc
from typing import Any

import pytest

from kafkatool.broker.security import authorizer as module
from kafkatool.broker.security.acl_table import AclTable
from kafkatool.broker.security.authorizer import Authorizer
from kafkatool.broker.security.principal import ANONYMOUS, Principal
from kafkatool.core.model.acls import Entry, Operation, PatternType, Permission, ResourcePattern, ResourceType

ALICE = Principal("User", "alice")
ORDERS = ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL)
READ, TOPIC = Operation.READ, ResourceType.TOPIC


def allowing(principal: str, host: str = "*", permission: Permission = Permission.ALLOW) -> AclTable:
    return AclTable().with_entries({ORDERS: frozenset({Entry(principal, host, READ, permission)})})


def reads(authorizer: Authorizer, who: Principal = ALICE, address: str = "10.0.0.1", request: str = "Fetch") -> bool:
    return authorizer.allows(who, address, READ, TOPIC, "orders", request)


@pytest.mark.spec("SEC-76", "SEC-80")
def test_super_users_may_all_others_what_entries_say_and_without_any_what_the_setting_says() -> None:
    strict, open_to_all = (Authorizer({"User:admin"}, allow_without_acl=allow) for allow in (False, True))
    assert (reads(strict), reads(open_to_all)) == (False, True)
    for authorizer in (strict, open_to_all):
        authorizer.follow(allowing("User:*", permission=Permission.DENY))
        assert reads(authorizer, Principal("User", "admin"))
        assert not reads(authorizer, Principal("Group", "admin")) and not reads(authorizer)
        authorizer.follow(allowing("User:bob"))
        assert not reads(authorizer), "the setting is for what no entry is about"


@pytest.mark.spec("SEC-76")
@pytest.mark.parametrize("kind", ResourceType, ids=lambda kind: kind.name)
def test_a_super_user_may_do_each_thing_to_each_kind_of_resource_whatever_denies_it(kind: ResourceType) -> None:
    authorizer = Authorizer({"User:admin"}, allow_without_acl=False)
    denied = frozenset({Entry("User:admin", "*", Operation.ALL, Permission.DENY)})
    authorizer.follow(AclTable().with_entries({ResourcePattern(kind, "*", PatternType.LITERAL): denied}))
    for operation in Operation:
        for name in ("x", None):
            assert authorizer.allows(Principal("User", "admin"), "10.0.0.1", operation, kind, name, "")
            assert not authorizer.allows(ALICE, "10.0.0.1", operation, kind, name, "")


@pytest.mark.spec("SEC-78")
def test_of_a_damaged_node_super_users_alone_are_let_in() -> None:
    authorizer = Authorizer({"User:admin"}, allow_without_acl=True)
    authorizer.follow(AclTable().with_entries({ORDERS: None}))
    assert reads(authorizer, Principal("User", "admin")) and not reads(authorizer)


@pytest.mark.spec("SEC-81")
def test_any_topic_is_allowed_by_the_setting_unless_all_are_denied() -> None:
    authorizer = Authorizer((), allow_without_acl=True)
    assert authorizer.allows(ALICE, "h", READ, TOPIC, None, "")
    authorizer.follow(allowing("User:alice", permission=Permission.DENY))
    assert authorizer.allows(ALICE, "h", READ, TOPIC, None, ""), "one topic is not all"
    every = ResourcePattern(TOPIC, "*", PatternType.LITERAL)
    authorizer.follow(AclTable().with_entries({every: frozenset({Entry("User:alice", "*", READ, Permission.DENY)})}))
    assert not authorizer.allows(ALICE, "h", READ, TOPIC, None, "")


@pytest.mark.spec("SEC-82")
def test_an_answer_is_remembered_until_the_entries_change(monkeypatch: pytest.MonkeyPatch) -> None:
    authorizer = Authorizer((), allow_without_acl=False)
    authorizer.follow(allowing("User:alice"))
    asked: list[object] = []
    decide = AclTable.decide

    def decide_and_count(*question: Any) -> bool | None:
        asked.append(question)
        return decide(*question)

    monkeypatch.setattr(AclTable, "decide", decide_and_count)
    assert reads(authorizer) and reads(authorizer) and len(asked) == 1
    authorizer.follow(AclTable())
    assert not reads(authorizer) and len(asked) == 2
    monkeypatch.setattr(module, "_MOST_REMEMBERED", 5)
    for host in range(9):
        reads(authorizer, address=f"10.0.1.{host}")
    assert len(asked) == 11
    reads(authorizer)
    assert len(asked) == 12, "there was no room for the first"


@pytest.mark.spec("SEC-82")
def test_names_that_no_topic_can_have_are_decided_and_not_remembered() -> None:
    authorizer = Authorizer((), allow_without_acl=False)
    tracemalloc.start()
    try:
        for number in range(2000):
            assert not authorizer.allows(ALICE, "h", READ, TOPIC, f"{number:032000}", "")
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 4_000_000, "the 64 MB of names are kept"


@pytest.mark.spec("SEC-80")
@pytest.mark.parametrize(
    ("address", "written"),
    [("127.0.0.1", "127.0.0.1"), ("::1", "0:0:0:0:0:0:0:1"), ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1"),
     ("::ffff:10.0.0.1", "10.0.0.1"), ("2001:db8::00ff", "2001:db8:0:0:0:0:0:ff")],
)  # fmt: skip
def test_a_host_is_the_peers_address_as_java_writes_it(address: str, written: str) -> None:
    authorizer = Authorizer((), allow_without_acl=False)
    authorizer.follow(allowing("User:alice", written))
    assert reads(authorizer, address=address) and not reads(authorizer, address="10.9.9.9")


@pytest.mark.spec("SEC-80")
def test_a_name_is_no_host() -> None:
    authorizer = Authorizer((), allow_without_acl=False)
    authorizer.follow(allowing("User:alice", "localhost"))
    assert not reads(authorizer, address="127.0.0.1")


@pytest.mark.spec("SEC-75")
def test_a_refusal_is_told_in_kafkas_words_and_not_more_than_a_hundred_times_a_second(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    authorizer = Authorizer((), allow_without_acl=False)
    for _ in range(150):
        reads(authorizer, ANONYMOUS, request="Produce")
    reads(authorizer, ANONYMOUS, request="")  # nobody wants to do it
    assert {record.getMessage() for record in caplog.records} == {
        "Principal = User:ANONYMOUS is Denied Operation = Read from host = 10.0.0.1 on resource = "
        "Topic:LITERAL:orders for request = Produce with resourceRefCount = 1"
    }
    assert len(caplog.records) == 100
    assert {record.levelname for record in caplog.records} == {"INFO"}
    now[0] += 1
    reads(authorizer)
    assert "50 more refusals" in caplog.records[100].getMessage()
