"""What each API asks for, row by row: by an Allow, a Deny, what implies it, prefixes, another host, a super user (SEC-84).

Handlers are left out: what gets to them is what is permitted. ``test_authorization`` has what is told of the rest, and the
APIs whose answers, not requests, depend on rights.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final

import pytest

from kafkatool.broker.handlers.call import Call, load_handlers
from kafkatool.broker.handlers.error_reply import error_reply
from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.security.acl_table import AclTable
from kafkatool.broker.security.authorizer import Authorizer
from kafkatool.core.model.acls import (
    CLUSTER_NAME,
    Entry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.broker.handlers.served import broker_of, handler_context, live, state, update
from tests.broker.handlers.test_authorization import ROWS
from tests.core.protocol.apis import APIS

Need = tuple[ResourceType, str, Operation]
ME: Final = "User:ANONYMOUS"
HERE: Final = "127.0.0.1"


def on(kind: ResourceType, operation: Operation, *names: str) -> list[Need]:
    return [(kind, name, operation) for name in names]


def topic(operation: Operation, *names: str) -> list[Need]:
    return on(ResourceType.TOPIC, operation, *names or ("t",))


def group(operation: Operation, *names: str) -> list[Need]:
    return on(ResourceType.GROUP, operation, *names or ("g",))


def cluster(operation: Operation) -> list[Need]:
    return on(ResourceType.CLUSTER, operation, CLUSTER_NAME)


def transaction(operation: Operation) -> list[Need]:
    return on(ResourceType.TRANSACTIONAL_ID, operation, "tx")


O = Operation  # noqa: E741  # so that a row fits into a line
NEEDS: dict[int, list[Need]] = {
    0: topic(O.WRITE),
    2: topic(O.DESCRIBE),
    4: cluster(O.CLUSTER_ACTION),
    5: cluster(O.CLUSTER_ACTION),
    6: cluster(O.CLUSTER_ACTION),
    7: cluster(O.CLUSTER_ACTION),
    8: group(O.READ) + topic(O.READ),
    9: group(O.DESCRIBE) + topic(O.DESCRIBE),
    10: group(O.DESCRIBE),
    11: group(O.READ),
    12: group(O.READ),
    13: group(O.READ),
    14: group(O.READ),
    15: group(O.DESCRIBE, "g", "h"),
    19: topic(O.CREATE),
    20: topic(O.DELETE, "t", "none"),
    21: topic(O.DELETE),
    23: topic(O.DESCRIBE),
    24: cluster(O.CLUSTER_ACTION),
    25: transaction(O.WRITE) + group(O.READ),
    26: transaction(O.WRITE),
    27: cluster(O.CLUSTER_ACTION),
    28: transaction(O.WRITE) + group(O.READ) + topic(O.READ),
    29: cluster(O.DESCRIBE),
    30: cluster(O.ALTER),
    31: cluster(O.ALTER),
    32: topic(O.DESCRIBE_CONFIGS) + cluster(O.DESCRIBE_CONFIGS),
    33: topic(O.ALTER_CONFIGS) + cluster(O.ALTER_CONFIGS),
    37: topic(O.ALTER),
    42: group(O.DELETE),
    43: cluster(O.ALTER),
    44: topic(O.ALTER_CONFIGS) + cluster(O.ALTER_CONFIGS),
    45: cluster(O.ALTER),
    46: cluster(O.DESCRIBE),
    47: group(O.DELETE) + topic(O.READ),
    48: cluster(O.DESCRIBE_CONFIGS),
    49: cluster(O.ALTER_CONFIGS),
    51: cluster(O.ALTER),
    61: topic(O.READ),
    65: transaction(O.DESCRIBE),
}
"""What the requests of ``ROWS`` ask for; all of it is needed."""
INSTEAD: dict[int, list[Need]] = {19: cluster(O.CREATE), 23: cluster(O.CLUSTER_ACTION)}
"""What is as good."""
BY_ANSWER = {1, 3, 16, 34, 35, 50, 66, 22}
"""Decided while the answer is made, or by any of several rights: ``test_authorization`` has them one by one."""
NOTHING = {17, 18, 36, 60}
IMPLIES: Mapping[Operation, tuple[Operation, ...]] = {
    O.DESCRIBE: (O.READ, O.WRITE, O.DELETE, O.ALTER),
    O.DESCRIBE_CONFIGS: (O.ALTER_CONFIGS,),
}


def entries(
    needs: Iterable[Need],
    permission: Permission = Permission.ALLOW,
    *,
    who: str = ME,
    host: str = "*",
    pattern: PatternType = PatternType.LITERAL,
    name: str | None = None,
) -> list[tuple[ResourcePattern, Entry]]:
    """``name`` None: the resources' own; for a prefix their first letter."""
    made = []
    for kind, own, operation in needs:
        chosen = own[:1] if name is None and pattern is PatternType.PREFIXED else name or own
        made.append((ResourcePattern(kind, chosen, pattern), Entry(who, host, operation, permission)))
    return made


def table(*given: tuple[ResourcePattern, Entry]) -> AclTable:
    found: dict[ResourcePattern, frozenset[Entry]] = {}
    for pattern, entry in given:
        found[pattern] = found.get(pattern, frozenset()) | {entry}
    return AclTable().with_entries(found)


def cases(needs: list[Need]) -> Iterable[tuple[str, AclTable, bool]]:
    """Yield what the entries are, and whether all of the request is permitted by them."""
    allowed = entries(needs)
    yield "no entry", table(), False
    yield "an Allow", table(*allowed), True
    yield "All", table(*entries([(kind, name, O.ALL) for kind, name, _ in needs])), True
    yield "this host", table(*entries(needs, host=HERE)), True
    yield "another host", table(*entries(needs, host="10.9.8.7")), False
    yield "a name of this host", table(*entries(needs, host="localhost")), False
    yield "everybody", table(*entries(needs, who="User:*")), True
    yield "somebody else", table(*entries(needs, who="User:anonymous")), False
    yield "a prefix", table(*entries(needs, pattern=PatternType.PREFIXED)), True
    yield "star", table(*entries(needs, name="*")), True
    others = [(kind, name, O.DESCRIBE if operation is not O.DESCRIBE else O.CREATE) for kind, name, operation in needs]
    yield "another operation", table(*entries(others)), False
    for need in needs:
        kind, name, operation = need
        rest = [one for one in needs if one != need]
        yield f"all but {need}", table(*entries(rest)), False
        yield f"a Deny of {need}", table(*allowed, *entries([need], Permission.DENY)), False
        yield f"a Deny of star for {need}", table(*allowed, *entries([need], Permission.DENY, name="*")), False
        yield f"a Deny of All for {need}", table(*allowed, *entries([(kind, name, O.ALL)], Permission.DENY)), False
        elsewhere = entries([need], Permission.DENY, host="10.9.8.7")
        yield f"a Deny of {need} for another host", table(*allowed, *elsewhere), True
        for implying in IMPLIES.get(operation, ()):
            instead = (kind, name, implying)
            yield f"{implying.name} instead of {need}", table(*entries([*rest, instead])), True
            yield f"a Deny of {implying.name}", table(*allowed, *entries([instead], Permission.DENY)), True


@pytest.mark.spec("SEC-84")
def test_every_api_has_its_row() -> None:
    assert {*NEEDS, *BY_ANSWER, *NOTHING} == load_handlers().keys()
    assert not (NEEDS.keys() & BY_ANSWER | NEEDS.keys() & NOTHING)


@pytest.mark.spec("SEC-84", "SEC-80", "SEC-83")
@pytest.mark.parametrize("key", sorted(NEEDS), ids=lambda key: APIS[key].name)
def test_what_an_api_asks_for_is_enough_and_all_of_it_is_needed(key: int) -> None:
    api, seen = APIS[key], list[Any]()
    version = load_handlers()[key].versions[1]

    def note(request: Any, call: Call) -> Any:
        seen.append(request)
        return error_reply(call.api.response, request, ErrorCode.NONE, None)

    served = replace(load_handlers()[key], handle=note, charge=None)
    cache = MetadataCache(1)
    cache.update(update(state("t", 0, 1, [1]), brokers=[live(1)]))
    parts = {"metadata_cache": cache, "controller": SimpleNamespace(is_active=True)}
    fields, told, refused = ROWS[key]
    rights, all_rights = Authorizer((), allow_without_acl=False), Authorizer({ME}, allow_without_acl=False)
    request = api.request(**fields)
    with broker_of({key: served}, handler_context(authorizer=all_rights, **parts)) as client:
        client.call(api, version, request)
    (whole,) = seen
    with broker_of({key: served}, handler_context(authorizer=rights, **parts)) as client:
        instead = [("what is as good", table(*entries(INSTEAD[key])), True)] if key in INSTEAD else []
        for title, acls, is_permitted in (*cases(NEEDS[key]), *instead):
            seen.clear()
            rights.follow(acls)
            answer = client.call(api, version, request)
            assert (seen == [whole]) == is_permitted, title
            if not seen:
                assert told(answer) == refused or len(NEEDS[key]) > 1, title
