"""Decisions: a table of entries, and who may do what by them."""

import pytest

from kafkatool.broker.security.acl_table import AclTable
from kafkatool.core.model.acls import Entry, Operation, PatternType, Permission, ResourcePattern, ResourceType

T = ResourceType.TOPIC
O = Operation  # noqa: E741
Rule = tuple[str, PatternType, str, str, Operation, Permission]


def rule(
    name: str = "orders",
    operation: Operation = O.READ,
    permission: Permission = Permission.ALLOW,
    *,
    who: str = "User:alice",
    host: str = "*",
    pattern: PatternType = PatternType.LITERAL,
) -> Rule:
    return name, pattern, who, host, operation, permission


def table(*rules: Rule) -> AclTable:
    entries: dict[ResourcePattern, set[Entry]] = {}
    for name, pattern, who, host, operation, permission in rules:
        entries.setdefault(ResourcePattern(T, name, pattern), set()).add(Entry(who, host, operation, permission))
    return AclTable().with_entries({pattern: frozenset(found) for pattern, found in entries.items()})


DENY, PREFIXED = Permission.DENY, PatternType.PREFIXED
CASES = {
    "no entry about it": ((rule("other"),), O.READ, None),
    "allowed": ((rule(),), O.READ, True),
    "another operation": ((rule(),), O.WRITE, False),
    "another principal": ((rule(who="User:bob"),), O.READ, False),
    "a principal of another type": ((rule(who="Group:alice"),), O.READ, False),
    "names are compared exactly": ((rule(who="User:Alice"),), O.READ, False),
    "anybody": ((rule(who="User:*"),), O.READ, True),
    "this host": ((rule(host="10.0.0.1"),), O.READ, True),
    "another host": ((rule(host="10.0.0.2"),), O.READ, False),
    "a network is no host": ((rule(host="10.0.0.0/8"),), O.READ, False),
    "nor is a beginning": ((rule(host="10.0.0.*"),), O.READ, False),
    "all operations": ((rule(operation=O.ALL),), O.ALTER_CONFIGS, True),
    "read implies describe": ((rule(),), O.DESCRIBE, True),
    "write implies describe": ((rule(operation=O.WRITE),), O.DESCRIBE, True),
    "delete implies describe": ((rule(operation=O.DELETE),), O.DESCRIBE, True),
    "alter implies describe": ((rule(operation=O.ALTER),), O.DESCRIBE, True),
    "create implies nothing": ((rule(operation=O.CREATE),), O.DESCRIBE, False),
    "altering configs implies describing them": ((rule(operation=O.ALTER_CONFIGS),), O.DESCRIBE_CONFIGS, True),
    "but not the topic": ((rule(operation=O.ALTER_CONFIGS),), O.DESCRIBE, False),
    "denied beside allowed": ((rule(), rule(permission=DENY)), O.READ, False),
    "denying one implies nothing": ((rule(), rule(operation=O.DESCRIBE, permission=DENY)), O.READ, True),
    "denying read leaves describe": ((rule(operation=O.ALL), rule(permission=DENY)), O.DESCRIBE, True),
    "denying all": ((rule(), rule(operation=O.ALL, permission=DENY)), O.READ, False),
    "denied elsewhere": ((rule(), rule(permission=DENY, host="10.0.0.9")), O.READ, True),
    "any name": ((rule("*"),), O.READ, True),
    "any name denied": ((rule(), rule("*", permission=DENY, who="User:*")), O.READ, False),
    "prefix": ((rule("ord", pattern=PREFIXED),), O.READ, True),
    "the whole name as prefix": ((rule("orders", pattern=PREFIXED),), O.READ, True),
    "a longer prefix": ((rule("orders-", pattern=PREFIXED),), O.READ, None),
    "a star as prefix is a letter": ((rule("*", pattern=PREFIXED),), O.READ, None),
    "denied by one of two prefixes": (
        (rule("o", pattern=PREFIXED), rule("ord", permission=DENY, pattern=PREFIXED)), O.READ, False,
    ),
}  # fmt: skip


@pytest.mark.spec("SEC-80")
@pytest.mark.parametrize(("rules", "operation", "expected"), CASES.values(), ids=CASES)
def test_decisions(rules: tuple[Rule, ...], operation: Operation, expected: bool | None) -> None:
    assert table(*rules).decide("User:alice", "10.0.0.1", operation, T, "orders") is expected


W = O.WRITE
ANY_CASES = {
    "nothing": ((rule(),), None),
    "a literal": ((rule(operation=W),), True),
    "a prefix": ((rule("ord", W, pattern=PREFIXED),), True),
    "all": ((rule("*", W),), True),
    "taken back on it": ((rule(operation=W), rule(operation=W, permission=DENY)), None),
    "taken back on a prefix": ((rule(operation=W), rule("o", W, DENY, pattern=PREFIXED)), None),
    "taken back on one of two": ((rule(operation=W), rule("b", W), rule("o", W, DENY, pattern=PREFIXED)), True),
    "a literal denial of a prefix's name": ((rule("o", W, pattern=PREFIXED), rule("o", W, DENY)), True),
    "a prefix taken back on it": ((rule("o", W, pattern=PREFIXED), rule("o", W, DENY, pattern=PREFIXED)), None),
    "a prefix taken back on a shorter one": (
        (rule("ord", W, pattern=PREFIXED), rule("o", W, DENY, pattern=PREFIXED)), None,
    ),
    "a prefix taken back on a longer one": (
        (rule("o", W, pattern=PREFIXED), rule("ord", W, DENY, pattern=PREFIXED)), True,
    ),
    "all taken back": ((rule("*", W), rule("*", W, DENY)), False),
    "to another": ((rule(operation=W, who="User:bob"),), None),
    "from elsewhere": ((rule(operation=W, host="10.0.0.9"),), None),
    "all operations": ((rule(operation=O.ALL),), True),
    "taken back from another": ((rule(operation=W), rule(operation=W, permission=DENY, who="User:bob")), True),
    "all denied elsewhere": ((rule(operation=W), rule("*", W, DENY, host="10.0.0.9")), True),
    "all denied": ((rule(operation=W), rule("*", O.ALL, DENY)), False),
    "all denied to another": ((rule(operation=W), rule("*", W, DENY, who="User:bob")), True),
}  # fmt: skip


@pytest.mark.spec("SEC-81")
@pytest.mark.parametrize(("rules", "expected"), ANY_CASES.values(), ids=ANY_CASES)
def test_writing_to_any_topic(rules: tuple[Rule, ...], expected: bool | None) -> None:
    assert table(*rules).decide_any("User:alice", "10.0.0.1", O.WRITE, T) is expected


@pytest.mark.spec("SEC-78")
def test_what_cannot_be_read_lets_nobody_in_and_taking_it_away_forgets_it() -> None:
    pattern = ResourcePattern(T, "orders", PatternType.LITERAL)
    damaged = table(rule("*")).with_entries({pattern: None})
    assert damaged.decide("User:alice", "h", O.READ, T, "orders") is False
    assert damaged.decide("User:alice", "h", O.READ, T, "others") is True
    assert damaged.with_entries({pattern: frozenset()}).decide("User:alice", "h", O.READ, T, "orders") is True
