"""The group APIs over raw sockets: what the handlers check and how errors are laid out; the coordinator is the real one."""

import contextlib
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkatool.broker.groups.coordinator import GroupCoordinator
from kafkatool.broker.handlers.call import load_handlers
from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.settings.protocol_versions import PROTOCOL_VERSIONS
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import heartbeat, join_group, offset_commit, offset_fetch, sync_group
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.broker.groups.test_coordinator import Stage
from tests.broker.handlers.served import Client, broker_of, handler_context, live, state, update
from tests.waiting import eventually

GROUP_KEYS = (8, 9, 11, 12, 14)
SERVED = {key: s for key, s in load_handlers().items() if key in GROUP_KEYS}


def known_topics() -> MetadataCache:
    cache = MetadataCache(1)
    cache.update(update(state("t", 0, 1, [1]), state("t", 1, 1, [1]), brokers=[live(1)]))
    return cache


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path / "data")
    yield made
    made.close()


@pytest.fixture
def client(stage: Stage) -> Iterator[Client]:
    context = handler_context(groups=stage.coordinator, metadata_cache=known_topics(), config=stage.config)
    with broker_of(SERVED, context) as made:
        yield made


def join(client: Client, version: int = 3, group: str = "g", member_id: str = "", **fields: Any) -> Any:
    wanted: dict[str, Any] = {
        "session_timeout_ms": 300_000,
        "rebalance_timeout_ms": 300_000,
        "protocol_type": "consumer",
        "protocols": [join_group.JoinGroupProtocol(name="range", metadata=b"r")],
    }
    request = join_group.JoinGroupRequest(group_id=group, member_id=member_id, **(wanted | fields))
    return client.call(join_group.API, version, request)


def commit(client: Client, version: int, *partitions: tuple[str, int], **fields: Any) -> dict[tuple[str, int], int]:
    timestamp = fields.pop("commit_timestamp", -1)
    request = offset_commit.OffsetCommitRequest(
        group_id="g",
        topics=[
            offset_commit.OffsetCommitRequestTopic(
                topic=topic,
                partitions=[
                    offset_commit.OffsetCommitRequestPartition(
                        partition=number,
                        committed_offset=5,
                        committed_leader_epoch=4,
                        commit_timestamp=timestamp,
                        committed_metadata="m",
                    )
                ],
            )
            for topic, number in partitions
        ],
        **fields,
    )
    answer = client.call(offset_commit.API, version, request)
    return {(t.topic, p.partition): p.error_code for t in answer.topics for p in t.partitions}


# --- JoinGroup -------------------------------------------------------------------------------------------------


@pytest.mark.spec("GRP-21", "GRP-8", "GRP-22")
def test_a_refused_join_says_why_in_the_order_of_the_checks(stage: Stage, client: Client) -> None:
    unfit: dict[str, Any] = {"protocol_type": "", "session_timeout_ms": 1}  # more is wrong than what is told

    def refusal(group: str = "g") -> set[int]:
        answers = [join(client, group=group, member_id=member_id, **unfit) for member_id in ("", "m")]
        assert [answer.member_id for answer in answers] == ["", "m"]
        for a in answers:
            assert (a.generation_id, a.protocol_name, a.leader, a.members) == (-1, "", "", [])
        return {a.error_code for a in answers}

    assert (refusal(""), refusal()) == ({24}, {16})
    stage.lead()
    assert refusal() == {26}
    assert join(client, session_timeout_ms=1_800_001).error_code == 26
    assert join(client, member_id="stranger", **unfit).error_code == 26, "before that it is not known"
    assert stage.coordinator.groups.get("g") is None, "and nothing is made"
    refused = join(client, member_id="stranger", protocol_type="")
    assert (refused.error_code, refused.member_id) == (25, "stranger")
    assert (refused.generation_id, refused.protocol_name, refused.leader, refused.members) == (-1, "", "", [])
    assert join(client, protocol_type="").error_code == 23
    assert join(client).error_code == 0
    assert join(client, protocol_type="connect").error_code == 23
    assert join(client, member_id="stranger").error_code == 25


@pytest.mark.spec("GRP-23", "GRP-24", "GRP-31")
def test_member_ids_begin_with_who_the_client_says_it_is(stage: Stage, client: Client) -> None:
    stage.lead()
    uuid = "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"
    dynamic = join(client)
    assert re.fullmatch(f"test-{uuid}", dynamic.member_id)
    assert [m.member_id for m in dynamic.members] == [dynamic.leader] == [dynamic.member_id]
    held = stage.coordinator.groups.get("g")
    assert held is not None and held.group.members[dynamic.member_id].client_host == "/127.0.0.1"
    static = join(client, version=5, group="h", group_instance_id="row-7")
    assert re.fullmatch(f"row-7-{uuid}", static.member_id)
    assert [m.group_instance_id for m in static.members] == ["row-7"]
    pending = join(client, version=4, group="i")
    assert pending.error_code == 79 and re.fullmatch(f"test-{uuid}", pending.member_id)
    assert join(client, version=4, group="i", member_id=pending.member_id).error_code == 0


@pytest.mark.spec("GRP-24")
@pytest.mark.parametrize("version", range(8))
def test_a_first_join_is_admitted_at_once_below_version_4(stage: Stage, client: Client, version: int) -> None:
    stage.lead()
    first = join(client, version=version)
    held = stage.coordinator.groups.get("g")
    assert held is not None
    if version < 4:
        assert first.error_code == 0 and list(held.group.members) == [first.member_id]
    else:
        assert first.error_code == 79 and not held.group.members
        none = "" if version < 7 else None
        assert (first.generation_id, first.protocol_name, first.leader, first.members) == (-1, none, "", [])
        assert join(client, version=version, member_id=first.member_id).error_code == 0
        assert list(held.group.members) == [first.member_id]


@pytest.mark.spec("GRP-31", "GRP-41")
def test_a_members_type_and_protocol_are_told_and_asked_for_in_the_newest_versions(
    stage: Stage, client: Client
) -> None:
    """KIP-559: an assignment is for who means the same group, in the same way to share it out."""
    stage.lead()
    member_id = join(client, version=6).member_id
    joined = join(client, version=7, member_id=member_id)
    assert (joined.error_code, joined.protocol_type, joined.protocol_name) == (0, "consumer", "range")
    refused = join(client, version=7, protocol_type="connect")
    assert (refused.error_code, refused.protocol_type, refused.protocol_name) == (23, None, None)

    def synced(version: int, kind: str | None, protocol: str | None, generation: int = 1) -> tuple[Any, ...]:
        request = sync_group.SyncGroupRequest(
            group_id="g",
            generation_id=generation,
            member_id=member_id,
            protocol_type=kind,
            protocol_name=protocol,
            assignments=[sync_group.SyncGroupAssignment(member_id=member_id, assignment=b"mine")],
        )
        answer = client.call(sync_group.API, version, request)
        return answer.error_code, answer.protocol_type, answer.protocol_name, answer.assignment

    for kind, protocol in ((None, "range"), ("consumer", None), ("connect", "range"), ("consumer", "roundrobin")):
        assert synced(5, kind, protocol) == (23, None, None, b"")
    assert synced(5, "connect", "range", generation=2) == (22, None, None, b""), "its generation is looked at before"
    assert synced(5, "consumer", "range") == (0, "consumer", "range", b"mine")
    assert synced(5, "consumer", "roundrobin") == (23, None, None, b""), "of a stable group, too"
    assert synced(4, "connect", "roundrobin") == (0, None, None, b"mine"), "not sent below version 5"


class NoStaticMembers:
    """Stands for the coordinator below protocol version 2.3; using anything else of it fails."""

    static_members_allowed = False


@pytest.mark.spec("GRP-36")
@pytest.mark.parametrize("protocol", PROTOCOL_VERSIONS)
def test_static_members_need_protocol_version_2_3(stage: Stage, protocol: str) -> None:
    config = type(stage.config).from_properties({**stage.config.properties, "inter.broker.protocol.version": protocol})
    coordinator = GroupCoordinator(config, stage.replica, stage.metadata, stage.scheduler)  # type: ignore[arg-type]
    assert coordinator.static_members_allowed is (protocol == "2.3")


@pytest.mark.spec("GRP-36", "GRP-46")
def test_an_instance_id_is_refused_before_anything_else_is_looked_at() -> None:
    with broker_of(SERVED, handler_context(groups=NoStaticMembers(), metadata_cache=known_topics())) as client:
        assert join(client, version=5, group_instance_id="i").error_code == 35
        named: dict[str, Any] = {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": "i"}
        sync = sync_group.SyncGroupRequest(assignments=[], **named)
        assert client.call(sync_group.API, 3, sync).error_code == 35
        assert client.call(heartbeat.API, 3, heartbeat.HeartbeatRequest(**named)).error_code == 35
        assert commit(client, 7, ("t", 0), ("gone", 0), group_instance_id="i") == {("t", 0): 35, ("gone", 0): 35}


@pytest.mark.spec("GRP-35")
def test_the_connection_of_an_older_parked_request_is_closed(stage: Stage) -> None:
    context = handler_context(groups=stage.coordinator, metadata_cache=known_topics(), config=stage.config)
    with broker_of(SERVED, context) as client, contextlib.ExitStack() as others:
        stage.lead()
        assert join(client).error_code == 0
        first, second = (Client(client.socket.getpeername()[1]) for _ in range(2))
        others.callback(first.close)
        others.callback(second.close)
        request = join_group.JoinGroupRequest(
            group_id="g",
            member_id="",
            session_timeout_ms=300_000,
            rebalance_timeout_ms=300_000,
            protocol_type="consumer",
            protocols=[join_group.JoinGroupProtocol(name="range", metadata=b"r")],
        )
        first.send_request(join_group.API, 3, request)
        owned = stage.coordinator.groups.get("g")
        assert owned is not None
        eventually(lambda: len(owned.group.members) == 2, "the second member to be admitted")
        newcomer = list(owned.group.members)[1]
        second.send_request(join_group.API, 3, replace(request, member_id=newcomer))
        assert first.is_closed_by_server()
        leader = join(client, member_id=next(iter(owned.group.members)))
        answer = second.receive_response(join_group.API, 3)
        assert (answer.error_code, answer.member_id, answer.leader) == (0, newcomer, leader.member_id)
        third = Client(client.socket.getpeername()[1])
        others.callback(third.close)
        follows, leads = (
            sync_group.SyncGroupRequest(
                group_id="g", generation_id=answer.generation_id, member_id=member_id, assignments=[]
            )
            for member_id in (newcomer, leader.member_id)
        )
        second.send_request(sync_group.API, 1, follows)
        eventually(lambda: owned.group.members[newcomer].sync is not None, "the SyncGroup to be parked")
        third.send_request(sync_group.API, 1, follows)
        assert second.is_closed_by_server()
        assert client.call(sync_group.API, 1, leads).error_code == 0
        assert third.receive_response(sync_group.API, 1).error_code == 0


@pytest.mark.spec("GRP-44")
def test_whose_connection_is_closed_is_a_member_until_its_session_ends(stage: Stage, client: Client) -> None:
    stage.lead()
    other = Client(client.socket.getpeername()[1])
    try:
        member_id = join(other, session_timeout_ms=600_000).member_id
        request = sync_group.SyncGroupRequest(group_id="g", generation_id=1, member_id=member_id, assignments=[])
        assert other.call(sync_group.API, 1, request).error_code == 0
    finally:
        other.close()
    owned = stage.coordinator.groups.get("g")
    assert owned is not None
    for _ in range(20):  # answered on other connections since
        assert commit(client, 7, ("t", 0)) == {("t", 0): 25}
        assert list(owned.group.members) == [member_id]
    assert owned.deadline is not None
    stage.passed_ms += 600_000
    stage.coordinator.groups.on_time(owned)
    assert not owned.group.members


@pytest.mark.spec("GRP-21", "GRP-22")
def test_the_bounds_of_the_session_and_any_kind_of_group_with_any_bytes_are_taken(client: Client, stage: Stage) -> None:
    stage.lead()
    assert join(client, session_timeout_ms=9).error_code == 26
    opaque = bytes(range(256))
    protocols = [join_group.JoinGroupProtocol(name="whatever", metadata=opaque)]
    for group, session in (("least", 10), ("most", 1_800_000)):
        joined = join(client, group=group, session_timeout_ms=session, protocol_type="connect", protocols=protocols)
        assert (joined.error_code, joined.protocol_name) == (0, "whatever")
        assert [bytes(m.metadata) for m in joined.members] == [opaque]
    assert join(client, group="most", protocol_type="connect", protocols=[]).error_code == 23
    entries = [sync_group.SyncGroupAssignment(member_id=joined.member_id, assignment=opaque)]
    request = sync_group.SyncGroupRequest(
        group_id="most", generation_id=1, member_id=joined.member_id, assignments=entries
    )
    assert bytes(client.call(sync_group.API, 1, request).assignment) == opaque
    stage.leave(joined.member_id, "most")
    assert join(client, group="most").error_code == 0, "once it is empty it takes another kind"


# --- OffsetCommit ----------------------------------------------------------------------------------------------


@pytest.mark.spec("GRP-46")
def test_partitions_that_do_not_exist_are_refused_and_the_rest_goes_on(stage: Stage, client: Client) -> None:
    asked = (("t", 0), ("gone", 0), ("t", 9), ("t", 1))
    assert commit(client, 7, *asked) == {("t", 0): 16, ("gone", 0): 3, ("t", 9): 3, ("t", 1): 16}
    stage.lead()
    assert commit(client, 7, ("t", 0), ("gone", 0), ("t", 1)) == {("t", 0): 0, ("gone", 0): 3, ("t", 1): 0}
    assert stage.fetch()[1] == {TopicPartition("t", 0): 5, TopicPartition("t", 1): 5}


@pytest.mark.spec("GRP-46")
def test_with_no_partition_left_the_group_is_not_looked_at() -> None:
    groups = SimpleNamespace(static_members_allowed=True)
    with broker_of(SERVED, handler_context(groups=groups, metadata_cache=known_topics())) as client:
        assert commit(client, 7, ("gone", 0)) == {("gone", 0): 3}


@pytest.mark.spec("GRP-49")
def test_commit_and_expiry_times_come_from_the_version_that_has_them(stage: Stage, client: Client) -> None:
    stage.lead()
    times = []
    before = int(time.time() * 1000)
    for version, fields in ((1, {"commit_timestamp": 77}), (1, {}), (2, {"retention_time_ms": 5000}), (4, {}), (5, {})):
        assert commit(client, version, ("t", 0), **fields) == {("t", 0): 0}
        value = stage.coordinator.fetch_offsets("g", None).offsets[TopicPartition("t", 0)]
        times.append((value.commit_timestamp_ms, value.expire_timestamp_ms))
    after = int(time.time() * 1000)
    assert times[0] == (77, None)
    assert all(before <= committed <= after for committed, _ in times[1:])
    expiry = times[2][1]
    assert expiry is not None and before + 5000 <= expiry <= after + 5000
    assert [times[i][1] for i in (1, 3, 4)] == [None, None, None]
    for version in (2, 3, 4):
        before = int(time.time() * 1000)
        assert commit(client, version, ("t", 0), retention_time_ms=9000) == {("t", 0): 0}
        expiry = stage.coordinator.fetch_offsets("g", None).offsets[TopicPartition("t", 0)].expire_timestamp_ms
        assert expiry is not None and before + 9000 <= expiry <= int(time.time() * 1000) + 9000
    for version in range(2, 8):
        before = int(time.time() * 1000)
        assert commit(client, version, ("t", 0)) == {("t", 0): 0}
        value = stage.coordinator.fetch_offsets("g", None).offsets[TopicPartition("t", 0)]
        assert before <= value.commit_timestamp_ms <= int(time.time() * 1000)
        assert value.expire_timestamp_ms is None, "without a retention, or in a version that has none"
    assert commit(client, 2, ("t", 0), retention_time_ms=2**63 - 1) == {("t", 0): 0}  # a way to say: for ever
    before = int(time.time() * 1000)
    assert commit(client, 2, ("t", 0), retention_time_ms=0) == {("t", 0): 0}
    expiry = stage.coordinator.fetch_offsets("g", None).offsets[TopicPartition("t", 0)].expire_timestamp_ms
    assert expiry is not None and before <= expiry <= int(time.time() * 1000), "-1 alone means none"
    for stamp in (0, -2):
        assert commit(client, 1, ("t", 0), commit_timestamp=stamp) == {("t", 0): 0}
        value = stage.coordinator.fetch_offsets("g", None).offsets[TopicPartition("t", 0)]
        assert value.commit_timestamp_ms == stamp, "-1 alone means now"


@pytest.mark.spec("GRP-48")
def test_metadata_is_measured_in_utf_16_units_and_refused_for_its_partition_alone(stage: Stage, client: Client) -> None:
    stage.lead()

    def ask(*metadata: str | None) -> list[int]:
        partitions = [
            offset_commit.OffsetCommitRequestPartition(partition=p, committed_offset=7, committed_metadata=m)
            for p, m in enumerate(metadata)
        ]
        topic = offset_commit.OffsetCommitRequestTopic(topic="t", partitions=partitions)
        answer = client.call(offset_commit.API, 7, offset_commit.OffsetCommitRequest(group_id="g", topics=[topic]))
        return [p.error_code for p in answer.topics[0].partitions]

    assert ask("x" * 4097, "x" * 4096) == [12, 0]
    held = stage.coordinator.groups.get("g")
    assert held is not None and not +held.group.offsets.under_way, "not pending either"
    assert stage.fetch()[1] == {TopicPartition("t", 1): 7}
    assert ask("\U0001f600" * 2048, "\U0001f600" * 2048 + "x") == [0, 12], "two units each"
    assert ask(None) == [0]
    stored = stage.coordinator.fetch_offsets("g", None).offsets[TopicPartition("t", 0)]
    assert stored.metadata == ""


@pytest.mark.spec("GRP-48")
@pytest.mark.parametrize(("limit", "code"), [("1", 0), ("0", 12)])
def test_the_limit_of_metadata_is_the_setting(tmp_path: Path, limit: str, code: int) -> None:
    stage = Stage(tmp_path / "data", offset_metadata_max_bytes=limit)
    stage.lead()
    try:
        context = handler_context(groups=stage.coordinator, metadata_cache=known_topics(), config=stage.config)
        with broker_of(SERVED, context) as client:
            assert commit(client, 7, ("t", 0)) == {("t", 0): code}, "metadata of one letter"
    finally:
        stage.close()


# --- OffsetFetch -----------------------------------------------------------------------------------------------


@pytest.mark.spec("GRP-57", "GRP-56")
@pytest.mark.parametrize("version", range(1, 8))
def test_a_group_error_stands_on_every_partition_and_on_top_too(stage: Stage, client: Client, version: int) -> None:
    request = offset_fetch.OffsetFetchRequest(
        group_id="g", topics=[offset_fetch.OffsetFetchRequestTopic(topic="t", partitions=[0, 1])]
    )

    def told(p: Any) -> tuple[int, int, str, int]:
        return p.committed_offset, p.committed_leader_epoch, p.metadata, p.error_code

    def ask() -> tuple[int, list[tuple[int, int, int]]]:
        answer = client.call(offset_fetch.API, version, request)
        (topic,) = answer.topics
        return answer.error_code, [(p.partition, p.committed_offset, p.error_code) for p in topic.partitions]

    assert ask() == (16 if version >= 2 else 0, [(0, -1, 16), (1, -1, 16)])
    stage.coordinator.groups.partitions.begin_load(0, stage.epoch)
    assert ask() == (14 if version >= 2 else 0, [(0, -1, 14), (1, -1, 14)])
    stage.follow()
    stage.lead()
    assert ask() == (0, [(0, -1, 0), (1, -1, 0)])
    nothing = client.call(offset_fetch.API, version, request).topics[0].partitions[0]
    assert (nothing.metadata, nothing.committed_leader_epoch) == ("", -1)
    gone = offset_fetch.OffsetFetchRequestTopic(topic="gone", partitions=[3])
    unknown = client.call(offset_fetch.API, version, replace(request, topics=[gone]))
    none = (-1, -1, "", 0)
    assert [(t.topic, *told(p)) for t in unknown.topics for p in t.partitions] == [("gone", *none)]
    if version >= 2:
        nobody = client.call(offset_fetch.API, version, replace(request, group_id="unknown", topics=None))
        assert (nobody.error_code, nobody.topics) == (0, [])
    assert commit(client, 7, ("t", 1)) == {("t", 1): 0}
    assert ask() == (0, [(0, -1, 0), (1, 5, 0)])
    partitions = client.call(offset_fetch.API, version, request).topics[0].partitions
    assert [told(p) for p in partitions] == [none, (5, 4 if version >= 5 else -1, "m", 0)]
    none_asked_for = client.call(offset_fetch.API, version, replace(request, topics=[]))
    assert (none_asked_for.error_code, none_asked_for.topics) == (0, [])
    if version >= 2:
        request = offset_fetch.OffsetFetchRequest(group_id=request.group_id, topics=None)
        assert ask() == (0, [(1, 5, 0)])


# --- version 0: offsets in ZooKeeper ---------------------------------------------------------------------------


@pytest.fixture
def zookeeper(zk_connect: str) -> Iterator[ZooKeeper]:
    with ZooKeeper(zk_connect).start() as session:
        yield session


@pytest.mark.spec("GRP-46", "GRP-56", "GRP-48")
def test_version_0_stores_and_reads_offsets_in_zookeeper_whatever_the_broker_leads(
    stage: Stage, zookeeper: ZooKeeper
) -> None:
    context = handler_context(
        groups=stage.coordinator, metadata_cache=known_topics(), config=stage.config, zookeeper=zookeeper
    )

    def ask(client: Client, group: str = "g") -> list[tuple[str, int, int, str | None, int]]:
        request = offset_fetch.OffsetFetchRequest(
            group_id=group,
            topics=[
                offset_fetch.OffsetFetchRequestTopic(topic="t", partitions=[0, 1]),
                offset_fetch.OffsetFetchRequestTopic(topic="gone", partitions=[0]),
            ],
        )
        answer = client.call(offset_fetch.API, 0, request)
        return [
            (t.topic, p.partition, p.committed_offset, p.metadata, p.error_code)
            for t in answer.topics
            for p in t.partitions
        ]

    with broker_of(SERVED, context) as client:
        assert ask(client) == [("t", 0, -1, "", 3), ("t", 1, -1, "", 3), ("gone", 0, -1, "", 3)]
        for _ in range(2):
            assert commit(client, 0, ("t", 0), ("gone", 0)) == {("t", 0): 0, ("gone", 0): 3}
        node = zookeeper.get("/consumers/g/offsets/t/0")
        assert node is not None and node.data == b"5"
        assert ask(client) == [("t", 0, 5, "", 0), ("t", 1, -1, "", 3), ("gone", 0, -1, "", 3)]
        zookeeper.set("/consumers/g/offsets/t/0", b"rubbish", -1)
        assert ask(client)[0] == ("t", 0, -1, "", -1)
        for group in ("", "a/b", ".."):
            assert ask(client, group)[0] == ("t", 0, -1, "", 24)
    with broker_of(
        SERVED, handler_context(metadata_cache=known_topics(), config=stage.config, groups=stage.coordinator)
    ) as client:
        big = offset_commit.OffsetCommitRequestPartition(
            partition=0, committed_offset=5, committed_metadata="m" * (stage.config.offset_metadata_max_bytes + 1)
        )
        topic = offset_commit.OffsetCommitRequestTopic(topic="t", partitions=[big])
        refused = client.call(offset_commit.API, 0, offset_commit.OffsetCommitRequest(group_id="g", topics=[topic]))
        assert refused.topics[0].partitions[0].error_code == 12
