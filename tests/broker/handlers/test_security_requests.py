"""Logins where none is due, ACLs and users changed, over a socket, on nodes in memory; a right taken from who waits."""

import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafkatool.broker.administration.acls import AclAdmin
from kafkatool.broker.administration.users import Upsertion, UserAdmin
from kafkatool.broker.embedded.secured.certificates import Authority
from kafkatool.broker.handlers.call import load_handlers
from kafkatool.broker.handlers.dispatch import Dispatcher
from kafkatool.broker.runtime.timer import Timer
from kafkatool.broker.security.acl_following import AclFollower
from kafkatool.broker.security.acl_table import AclTable
from kafkatool.broker.security.authorizer import Authorizer
from kafkatool.core.client.addresses import is_loopback
from kafkatool.core.errors import NodeExistsError
from kafkatool.core.model.acls import Entry, Operation, PatternType, Permission, ResourcePattern, ResourceType
from kafkatool.core.protocol.messages import alter_user_scram_credentials as altering
from kafkatool.core.protocol.messages import create_acls as creating
from kafkatool.core.protocol.messages import delete_acls as deleting
from kafkatool.core.protocol.messages import describe_acls as describing
from kafkatool.core.protocol.messages import describe_groups, fetch, sasl_authenticate, sasl_handshake
from kafkatool.core.protocol.messages.create_acls import AclCreation
from kafkatool.core.security import scram
from kafkatool.core.zookeeper.acl_znodes import AclZnode
from kafkatool.core.zookeeper.session import Op, TransactionError
from tests.broker.groups.test_administration import make_stable
from tests.broker.groups.test_coordinator import Stage
from tests.broker.handlers.served import Client, broker_of, handler_context
from tests.broker.network.raw_client import RawClient
from tests.broker.network.secured import ALICE, HANDSHAKE_1, authenticate, secured, tls_client
from tests.broker.replication.world import wanted, world
from tests.core.zookeeper.memory import MemoryEnsemble, MemoryZooKeeper
from tests.waiting import eventually

HANDLERS = load_handlers()


def grants(*given: tuple[ResourceType, str, Operation]) -> AclTable:
    table = AclTable()
    for kind, name, operation in given:
        entry = Entry("User:ANONYMOUS", "*", operation, Permission.ALLOW)
        table = table.with_entries({ResourcePattern(kind, name, PatternType.LITERAL): frozenset({entry})})
    return table


# --- logins ----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("SEC-62")
def test_where_no_login_is_due_its_requests_are_refused_and_the_connection_stays() -> None:
    with broker_of({17: HANDLERS[17], 36: HANDLERS[36]}, handler_context()) as client:
        for _ in range(2):
            for version in (0, 1):
                request = sasl_handshake.SaslHandshakeRequest(mechanism="PLAIN")
                told = client.call(sasl_handshake.API, version, request)
                assert (told.error_code, told.mechanisms) == (34, [])
            for version in (0, 1, 2):
                token = sasl_authenticate.SaslAuthenticateRequest(auth_bytes=b"\0alice\0x")
                refused = client.call(sasl_authenticate.API, version, token)
                assert (refused.error_code, refused.auth_bytes, refused.session_lifetime_ms) == (34, b"", 0)
                assert refused.error_message == "SaslAuthenticate request received after successful authentication"


@pytest.mark.spec("SEC-62")
@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT"])
def test_over_tls_and_behind_a_login_they_are_refused_too(protocol: str, tmp_path: Path) -> None:
    authority = Authority.open(tmp_path) if protocol == "SSL" else None
    timer = Timer("test")
    served = Dispatcher({17: HANDLERS[17], 36: HANDLERS[36]}, replace(handler_context(), timer=timer))
    with secured(protocol, authority, served) as server:
        client = RawClient(server.endpoints[0].port) if authority is None else tls_client(server, authority)
        with contextlib.closing(client):
            if authority is None:
                assert client.ask(HANDSHAKE_1)[4:6] == client.ask(authenticate(ALICE))[4:6] == b"\0\0"
            for _ in range(2):
                assert client.ask(HANDSHAKE_1)[4:6] == client.ask(authenticate(ALICE))[4:6] == (34).to_bytes(2)
    timer.close()


# --- ACLs ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def zk() -> MemoryZooKeeper:
    return MemoryZooKeeper(MemoryEnsemble())


@pytest.fixture
def authorizer() -> Authorizer:
    return Authorizer({"User:ANONYMOUS"}, allow_without_acl=False)


@pytest.fixture
def follower(zk: MemoryZooKeeper, authorizer: Authorizer) -> Iterator[AclFollower]:
    made = AclFollower(zk, authorizer)
    made.start()
    yield made
    made.stop()


GOOD = {
    "resource_type": ResourceType.TOPIC,
    "resource_name": "orders",
    "pattern_type": PatternType.LITERAL,
    "principal": "User:alice",
    "host": "*",
    "operation": Operation.READ,
    "permission_type": Permission.ALLOW,
}
WRONG: dict[str, dict[str, object]] = {
    "any type": {"resource_type": 1},
    "unknown type": {"resource_type": 99},
    "any pattern": {"pattern_type": 1},
    "match": {"pattern_type": 2},
    "unknown pattern": {"pattern_type": 9},
    "any operation": {"operation": 1},
    "unknown operation": {"operation": 77},
    "any permission": {"permission_type": 1},
    "unknown permission": {"permission_type": 8},
    "another cluster": {"resource_type": ResourceType.CLUSTER, "resource_name": "mine"},
    "no name": {"resource_name": ""},
    "a slash": {"resource_name": "a/b"},
    "no colon": {"principal": "alice"},
}


@pytest.mark.spec("SEC-88")
@pytest.mark.parametrize("case", WRONG)
def test_an_acl_that_cannot_be_made_is_refused_and_the_others_of_its_request_are_made(
    case: str, zk: MemoryZooKeeper, authorizer: Authorizer, follower: AclFollower
) -> None:
    admin = AclAdmin(zk, authorizer, follower, prefixed_allowed=True)
    with broker_of({30: HANDLERS[30]}, handler_context(authorizer=authorizer, acl_admin=admin)) as client:
        bad = AclCreation(**(GOOD | WRONG[case]))  # type: ignore[arg-type]
        good, prefixed = AclCreation(**GOOD), AclCreation(**(GOOD | {"pattern_type": PatternType.PREFIXED}))  # type: ignore[arg-type]
        request = creating.CreateAclsRequest(creations=[good, bad, prefixed])
        codes = [r.error_code for r in client.call(creating.API, 1, request).results]
    assert codes == [0, 42, 0]
    assert {pattern.name for pattern, _ in authorizer.table} == {"orders"}


@pytest.mark.spec("SEC-88", "SEC-89")
@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, {"orders", "*", "ord", "pay", "g"}),
        ({"resource_type": ResourceType.TOPIC}, {"orders", "*", "ord", "pay"}),
        ({"resource_name": "orders"}, {"orders"}),
        ({"resource_name": "orders", "pattern_type": PatternType.MATCH}, {"orders", "*", "ord"}),
        ({"resource_name": "ord", "pattern_type": PatternType.PREFIXED}, {"ord"}),
        ({"resource_name": "ord", "pattern_type": PatternType.LITERAL}, set()),
        ({"pattern_type": PatternType.PREFIXED}, {"ord", "pay"}),
        ({"principal": "User:bob"}, {"pay"}),
        ({"host": "10.0.0.9"}, {"g"}),
        ({"operation": Operation.WRITE}, {"ord"}),
        ({"permission_type": Permission.DENY}, {"*"}),
    ],
    ids=range(11),
)
def test_a_filter_selects_by_each_field_it_has_and_takes_away_just_that(
    fields: dict[str, object], found: set[str], zk: MemoryZooKeeper, authorizer: Authorizer, follower: AclFollower
) -> None:
    admin = AclAdmin(zk, authorizer, follower, prefixed_allowed=True)
    handlers = {key: HANDLERS[key] for key in (29, 30, 31)}
    with broker_of(handlers, handler_context(authorizer=authorizer, acl_admin=admin)) as client:
        made: tuple[dict[str, object], ...] = (
            {},
            {"resource_name": "*", "permission_type": Permission.DENY},
            {"resource_name": "ord", "pattern_type": PatternType.PREFIXED, "operation": Operation.WRITE},
            {"resource_name": "pay", "pattern_type": PatternType.PREFIXED, "principal": "User:bob"},
            {"resource_type": ResourceType.GROUP, "resource_name": "g", "host": "10.0.0.9"},
        )
        creations = [AclCreation(**(GOOD | one)) for one in made]  # type: ignore[arg-type]
        results = client.call(creating.API, 2, creating.CreateAclsRequest(creations=creations)).results
        assert [r.error_code for r in results] == [0] * 5
        anything = {"resource_type": 1, "pattern_type": PatternType.ANY, "operation": 1, "permission_type": 1}
        if "resource_name" in fields and "pattern_type" not in fields:
            anything["pattern_type"] = PatternType.LITERAL
        wanted_ = anything | fields
        told = client.call(describing.API, 2, describing.DescribeAclsRequest(**wanted_))  # type: ignore[arg-type]
        assert {r.resource_name for r in told.resources} == found
        one = deleting.DeleteAclsFilter(**wanted_)  # type: ignore[arg-type]
        (result,) = client.call(deleting.API, 2, deleting.DeleteAclsRequest(filters=[one])).filter_results
        assert {a.resource_name for a in result.matching_acls} == found
        assert {a.error_code for a in result.matching_acls} <= {0}
    assert {pattern.name for pattern, _ in authorizer.table} == {"orders", "*", "ord", "pay", "g"} - found


@pytest.mark.spec("SEC-88")
def test_below_2_0_no_prefixed_acl_is_made(zk: MemoryZooKeeper, authorizer: Authorizer, follower: AclFollower) -> None:
    admin = AclAdmin(zk, authorizer, follower, prefixed_allowed=False)
    with broker_of({30: HANDLERS[30]}, handler_context(authorizer=authorizer, acl_admin=admin)) as client:
        prefixed = AclCreation(**(GOOD | {"pattern_type": PatternType.PREFIXED}))  # type: ignore[arg-type]
        (told,) = client.call(creating.API, 1, creating.CreateAclsRequest(creations=[prefixed])).results
    assert told.error_code == 42
    assert not list(authorizer.table)


@pytest.mark.spec("SEC-89")
def test_the_same_entry_once_more_is_neither_written_nor_told(
    zk: MemoryZooKeeper, authorizer: Authorizer, follower: AclFollower, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, made = zk.commit, list[str]()

    def note(ops: Sequence[Op]) -> list[int | None]:
        done = commit(ops)
        made.extend(op.path for op in ops)
        return done

    monkeypatch.setattr(zk, "commit", note)
    admin = AclAdmin(zk, authorizer, follower, prefixed_allowed=True)
    with broker_of({30: HANDLERS[30]}, handler_context(authorizer=authorizer, acl_admin=admin)) as client:
        for _ in range(2):
            request = creating.CreateAclsRequest(creations=[AclCreation(**GOOD)])  # type: ignore[arg-type]
            (told,) = client.call(creating.API, 1, request).results
            assert told.error_code == 0
    node = zk.get("/kafka-acl/Topic/orders")
    assert node is not None and node.version == 0
    assert made == ["/kafka-acl/Topic/orders", "/kafka-acl-changes/acl_changes_"]


@pytest.mark.spec("SEC-89")
def test_of_many_who_add_at_once_nobody_loses_anything(
    zk: MemoryZooKeeper, authorizer: Authorizer, follower: AclFollower
) -> None:
    admin = AclAdmin(zk, authorizer, follower, prefixed_allowed=True)
    with broker_of({30: HANDLERS[30]}, handler_context(authorizer=authorizer, acl_admin=admin)) as first:
        second = AclAdmin(zk, authorizer, follower, prefixed_allowed=True)
        with broker_of({30: HANDLERS[30]}, handler_context(authorizer=authorizer, acl_admin=second)) as other:
            codes: list[int] = []

            def add(client: Client, start: int) -> None:
                for number in range(start, start + 20):
                    one = AclCreation(**(GOOD | {"principal": f"User:u{number}"}))  # type: ignore[arg-type]
                    (told,) = client.call(creating.API, 1, creating.CreateAclsRequest(creations=[one])).results
                    codes.append(told.error_code)

            threads = [threading.Thread(target=add, args=pair) for pair in ((first, 0), (other, 20))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert codes == [0] * 40
    pattern = ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL)
    node = zk.get(AclZnode.path(pattern))
    assert node is not None
    assert {e.principal for e in AclZnode.decode(pattern, node.data)} == {f"User:u{n}" for n in range(40)}
    assert node.version == 39, "each was one write"


@pytest.mark.spec("SEC-89")
def test_the_last_entry_takes_the_node_only_as_it_was_read(
    zk: MemoryZooKeeper, authorizer: Authorizer, follower: AclFollower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another adds an entry between the look and the deletion: the node stays, with that entry alone."""
    admin = AclAdmin(zk, authorizer, follower, prefixed_allowed=True)
    orders = ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL)
    entries = [Entry(f"User:{who}", "*", Operation.READ, Permission.ALLOW) for who in ("alice", "bob")]
    commit = zk.commit

    def meet_another(ops: Sequence[Op]) -> list[int | None]:
        monkeypatch.undo()
        zk.set(AclZnode.path(orders), AclZnode.encode(frozenset(entries)), -1)
        return commit(ops)

    handlers = {key: HANDLERS[key] for key in (30, 31)}
    with broker_of(handlers, handler_context(authorizer=authorizer, acl_admin=admin)) as client:
        client.call(creating.API, 2, creating.CreateAclsRequest(creations=[AclCreation(**GOOD)]))  # type: ignore[arg-type]
        monkeypatch.setattr(zk, "commit", meet_another)
        fields = {"resource_type": ResourceType.TOPIC, "pattern_type": PatternType.LITERAL, "operation": 1}
        one = deleting.DeleteAclsFilter(**fields, principal="User:alice", permission_type=1)  # type: ignore[arg-type]
        client.call(deleting.API, 2, deleting.DeleteAclsRequest(filters=[one]))
    node = zk.get(AclZnode.path(orders))
    assert node is not None and AclZnode.decode(orders, node.data) == frozenset(entries[1:])


@pytest.mark.spec("SEC-89")
def test_who_meets_other_writers_ten_times_is_refused_and_nothing_is_told(
    zk: MemoryZooKeeper, authorizer: Authorizer, follower: AclFollower, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = AclAdmin(zk, authorizer, follower, prefixed_allowed=True)
    tries: list[str] = []

    def meet_another(ops: Sequence[Op]) -> list[int | None]:
        tries.append(ops[0].path)
        raise TransactionError(0, NodeExistsError(ops[0].path))

    pauses: list[float] = []
    monkeypatch.setattr("kafkatool.core.operations.acls.time", SimpleNamespace(sleep=pauses.append))
    monkeypatch.setattr(zk, "commit", meet_another)
    with broker_of({30: HANDLERS[30]}, handler_context(authorizer=authorizer, acl_admin=admin)) as client:
        request = creating.CreateAclsRequest(creations=[AclCreation(**GOOD)])  # type: ignore[arg-type]
        (told,) = client.call(creating.API, 1, request).results
    assert told.error_code == -1
    assert tries == ["/kafka-acl/Topic/orders"] * 10
    assert len(pauses) >= 9 and all(0.1 <= pause <= 0.15 for pause in pauses), "100 to 150 ms apart"
    assert not list(authorizer.table)


# --- users -----------------------------------------------------------------------------------------------------------


def upsertion(
    user: str = "alice", mechanism: int = 1, iterations: int = 4096, salt: bytes = b"0123456789abcdef"
) -> altering.ScramCredentialUpsertion:
    salted = scram.SCRAM_SHA_256.salted_password(b"secret", salt, 4096)
    return altering.ScramCredentialUpsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted
    )


def altered(
    zk: MemoryZooKeeper, request: altering.AlterUserScramCredentialsRequest, *, is_active: bool = True
) -> dict[str, tuple[int, str | None]]:
    context = handler_context(user_admin=UserAdmin(zk), controller=SimpleNamespace(is_active=is_active))
    with broker_of({51: HANDLERS[51]}, context) as client:
        results = client.call(altering.API, 0, request).results
    return {one.user: (one.error_code, one.error_message) for one in results}


@pytest.mark.spec("SEC-66", "SEC-90")
def test_each_fault_of_a_user_leaves_him_whole_and_the_others_are_changed(zk: MemoryZooKeeper) -> None:
    deletion = altering.ScramCredentialDeletion
    request = altering.AlterUserScramCredentialsRequest(
        deletions=[deletion(name="absent", mechanism=1), deletion(name="both", mechanism=1)],
        upsertions=[
            *(upsertion("good"), upsertion("few", iterations=4095), upsertion("many", iterations=16385)),
            *(upsertion("salt", salt=b"0123456789abcde"), upsertion("odd", mechanism=3), upsertion("")),
            *(upsertion("twice"), upsertion("twice"), upsertion("both"), upsertion("half")),
            upsertion("half", mechanism=2, iterations=1),
        ],
    )
    assert altered(zk, request) == {
        "absent": (91, "Attempt to delete a user credential that does not exist"),
        "both": (92, "A user credential cannot be altered twice in the same request"),
        "good": (0, None),
        "few": (93, "Too few iterations"),
        "many": (93, "Too many iterations"),
        "salt": (93, "The salt is shorter than 16 bytes"),
        "odd": (33, "Unknown SCRAM mechanism"),
        "": (93, "Username must not be empty"),
        "twice": (92, "A user credential cannot be altered twice in the same request"),
        "half": (93, "Too few iterations"),
    }
    assert zk.children("/config/users") == ["good"]
    node = zk.get("/config/users/good")
    assert node is not None
    written = scram.Credential.decode(json.loads(node.data)["config"]["SCRAM-SHA-256"])
    assert written == scram.SCRAM_SHA_256.credential(b"secret", salt=b"0123456789abcdef", iterations=4096)
    last = altering.AlterUserScramCredentialsRequest(deletions=[deletion(name="good", mechanism=1)], upsertions=[])
    assert altered(zk, last) == {"good": (0, None)}
    emptied = zk.get("/config/users/good")
    assert emptied is not None and emptied.data == b'{"version":1,"config":{}}'


@pytest.mark.spec("SEC-90")
def test_only_the_controller_changes_users(zk: MemoryZooKeeper) -> None:
    request = altering.AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion()])
    assert altered(zk, request, is_active=False)["alice"][0] == 41
    assert not zk.children("/config/users")


@pytest.mark.spec("SEC-90")
def test_a_salted_password_is_not_taken_where_others_could_read_it(zk: MemoryZooKeeper) -> None:
    admin = UserAdmin(zk)
    one = upsertion()
    given = Upsertion(one.name, one.mechanism, one.iterations, bytes(one.salt), bytes(one.salted_password))
    (error,) = admin.alter([], [given], is_private=False).values()
    assert error is not None
    assert (error.code, str(error)) == (93, "The salted password is as good as the password: send it over TLS")
    assert not zk.children("/config/users")
    for address, private in (("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::1%lo", True)):
        assert is_loopback(address) == private
    for address in ("10.0.0.1", "::2", "fe80::1%eth0", "localhost", ""):
        assert not is_loopback(address)


# --- what is shown, and what waits -------------------------------------------------------------------------------------


@pytest.mark.spec("SEC-86")
def test_of_a_group_that_is_told_which_one_may_do_to_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "kafka.authorizer.logger")
    rights = Authorizer((), allow_without_acl=False)
    stage = Stage(tmp_path / "data")
    try:
        stage.lead()
        make_stable(stage)
        context = handler_context(groups=stage.coordinator, authorizer=rights)
        with broker_of({15: HANDLERS[15]}, context) as client:
            for operation, bits in (
                (Operation.DESCRIBE, 1 << Operation.DESCRIBE),
                (Operation.READ, 1 << Operation.READ | 1 << Operation.DESCRIBE),
                (Operation.DELETE, 1 << Operation.DELETE | 1 << Operation.DESCRIBE),
            ):
                rights.follow(grants((ResourceType.GROUP, "g", operation)))
                for version in (3, 4, 5):
                    request = describe_groups.DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
                    (told,) = client.call(describe_groups.API, version, request).groups
                    assert (told.error_code, told.authorized_operations) == (0, bits)
    finally:
        stage.close()
    assert not caplog.records, "asked for this way nothing is told as denied"


@pytest.mark.spec("SEC-87")
def test_a_right_that_is_taken_ends_at_the_next_fetch_of_a_session(tmp_path: Path) -> None:
    rights = Authorizer((), allow_without_acl=False)
    rights.follow(grants((ResourceType.TOPIC, "t", Operation.READ)))
    with world(tmp_path) as broker:
        broker.lead(epoch=2)
        broker.produce()
        context = handler_context(replica_manager=broker.manager, metadata_cache=broker.cache, authorizer=rights)
        with broker_of({1: HANDLERS[1]}, context) as client:

            def codes(session: int, epoch: int, *topics: fetch.FetchRequestTopic) -> tuple[int, list[int]]:
                request = fetch.FetchRequest(
                    max_wait_ms=0,
                    min_bytes=0,
                    max_bytes=1 << 20,
                    topics=list(topics),
                    session_id=session,
                    session_epoch=epoch,
                )
                answer = client.call(fetch.API, 11, request)
                assert answer.error_code == 0
                return answer.session_id, [p.error_code for t in answer.topics for p in t.partitions]

            opened = codes(0, 0, fetch.FetchRequestTopic(topic="t", partitions=[wanted(0, 0)]))
            assert opened[0] and opened[1] == [0]
            broker.produce()
            assert codes(opened[0], 1) == (opened[0], [0])
            rights.follow(grants((ResourceType.TOPIC, "another", Operation.READ)))
            broker.produce()
            assert codes(opened[0], 2) == (opened[0], [29])


@pytest.mark.spec("SEC-87")
def test_a_session_is_not_found_by_another_who_logs_in(tmp_path: Path) -> None:
    with world(tmp_path) as broker:
        broker.lead(epoch=2)
        context = handler_context(replica_manager=broker.manager, metadata_cache=broker.cache)
        timer = Timer("test")
        served = Dispatcher({1: HANDLERS[1]}, replace(context, timer=timer))
        with secured("SASL_PLAINTEXT", handle=served) as server:

            def ask(login: bytes, session: int, epoch: int) -> fetch.FetchResponse:
                topics = [fetch.FetchRequestTopic(topic="t", partitions=[wanted(0, 0)])] if not session else []
                request = fetch.FetchRequest(
                    max_wait_ms=0, min_bytes=0, max_bytes=1000, topics=topics, session_id=session, session_epoch=epoch
                )
                with contextlib.closing(Client(server.endpoints[0].port)) as client:
                    client.ask(HANDSHAKE_1)
                    assert client.ask(authenticate(login))[4:6] == b"\0\0"
                    answer: fetch.FetchResponse = client.call(fetch.API, 11, request)
                return answer

            opened = ask(ALICE, 0, 0)
            assert opened.error_code == 0 and opened.session_id
            assert ask(b"\0admin\0admin-secret", opened.session_id, 1).error_code == 70
            again = ask(ALICE, opened.session_id, 1)
            assert (again.error_code, again.session_id) == (0, opened.session_id)
        timer.close()


@pytest.mark.spec("SEC-87")
def test_a_right_that_is_taken_from_a_fetch_that_waits_is_taken(tmp_path: Path) -> None:
    rights = Authorizer((), allow_without_acl=False)
    rights.follow(grants((ResourceType.TOPIC, "t", Operation.READ)))
    with world(tmp_path) as broker:
        broker.lead(epoch=2)
        context = handler_context(replica_manager=broker.manager, metadata_cache=broker.cache, authorizer=rights)
        with broker_of({1: HANDLERS[1]}, context) as client:
            topics = [fetch.FetchRequestTopic(topic="t", partitions=[wanted(0, 0)])]
            request = fetch.FetchRequest(max_wait_ms=600_000, min_bytes=1, max_bytes=1 << 20, topics=topics)
            client.send_request(fetch.API, 11, request)
            eventually(lambda: bool(broker.manager.delayed.fetches), "the fetch waits")
            rights.follow(grants((ResourceType.TOPIC, "another", Operation.READ)))
            broker.produce()
            (topic,) = client.receive_response(fetch.API, 11).topics
    (told,) = topic.partitions
    assert (told.error_code, told.high_watermark, bytes(told.records or b"")) == (29, -1, b"")
