"""Quotas of users, clients and addresses in their nodes: what is written, found and refused."""

import json
import math
from collections.abc import Sequence

import pytest

from kafkatool.broker.administration.quotas import Change, QuotaAdmin, Wanted
from kafkatool.broker.administration.topics import AdminError
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.core.zookeeper.memory import MemoryEnsemble, MemoryZooKeeper

EXACT, DEFAULT, ANY = 0, 1, 2
Entity = Sequence[tuple[str, str | None]]
RATE = Change("producer_byte_rate", 1000.0)


@pytest.fixture
def zk() -> MemoryZooKeeper:
    return MemoryZooKeeper(MemoryEnsemble())


@pytest.fixture
def admin(zk: MemoryZooKeeper) -> QuotaAdmin:
    return QuotaAdmin(zk)


def configs(zk: MemoryZooKeeper) -> dict[str, dict[str, str]]:
    """Return the config of each node that has one, by its path below /config."""
    nodes = {path.removeprefix("/config/"): node.data for path, node in zk.nodes.items() if path.startswith("/config/")}
    return {path: json.loads(data)["config"] for path, data in nodes.items() if b'"config"' in data}


def changes(zk: MemoryZooKeeper) -> list[str]:
    """Return the entities that change nodes name."""
    nodes = [(path, node) for path, node in zk.nodes.items() if path.startswith("/config/changes/")]
    return [json.loads(node.data)["entity_path"] for _, node in sorted(nodes)]


@pytest.mark.spec("ADM-77")
@pytest.mark.parametrize(
    ("entity", "path"),
    [
        ([("user", "alice")], "users/alice"),
        ([("user", "a b+*/é~")], "users/a%20b%2B%2A%2F%C3%A9%7E"),
        ([("user", None)], "users/<default>"),
        ([("client-id", "c*")], "clients/c%2A"),
        ([("client-id", None)], "clients/<default>"),
        ([("client-id", "c"), ("user", "u")], "users/u/clients/c"),
        ([("user", None), ("client-id", None)], "users/<default>/clients/<default>"),
    ],
    ids=lambda value: value.replace("/", "_") if isinstance(value, str) else "",
)
def test_each_entity_has_its_node_and_a_change_is_one_write_and_one_notification(
    admin: QuotaAdmin, zk: MemoryZooKeeper, entity: Entity, path: str
) -> None:
    every = [
        RATE,
        Change("consumer_byte_rate", 5.0),
        Change("request_percentage", 12.5),
        Change("controller_mutation_rate", 0.5),
    ]
    admin.change(entity, every, validate_only=False)
    assert configs(zk) == {
        path: {
            "producer_byte_rate": "1000",
            "consumer_byte_rate": "5",
            "request_percentage": "12.5",
            "controller_mutation_rate": "0.5",
        }
    }
    assert zk.nodes[f"/config/{path}"].version == 0
    assert changes(zk) == [path]
    assert admin.find([], strict=False) == [(dict(entity), {c.key: c.value for c in every})]


@pytest.mark.spec("ADM-77")
def test_addresses_have_their_own_key(admin: QuotaAdmin, zk: MemoryZooKeeper) -> None:
    for name, path in (("10.0.0.1", "ips/10.0.0.1"), (None, "ips/<default>")):
        admin.change([("ip", name)], [Change("connection_creation_rate", 7.0)], validate_only=False)
        assert configs(zk)[path] == {"connection_creation_rate": "7"}
        assert changes(zk)[-1] == path
        assert ({"ip": name}, {"connection_creation_rate": 7.0}) in admin.find([], strict=False)


@pytest.mark.spec("ADM-77", "ADM-78")
def test_a_change_is_merged_and_what_is_no_quota_stays(admin: QuotaAdmin, zk: MemoryZooKeeper) -> None:
    credential = {"SCRAM-SHA-256": "salt=x", "producer_byte_rate": "1", "consumer_byte_rate": "2"}
    zk.create("/config/users/bob", json.dumps({"version": 1, "config": credential}).encode(), make_parents=True)
    admin.change([("user", "bob")], [RATE, Change("consumer_byte_rate", None)], validate_only=False)
    assert configs(zk) == {"users/bob": {"SCRAM-SHA-256": "salt=x", "producer_byte_rate": "1000"}}
    assert zk.nodes["/config/users/bob"].version == 1, "one write"
    admin.change([("user", "bob")], [Change("producer_byte_rate", 2.0)], validate_only=True)
    assert configs(zk)["users/bob"]["producer_byte_rate"] == "1000"
    assert changes(zk) == ["users/bob"]
    admin.change([("user", "bob")], [Change("producer_byte_rate", None)], validate_only=False)
    assert configs(zk) == {"users/bob": {"SCRAM-SHA-256": "salt=x"}}
    assert admin.find([], strict=False) == [], "only who has a quota is told of"


@pytest.mark.spec("ADM-78")
@pytest.mark.parametrize(
    ("entity", "wanted", "code"),
    [
        pytest.param([], [RATE], 42, id="empty-entity"),
        pytest.param([("", "x")], [RATE], 42, id="empty-type"),
        pytest.param([("user", "")], [RATE], 42, id="empty-name"),
        pytest.param([("user", "a"), ("user", "b")], [RATE], 42, id="type-twice"),
        pytest.param([("ip", "1.2.3.4"), ("user", "a")], [Change("connection_creation_rate", 1)], 42, id="ip-and-user"),
        pytest.param(
            [("ip", None), ("client-id", "a")], [Change("connection_creation_rate", 1)], 42, id="ip-and-client"
        ),
        pytest.param([("group", "a")], [RATE], 35, id="other-type"),
        pytest.param([("user", "a")], [Change("nonsense", 1)], 42, id="unknown-key"),
        pytest.param([("user", "a")], [Change("connection_creation_rate", 1)], 42, id="key-of-addresses"),
        pytest.param([("ip", "1.2.3.4")], [RATE], 42, id="key-of-users"),
        pytest.param([("user", "a")], [RATE, RATE], 42, id="key-twice"),
        pytest.param([("user", "a")], [Change("producer_byte_rate", 0)], 42, id="zero"),
        pytest.param([("user", "a")], [Change("request_percentage", -0.5)], 42, id="negative"),
        pytest.param([("user", "a")], [Change("request_percentage", math.inf)], 42, id="infinite"),
        pytest.param([("user", "a")], [Change("consumer_byte_rate", 1.5)], 42, id="no-whole-number"),
    ],
)
def test_what_is_refused_is_not_written(
    admin: QuotaAdmin, zk: MemoryZooKeeper, entity: Entity, wanted: list[Change], code: int
) -> None:
    with pytest.raises(AdminError) as refused:
        admin.change(entity, wanted, validate_only=False)
    assert refused.value.code == code
    assert configs(zk) == {} and changes(zk) == []


@pytest.fixture
def several(admin: QuotaAdmin) -> QuotaAdmin:
    """Have quotas of users, clients, both, and the default of each."""
    for entity in ALL:
        admin.change(list(entity.items()), [RATE], validate_only=False)
    return admin


Names = dict[str, str | None]
U: Names = {"user": "u"}
UD: Names = {"user": None}
C: Names = {"client-id": "c"}
UC, UDC = U | C, UD | C
ALL = [U, UD, C, UC, UDC]


@pytest.mark.spec("ADM-78")
@pytest.mark.parametrize(
    ("wanted", "strict", "found"),
    [
        pytest.param([], False, ALL, id="all"),
        pytest.param([("user", EXACT, "u")], False, [U, UC], id="a-user"),
        pytest.param([("user", EXACT, "u")], True, [U], id="a-user-alone"),
        pytest.param([("user", DEFAULT, None)], False, [UD, UDC], id="the-default"),
        pytest.param([("user", ANY, None)], True, [U, UD], id="named-or-default"),
        pytest.param([("user", ANY, None), ("client-id", EXACT, "c")], True, [UC, UDC], id="both-types"),
        pytest.param([("client-id", EXACT, "c")], True, [C], id="a-client-alone"),
        pytest.param([("user", EXACT, "other")], False, [], id="nobody"),
    ],
)
def test_entities_are_found_by_each_type_asked_for(
    several: QuotaAdmin, wanted: list[tuple[str, int, str | None]], strict: bool, found: list[Names]
) -> None:
    told = [entity for entity, _ in several.find([Wanted(*one) for one in wanted], strict=strict)]
    key = lambda entity: sorted((kind, name or "") for kind, name in entity.items())  # noqa: E731
    assert sorted(told, key=key) == sorted(found, key=key)


@pytest.mark.spec("ADM-78")
@pytest.mark.parametrize(
    ("types", "code"),
    [(["user", "user"], 42), ([""], 42), (["group"], 35), (["ip", "user"], 42)],
    ids=["twice", "empty", "other", "ip-and-user"],
)
def test_a_description_of_no_such_types_is_refused(admin: QuotaAdmin, types: list[str], code: int) -> None:
    with pytest.raises(AdminError) as refused:
        admin.find([Wanted(kind, ANY, None) for kind in types], strict=False)
    assert refused.value.code is ErrorCode(code)


@pytest.mark.spec("ADM-78")
def test_a_value_that_is_no_number_hides_no_other(admin: QuotaAdmin, zk: MemoryZooKeeper) -> None:
    broken = {"producer_byte_rate": "fast", "consumer_byte_rate": "5"}
    zk.create("/config/users/a", json.dumps({"version": 1, "config": broken}).encode(), make_parents=True)
    zk.create("/config/users/b", b"no json", make_parents=True)
    assert admin.find([], strict=False) == [({"user": "a"}, {"consumer_byte_rate": 5.0})]
