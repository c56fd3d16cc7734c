"""What each API asks for: whoever may do nothing is refused with Kafka's code, and the handler does nothing."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from kafkatool.broker.handlers.call import Call, Served, load_handlers
from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.replication.leading.delayed_produce import AppendResult
from kafkatool.broker.replication.leading.fetch_sessions import FetchSessions
from kafkatool.broker.security.acl_table import AclTable
from kafkatool.broker.security.authorizer import Authorizer
from kafkatool.broker.transactions.states import TransactionState
from kafkatool.core.model.acls import (
    CLUSTER_NAME,
    Entry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kafkatool.core.protocol.messages.alter_client_quotas import QuotaAlteration
from kafkatool.core.protocol.messages.alter_configs import AlterConfigsResource
from kafkatool.core.protocol.messages.alter_partition_reassignments import PartitionMove, TopicMoves
from kafkatool.core.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDir, AlterReplicaLogDirsTopic
from kafkatool.core.protocol.messages.alter_user_scram_credentials import ScramCredentialDeletion
from kafkatool.core.protocol.messages.create_acls import AclCreation
from kafkatool.core.protocol.messages.create_partitions import CreatePartitionsTopic
from kafkatool.core.protocol.messages.create_topics import CreateTopicsTopic
from kafkatool.core.protocol.messages.delete_acls import DeleteAclsFilter
from kafkatool.core.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from kafkatool.core.protocol.messages.delete_topics import DeleteTopicsTopic
from kafkatool.core.protocol.messages.describe_client_quotas import QuotaEntityPart
from kafkatool.core.protocol.messages.describe_configs import DescribeConfigsResource
from kafkatool.core.protocol.messages.describe_producers import DescribeProducersTopic
from kafkatool.core.protocol.messages.describe_user_scram_credentials import ScramUserName
from kafkatool.core.protocol.messages.fetch import FetchRequestPartition, FetchRequestTopic
from kafkatool.core.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsResource
from kafkatool.core.protocol.messages.list_offsets import ListOffsetsRequestPartition, ListOffsetsRequestTopic
from kafkatool.core.protocol.messages.metadata import MetadataRequestTopic
from kafkatool.core.protocol.messages.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from kafkatool.core.protocol.messages.offset_delete import OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from kafkatool.core.protocol.messages.offset_fetch import OffsetFetchRequestTopic
from kafkatool.core.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
)
from kafkatool.core.protocol.messages.produce import ProduceRequestPartition, ProduceRequestTopic
from kafkatool.core.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafkatool.core.protocol.messages.write_txn_markers import TxnMarker, WriteTxnMarkersTopic
from tests.broker.handlers.served import broker_of, handler_context, live, state, update
from tests.broker.storage.batch_builders import batch
from tests.core.protocol.apis import APIS
from tests.waiting import eventually

TOPIC, GROUP, CLUSTER, TRANSACTION = 29, 30, 31, 53
BATCH = bytes(22) + bytes([0x10]) + bytes(40)  # of a transaction


class Row(NamedTuple):
    """A request, and what of its answer says that it is refused."""

    fields: Mapping[str, Any]
    told: Callable[[Any], Any]
    expected: Any


def code(response: Any) -> Any:
    return response.error_code


def of_partitions(response: Any) -> Any:
    return [(t.topic, [p.error_code for p in t.partitions]) for t in response.topics]


def controlled(**fields: Any) -> Row:
    return Row({"controller_id": 1, "controller_epoch": 1, **fields}, code, CLUSTER)


MEMBER = {"group_id": "g", "member_id": "m", "generation_id": 1}
PRODUCER = {"transactional_id": "tx", "producer_id": 1, "producer_epoch": 0}
ROWS: dict[int, Row] = {
    0: Row(
        {"acks": 1, "timeout_ms": 1000, "topics": [ProduceRequestTopic(
            topic="t", partitions=[ProduceRequestPartition(partition=0, records=bytes(61))])]},
        lambda r: [(p.error_code, p.base_offset, p.log_append_time_ms, p.log_start_offset)
                   for t in r.topics for p in t.partitions],
        [(TOPIC, -1, -1, -1)],
    ),
    1: Row(
        {"max_wait_ms": 0, "max_bytes": 1 << 20, "min_bytes": 1, "topics": [FetchRequestTopic(topic="t", partitions=[
            FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)])]},
        lambda r: [(p.error_code, p.high_watermark, p.last_stable_offset, p.log_start_offset, bytes(p.records))
                   for t in r.topics for p in t.partitions],
        [(TOPIC, -1, -1, -1, b"")],
    ),
    2: Row(
        {"replica_id": -1, "topics": [ListOffsetsRequestTopic(topic="t", partitions=[
            ListOffsetsRequestPartition(partition=0, timestamp=-1)])]},
        lambda r: [(p.error_code, p.timestamp, p.offset) for t in r.topics for p in t.partitions],
        [(TOPIC, -1, -1)],
    ),
    3: Row(
        {"topics": [MetadataRequestTopic(topic="t"), MetadataRequestTopic(topic="none")]},
        lambda r: ([(t.error_code, t.topic, t.is_internal, t.partitions) for t in r.topics], len(r.brokers)),
        ([(TOPIC, "t", False, []), (TOPIC, "none", False, [])], 1),
    ),
    4: controlled(partition_states=[], live_leaders=[]),
    5: controlled(delete_partitions=False, partitions=[]),
    6: controlled(partition_states=[], live_brokers=[]),
    7: Row({"broker_id": 1}, lambda r: (r.error_code, r.remaining_partitions), (CLUSTER, [])),
    8: Row(
        {"group_id": "g", "topics": [OffsetCommitRequestTopic(topic="t", partitions=[
            OffsetCommitRequestPartition(partition=0, committed_offset=1)])]},
        of_partitions, [("t", [GROUP])],
    ),
    9: Row(
        {"group_id": "g", "topics": [OffsetFetchRequestTopic(topic="t", partitions=[0])]},
        lambda r: (r.error_code, of_partitions(r)), (GROUP, [("t", [GROUP])]),
    ),
    10: Row(
        {"keys": ["g"]},
        lambda r: [(c.key, c.error_code, c.error_message, c.node_id, c.host, c.port) for c in r.coordinators],
        [("g", GROUP, "Group authorization failed.", -1, "", -1)],
    ),
    11: Row(
        {"group_id": "g", "member_id": "m", "session_timeout_ms": 10_000, "protocol_type": "c", "protocols": []},
        lambda r: (r.error_code, r.generation_id, r.member_id), (GROUP, -1, ""),
    ),
    12: Row(MEMBER, code, GROUP),
    13: Row({"group_id": "g", "member_id": "m"}, code, GROUP),
    14: Row({**MEMBER, "assignments": []}, code, GROUP),
    15: Row(
        {"groups": ["g", "h"]}, lambda r: [(g.error_code, g.group_id, g.group_state, g.members) for g in r.groups],
        [(GROUP, "g", "", []), (GROUP, "h", "", [])],
    ),
    16: Row({}, lambda r: (r.error_code, r.groups), (0, [])),
    17: Row({"mechanism": "PLAIN"}, code, 34),
    18: Row({"client_software_name": "a", "client_software_version": "1"}, code, 0),
    19: Row(
        {"topics": [CreateTopicsTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])],
         "timeout_ms": 1000},
        lambda r: [(t.error_code, t.name, t.error_message) for t in r.topics], [(TOPIC, "t", "Authorization failed.")],
    ),
    20: Row(
        {"topics": [DeleteTopicsTopic(name="t"), DeleteTopicsTopic(name="none")], "timeout_ms": 1000},
        lambda r: [(t.error_code, t.name) for t in r.topics], [(TOPIC, "t"), (TOPIC, "none")],
    ),
    21: Row(
        {"topics": [DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition=0, offset=1)])],
         "timeout_ms": 1000},
        lambda r: [(p.error_code, p.low_watermark) for t in r.topics for p in t.partitions], [(TOPIC, -1)],
    ),
    22: Row(
        {"transactional_id": None, "transaction_timeout_ms": 1000},
        lambda r: (r.error_code, r.producer_id, r.producer_epoch), (CLUSTER, -1, -1),
    ),
    23: Row(
        {"topics": [OffsetForLeaderEpochRequestTopic(topic="t", partitions=[
            OffsetForLeaderEpochRequestPartition(partition=0, leader_epoch=1)])]},
        lambda r: [(p.error_code, p.leader_epoch, p.end_offset) for t in r.topics for p in t.partitions],
        [(TOPIC, -1, -1)],
    ),
    24: Row(
        {"transactions": [AddPartitionsToTxnTransaction(
            transactional_id="tx", producer_id=1, producer_epoch=0, topics=[])]}, code, CLUSTER,
    ),
    25: Row({**PRODUCER, "group_id": "g"}, code, TRANSACTION),
    26: Row({**PRODUCER, "committed": True}, code, TRANSACTION),
    27: Row(
        {"markers": [TxnMarker(producer_id=7, producer_epoch=0, committed=True, coordinator_epoch=0, topics=[
            WriteTxnMarkersTopic(topic="t", partitions=[3])])]},
        lambda r: [(m.producer_id, of_partitions(m)) for m in r.markers], [(7, [("t", [CLUSTER])])],
    ),
    28: Row(
        {**PRODUCER, "group_id": "g", "topics": [TxnOffsetCommitRequestTopic(topic="t", partitions=[
            TxnOffsetCommitRequestPartition(partition=0, committed_offset=1)])]},
        of_partitions, [("t", [TRANSACTION])],
    ),
    29: Row(
        {"resource_type": 1, "operation": 1, "permission_type": 1},
        lambda r: (r.error_code, r.error_message, r.resources), (CLUSTER, "Cluster authorization failed.", []),
    ),
    30: Row(
        {"creations": [AclCreation(
            resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3)]},
        lambda r: [(x.error_code, x.error_message) for x in r.results], [(CLUSTER, "Cluster authorization failed.")],
    ),
    31: Row(
        {"filters": [DeleteAclsFilter(resource_type=1, operation=1, permission_type=1)]},
        lambda r: [(x.error_code, x.error_message, x.matching_acls) for x in r.filter_results],
        [(CLUSTER, "Cluster authorization failed.", [])],
    ),
    32: Row(
        {"resources": [DescribeConfigsResource(resource_type=2, resource_name="t"),
                       DescribeConfigsResource(resource_type=4, resource_name="1")]},
        lambda r: [(x.error_code, x.error_message, x.resource_type, x.resource_name, x.configs) for x in r.results],
        [(TOPIC, "Topic authorization failed.", 2, "t", []), (CLUSTER, "Cluster authorization failed.", 4, "1", [])],
    ),
    33: Row(
        {"resources": [AlterConfigsResource(resource_type=2, resource_name="t", configs=[]),
                       AlterConfigsResource(resource_type=4, resource_name="1", configs=[])]},
        lambda r: [(x.error_code, x.resource_name) for x in r.resources], [(TOPIC, "t"), (CLUSTER, "1")],
    ),
    34: Row(
        {"dirs": [AlterReplicaLogDir(path="/d", topics=[AlterReplicaLogDirsTopic(topic="t", partitions=[0, 1])])]},
        lambda r: [(t.topic, [p.error_code for p in t.partitions]) for t in r.results], [("t", [CLUSTER, CLUSTER])],
    ),
    35: Row({"topics": None}, lambda r: r.results, []),
    36: Row({"auth_bytes": b"x"}, code, 34),
    37: Row(
        {"topics": [CreatePartitionsTopic(name="t", count=2, assignments=None)], "timeout_ms": 1000},
        lambda r: [(x.error_code, x.name, x.error_message) for x in r.results],
        [(TOPIC, "t", "The topic authorization is failed.")],
    ),
    42: Row({"group_names": ["g"]}, lambda r: [(x.error_code, x.group_id) for x in r.results], [(GROUP, "g")]),
    43: Row({"topics": None}, lambda r: (r.error_code, r.topics), (CLUSTER, [])),
    44: Row(
        {"resources": [IncrementalAlterConfigsResource(resource_type=2, resource_name="t", configs=[]),
                       IncrementalAlterConfigsResource(resource_type=4, resource_name="1", configs=[])]},
        lambda r: [(x.error_code, x.resource_name) for x in r.responses], [(TOPIC, "t"), (CLUSTER, "1")],
    ),
    45: Row(
        {"topics": [TopicMoves(topic="t", partitions=[PartitionMove(partition=0, replicas=[1])])]},
        lambda r: (r.error_code, of_partitions(r)), (CLUSTER, [("t", [CLUSTER])]),
    ),
    46: Row({"topics": None}, lambda r: (r.error_code, r.topics), (CLUSTER, [])),
    47: Row(
        {"group_id": "g", "topics": [OffsetDeleteRequestTopic(topic="t", partitions=[
            OffsetDeleteRequestPartition(partition=0)])]},
        code, GROUP,
    ),
    48: Row({"components": []}, lambda r: (r.error_code, r.entries or []), (CLUSTER, [])),
    49: Row(
        {"entries": [QuotaAlteration(entity=[QuotaEntityPart(entity_type="user", entity_name="a")], ops=[])]},
        lambda r: [x.error_code for x in r.entries], [CLUSTER],
    ),
    50: Row({"users": [ScramUserName(name="a")]}, lambda r: (r.error_code, r.results), (CLUSTER, [])),
    51: Row(
        {"deletions": [ScramCredentialDeletion(name="a", mechanism=1)], "upsertions": []},
        lambda r: [(x.user, x.error_code) for x in r.results], [("a", CLUSTER)],
    ),
    60: Row({"include_cluster_authorized_operations": True},
            lambda r: (r.error_code, r.cluster_authorized_operations, len(r.brokers)), (0, 0, 1)),
    65: Row({"transactional_ids": ["tx"]},
            lambda r: [(t.error_code, t.transactional_id, t.state) for t in r.transactions], [(TRANSACTION, "tx", "")]),
    66: Row({}, lambda r: (r.error_code, r.transactions), (0, [])),
    61: Row({"topics": [DescribeProducersTopic(topic="t", partitions=[0])]}, of_partitions, [("t", [TOPIC])]),
}  # fmt: skip


class NoReads:
    """A replica manager that finds nothing to read: what is refused never gets there."""

    def __init__(self) -> None:
        self.fetch_sessions = FetchSessions(10, lambda: 0.0)
        self.fetches: Any = self

    def fetch(self, entries: Any, reader: Any, *, on_done: Any, **_: Any) -> None:
        assert not entries
        on_done([])


def entry(
    principal: str, operation: Operation, permission: Permission = Permission.ALLOW, host: str = "*"
) -> frozenset[Entry]:
    return frozenset({Entry(principal, host, operation, permission)})


def authorizer(*grants: tuple[ResourceType, str, Operation]) -> Authorizer:
    made = Authorizer((), allow_without_acl=False)
    table = AclTable()
    for kind, name, operation in grants:
        pattern = ResourcePattern(kind, name, PatternType.LITERAL)
        before = next((found for known, found in table if known == pattern), frozenset())
        table = table.with_entries({pattern: before | entry("User:ANONYMOUS", operation)})
    made.follow(table)
    return made


def ask(
    key: int, fields: Mapping[str, Any], authorizer: Authorizer | None, version: int | None = None, **parts: Any
) -> Any:
    served, api = load_handlers()[key], APIS[key]
    cache = MetadataCache(1)
    cache.update(update(state("t", 0, 1, [1]), brokers=[live(1)]))
    groups = SimpleNamespace(list_groups=lambda: (0, [("g", "consumer", "Stable")]))
    given = {
        "authorizer": authorizer,
        "metadata_cache": cache,
        "replica_manager": NoReads(),
        "controller": SimpleNamespace(is_active=True),
        "groups": groups,
        "transactions": SimpleNamespace(list=lambda: (0, [("tx", None)]), now_ms=lambda: 0),
    }
    with broker_of({key: served}, handler_context(**(given | parts))) as client:
        return client.call(api, served.versions[1] if version is None else version, api.request(**fields))


@pytest.mark.spec("SEC-83", "SEC-84")
def test_every_api_has_a_row_here() -> None:
    assert ROWS.keys() == load_handlers().keys()


@pytest.mark.spec("SEC-83", "SEC-84", "TXN-6", "SEC-50")
@pytest.mark.parametrize("key", sorted(ROWS), ids=lambda key: APIS[key].name)
def test_who_may_do_nothing_is_refused_with_kafkas_code_and_nothing_is_done(key: int) -> None:
    fields, told, expected = ROWS[key]
    assert told(ask(key, fields, authorizer())) == expected


@pytest.mark.spec("ADM-76", "SEC-88")
@pytest.mark.parametrize("key", [29, 30, 31], ids=lambda key: APIS[key].name)
def test_without_an_authorizer_there_are_no_acls(key: int) -> None:
    twice = {name: value * 2 if isinstance(value, list) else value for name, value in ROWS[key].fields.items()}
    response = ask(key, twice, None, acl_admin=None)
    told = {29: [response], 30: getattr(response, "results", []), 31: getattr(response, "filter_results", [])}[key]
    assert [(one.error_code, one.error_message) for one in told] == [
        (54, "No Authorizer is configured on the broker")
    ] * (1 if key == 29 else 2)


@pytest.mark.spec("SEC-84", "TXN-6")
def test_a_batch_of_a_transaction_asks_for_its_id_before_the_topic() -> None:
    partitions = [ProduceRequestPartition(partition=0, records=BATCH)]
    fields = {"acks": 1, "timeout_ms": 1000, "topics": [ProduceRequestTopic(topic="t", partitions=partitions)]}
    for transactional_id in ("tx", None):
        response = ask(0, {**fields, "transactional_id": transactional_id}, authorizer())
        assert of_partitions(response) == [("t", [TRANSACTION])]


@pytest.mark.spec("SEC-84", "TXN-6")
@pytest.mark.parametrize("version", range(4))
def test_of_a_transaction_the_id_is_asked_for_then_the_group_then_the_topic(version: int) -> None:
    nobody = authorizer()
    id_, group = (ResourceType.TRANSACTIONAL_ID, "tx", Operation.WRITE), (ResourceType.GROUP, "g", Operation.READ)
    init = {"transactional_id": "tx", "transaction_timeout_ms": 1000}
    assert code(ask(22, init, nobody, version)) == TRANSACTION
    assert code(ask(10, {"key": "tx", "key_type": 1}, nobody, max(version, 1))) == TRANSACTION
    added = {**PRODUCER, "topics": [AddPartitionsToTxnTopic(topic="t", partitions=[0])]}
    for rights, told in ((nobody, TRANSACTION), (authorizer(id_), TOPIC)):
        assert of_partitions(ask(24, added, rights, version)) == [("t", [told])]
    for rights, told in ((nobody, TRANSACTION), (authorizer(id_), GROUP), (authorizer(id_, group), TOPIC)):
        assert of_partitions(ask(28, ROWS[28].fields, rights, version)) == [("t", [told])]
        if told != TOPIC:
            assert code(ask(25, ROWS[25].fields, rights, version)) == told


@pytest.mark.spec("SEC-84")
@pytest.mark.parametrize("version", [3, 6])
def test_what_is_permitted_beside_what_is_refused_is_served(version: int) -> None:
    rights = authorizer((ResourceType.TOPIC, "t", Operation.DELETE))
    deleted: list[str] = []
    admin = SimpleNamespace(delete=deleted.append, waiting=SimpleNamespace(wait=lambda *a: a[3](set())))
    config = settings(delete_topic_enable=True, connections_max_idle_ms=-1, inter_broker_listener_name="PLAINTEXT")
    by_id = DeleteTopicsTopic(name=None, topic_id=bytes(15) + b"7")  # of it nothing is told to anybody
    entries = [*(DeleteTopicsTopic(name=name) for name in "atb"), by_id]
    fields = {**({"topic_names": ["a", "t", "b"]} if version < 6 else {"topics": entries}), "timeout_ms": 1000}
    response = ask(20, fields, rights, version, topic_admin=admin, config=config)
    assert deleted == ["t"]
    told = {t.name: t.error_code for t in response.topics}
    assert told == {"a": TOPIC, "b": TOPIC, "t": 0} | ({None: 35} if version == 6 else {})


class Becoming:
    """A controller that takes over between two looks at it."""

    def __init__(self) -> None:
        self._looks = 0

    @property
    def is_active(self) -> bool:
        self._looks += 1
        return self._looks > 1


@pytest.mark.spec("SEC-84")
@pytest.mark.parametrize("key", [19, 20, 37])
def test_who_becomes_controller_while_a_request_is_looked_at_does_nothing_unasked(key: int) -> None:
    fields, _, refused = ROWS[key]
    response = ask(key, fields, authorizer(), controller=Becoming())
    items = response.topics if key != 37 else response.results
    assert [(one.error_code, one.name) for one in items] == [(41, name) for _, name, *_ in refused]
    assert all(one.error_message == "this broker is not the controller" for one in items)


@pytest.mark.spec("SEC-84")
def test_a_topic_that_may_not_be_made_is_not_made_by_asking_for_it() -> None:
    rights = authorizer((ResourceType.TOPIC, "none", Operation.DESCRIBE))
    response = ask(3, {"topics": [MetadataRequestTopic(topic="none")], "allow_auto_topic_creation": True}, rights)
    assert [(t.topic, t.error_code) for t in response.topics] == [("none", TOPIC)]


@pytest.mark.spec("SEC-84", "SEC-86")
def test_of_all_topics_those_are_told_that_may_be_described_with_what_may_be_done_to_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "kafka.authorizer.logger")
    rights = authorizer(
        (ResourceType.TOPIC, "t", Operation.READ),
        (ResourceType.TOPIC, "t", Operation.ALTER_CONFIGS),
        (ResourceType.CLUSTER, CLUSTER_NAME, Operation.DESCRIBE),
    )
    wanted = {
        "topics": None,
        "include_topic_authorized_operations": True,
        "include_cluster_authorized_operations": True,
    }
    for version in (8, 9, 10):
        response = ask(3, wanted, rights, version=version)
        bits = 1 << 3 | 1 << 8 | 1 << 11 | 1 << 10  # Read, Describe, AlterConfigs, DescribeConfigs
        assert [(t.topic, t.topic_authorized_operations) for t in response.topics] == [("t", bits)]
        assert response.cluster_authorized_operations == 1 << 8
        hidden = ask(3, wanted, authorizer(), version=version)
        assert hidden.topics == [] and hidden.cluster_authorized_operations == 0
        nobody_asked = ask(3, {"topics": None}, rights, version=version)
        assert [t.topic_authorized_operations for t in nobody_asked.topics] == [-(2**31)]
        assert nobody_asked.cluster_authorized_operations == -(2**31)
    assert not caplog.records, "asked for this way nothing is told as denied"


@pytest.mark.spec("SEC-86")
@pytest.mark.parametrize(
    ("kind", "name", "bits"),
    [
        (ResourceType.TOPIC, "t", {3, 4, 5, 6, 7, 8, 10, 11}),  # Read to Describe, DescribeConfigs, AlterConfigs
        (ResourceType.CLUSTER, CLUSTER_NAME, {5, 7, 8, 9, 10, 11, 12}),  # and ClusterAction, IdempotentWrite
    ],
    ids=["topic", "cluster"],
)
def test_each_operation_has_its_bit(kind: ResourceType, name: str, bits: set[int]) -> None:
    rights = authorizer((kind, name, Operation.ALL), (ResourceType.TOPIC, "t", Operation.DESCRIBE))
    asked = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    response = ask(3, {"topics": None, **asked}, rights, version=10)
    of_topic, of_cluster = response.topics[0].topic_authorized_operations, response.cluster_authorized_operations
    told = of_topic if kind is ResourceType.TOPIC else of_cluster
    assert {bit for bit in range(32) if told >> bit & 1} == bits


@pytest.mark.spec("SEC-86")
@pytest.mark.parametrize(
    ("operation", "code"),
    [
        *((Operation.READ, 3), (Operation.WRITE, 4), (Operation.CREATE, 5), (Operation.DELETE, 6)),
        *((Operation.ALTER, 7), (Operation.DESCRIBE_CONFIGS, 10), (Operation.ALTER_CONFIGS, 11)),
    ],
)
def test_a_right_on_a_topic_sets_its_own_bit(operation: Operation, code: int) -> None:
    rights = authorizer((ResourceType.TOPIC, "t", Operation.DESCRIBE), (ResourceType.TOPIC, "t", operation))
    (told,) = ask(3, {"topics": None, "include_topic_authorized_operations": True}, rights, version=10).topics
    implied = 1 << 10 if operation is Operation.ALTER_CONFIGS else 0
    assert told.topic_authorized_operations == 1 << 8 | 1 << code | implied


@pytest.mark.spec("SEC-86")
@pytest.mark.parametrize(
    ("operation", "code"),
    [
        *((Operation.CREATE, 5), (Operation.ALTER, 7), (Operation.CLUSTER_ACTION, 9)),
        *((Operation.DESCRIBE_CONFIGS, 10), (Operation.IDEMPOTENT_WRITE, 12)),
    ],
)
def test_a_right_on_the_cluster_sets_its_own_bit(operation: Operation, code: int) -> None:
    rights = authorizer(*((ResourceType.CLUSTER, CLUSTER_NAME, one) for one in (Operation.DESCRIBE, operation)))
    response = ask(3, {"topics": [], "include_cluster_authorized_operations": True}, rights, version=10)
    assert response.cluster_authorized_operations == 1 << 8 | 1 << code


@pytest.mark.spec("SEC-86")
def test_of_the_cluster_that_is_told_which_one_may_do_to_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "kafka.authorizer.logger")
    of_cluster = [Operation.DESCRIBE, Operation.ALTER_CONFIGS]
    rights = authorizer(*((ResourceType.CLUSTER, CLUSTER_NAME, one) for one in of_cluster))
    bits = 1 << Operation.DESCRIBE | 1 << Operation.ALTER_CONFIGS | 1 << Operation.DESCRIBE_CONFIGS
    for asked, told in ((True, bits), (False, -(2**31))):
        response = ask(60, {"include_cluster_authorized_operations": asked}, rights)
        assert response.cluster_authorized_operations == told
    assert not caplog.records


@pytest.mark.spec("SEC-84")
def test_groups_are_listed_for_who_may_describe_them_or_the_cluster() -> None:
    for right in ((ResourceType.GROUP, "g", Operation.READ), (ResourceType.CLUSTER, CLUSTER_NAME, Operation.DESCRIBE)):
        assert [g.group_id for g in ask(16, {}, authorizer(right)).groups] == ["g"]


@pytest.mark.spec("SEC-85", "SEC-72")
@pytest.mark.parametrize(
    "right",
    [(ResourceType.TOPIC, "any", Operation.WRITE), (ResourceType.CLUSTER, CLUSTER_NAME, Operation.IDEMPOTENT_WRITE)],
    ids=lambda right: right[0].name,
)
def test_write_on_any_topic_is_enough_for_an_idempotent_producer(right: Any) -> None:
    ids = SimpleNamespace(next_id=lambda: 7)
    response = ask(22, {"transactional_id": None, "transaction_timeout_ms": 1000}, authorizer(right), producer_ids=ids)
    assert (response.error_code, response.producer_id) == (0, 7)


@pytest.mark.spec("SEC-85")
@pytest.mark.parametrize("kind", [ResourceType.TOPIC, ResourceType.CLUSTER], ids=lambda kind: kind.name)
def test_an_idempotent_batch_asks_for_its_topic_alone(kind: ResourceType) -> None:
    topic = kind is ResourceType.TOPIC
    rights = authorizer((kind, "t", Operation.WRITE) if topic else (kind, CLUSTER_NAME, Operation.IDEMPOTENT_WRITE))

    def append(entries: Mapping[Any, Any], *, on_done: Callable[[Any], None], **_: Any) -> None:
        on_done(dict.fromkeys(entries, AppendResult(base_offset=5)))

    manager = SimpleNamespace(appends=SimpleNamespace(append=append))
    partitions = [ProduceRequestPartition(partition=0, records=batch(producer=(7, 0, 0)))]
    fields = {"acks": 1, "timeout_ms": 1000, "topics": [ProduceRequestTopic(topic="t", partitions=partitions)]}
    response = ask(0, fields, rights, replica_manager=manager)
    assert of_partitions(response) == [("t", [0 if topic else TOPIC])]


@pytest.mark.spec("SEC-83")
def test_an_api_that_does_not_say_what_it_asks_cannot_be_written_down() -> None:
    with pytest.raises(TypeError, match="asks"):
        Served(APIS[18], versions=(0, 3))  # type: ignore[call-arg]


@pytest.mark.spec("SEC-83")
@pytest.mark.parametrize("quick", [True, False])
def test_who_may_do_nothing_is_refused_on_the_quick_path_alike(quick: bool) -> None:
    key, seen = 12, list[str]()

    def note(request: Any, call: Call) -> Any:
        seen.append(threading.current_thread().name)
        return request

    served = replace(load_handlers()[key], asks=(note, *load_handlers()[key].asks))
    context = handler_context(authorizer=authorizer())
    with broker_of({key: served}, context, quick_apis=(key,) if quick else ()) as client:
        assert client.call(APIS[key], 3, APIS[key].request(**MEMBER)).error_code == GROUP
    assert ["processor" in name for name in seen] == [quick]


@pytest.mark.spec("SEC-50", "SEC-76")
@pytest.mark.parametrize("key", [4, 5, 6, 7], ids=lambda key: APIS[key].name)
def test_control_requests_are_taken_on_the_brokers_own_listener_alone_whoever_asks(key: int) -> None:
    config = settings(inter_broker_listener_name="INNER", kt_inter_broker_also_on=frozenset())
    everything = Authorizer({"User:ANONYMOUS"}, allow_without_acl=True)
    fields, told, expected = ROWS[key]
    for rights in (everything, None):
        assert told(ask(key, fields, rights, config=config)) == expected


def settings(**given: Any) -> SimpleNamespace:
    """Return what a handler asks of a broker's config."""
    return SimpleNamespace(kt_max_partitions_per_request=100_000, **given)


def elsewhere(*also_on: str) -> SimpleNamespace:
    """Return the configuration of a broker whose brokers speak on INNER, and where else they may."""
    return settings(
        inter_broker_listener_name="INNER",
        kt_inter_broker_also_on=frozenset(also_on),
        kt_inter_broker_principals={},
        connections_max_idle_ms=-1,
    )


@pytest.mark.spec("SEC-50", "SEC-51")
def test_who_says_that_it_is_a_follower_is_believed_on_the_brokers_listener_alone() -> None:
    config = elsewhere()
    fields = {**ROWS[1].fields, "replica_id": 2}
    for rights in (Authorizer({"User:ANONYMOUS"}, allow_without_acl=True), None):
        response = ask(1, fields, rights, config=config)
        assert of_partitions(response) == [("t", [TOPIC])]


IDS = {4: "controller_id", 5: "controller_id", 6: "controller_id", 7: "broker_id"}


@pytest.mark.spec("SEC-51", "SEC-50")
@pytest.mark.parametrize("key", [4, 5, 6, 7], ids=lambda key: APIS[key].name)
def test_where_principals_of_brokers_are_named_nobody_else_speaks_for_them(key: int) -> None:
    anybody = Authorizer({"User:ANONYMOUS"}, allow_without_acl=True)
    served: list[Any] = []
    listed = {1: "User:CN=b1", 2: "User:ANONYMOUS"}
    taken = replace(load_handlers()[key], handle=lambda request, call: served.append(request))
    for rights in (anybody, None):
        config = settings(inter_broker_listener_name="PLAINTEXT", kt_inter_broker_principals=listed)
        with broker_of({key: taken}, handler_context(authorizer=rights, config=config)) as client:
            for broker_id in (1, 3):  # another's, and one that is not named
                fields = {**ROWS[key].fields, IDS[key]: broker_id}
                assert client.call(APIS[key], 0, APIS[key].request(**fields)).error_code == CLUSTER
            assert not served
            client.send_request(APIS[key], 0, APIS[key].request(**{**ROWS[key].fields, IDS[key]: 2}))
            eventually(lambda: bool(served), "the request of whom the map names")
            served.clear()


@pytest.mark.spec("SEC-51")
@pytest.mark.parametrize("replica_id", [1, 3])
def test_where_principals_of_brokers_are_named_nobody_else_follows_for_them(replica_id: int) -> None:
    config = settings(
        inter_broker_listener_name="PLAINTEXT",
        connections_max_idle_ms=-1,
        kt_inter_broker_principals={1: "User:CN=b1", 2: "User:ANONYMOUS"},
    )
    for rights in (Authorizer({"User:ANONYMOUS"}, allow_without_acl=True), None):
        response = ask(1, {**ROWS[1].fields, "replica_id": replica_id}, rights, config=config)
        assert of_partitions(response) == [("t", [TOPIC])]


@pytest.mark.spec("SEC-53", "SEC-50")
@pytest.mark.parametrize("key", [4, 5, 6, 7], ids=lambda key: APIS[key].name)
def test_while_brokers_change_over_they_may_speak_on_another_listener_too(
    key: int, caplog: pytest.LogCaptureFixture
) -> None:
    served: list[Any] = []
    taken = replace(load_handlers()[key], handle=lambda request, call: served.append(request))
    request = APIS[key].request(**ROWS[key].fields)
    with broker_of({key: taken}, handler_context(authorizer=None, config=elsewhere("OTHER"))) as client:
        assert client.call(APIS[key], 0, request).error_code == CLUSTER
    assert not served and "kt.inter.broker.also.on=PLAINTEXT takes it" in caplog.text
    with broker_of({key: taken}, handler_context(authorizer=None, config=elsewhere("PLAINTEXT"))) as client:
        client.send_request(APIS[key], 0, request)
        eventually(lambda: bool(served), "the request to be taken")


@pytest.mark.spec("SEC-51")
def test_reading_what_is_not_committed_asks_describe_on_the_cluster_too() -> None:
    rights = authorizer((ResourceType.TOPIC, "t", Operation.READ))
    describes = (ResourceType.CLUSTER, CLUSTER_NAME, Operation.DESCRIBE)
    for one in (rights, authorizer(describes)):
        assert of_partitions(ask(1, {**ROWS[1].fields, "replica_id": -2}, one)) == [("t", [TOPIC])]
    read: list[Any] = []

    def fetch(entries: Any, reader: Any, *, on_done: Any, **_: Any) -> None:
        read.extend(partition for partition, _ in entries)
        on_done([])

    manager = NoReads()
    manager.fetches = SimpleNamespace(fetch=fetch)
    both = authorizer((ResourceType.TOPIC, "t", Operation.READ), describes)
    for enough in (both, None):
        read.clear()
        ask(1, {**ROWS[1].fields, "replica_id": -2}, enough, replica_manager=manager)
        assert read == [TopicPartition("t", 0)]


@pytest.mark.spec("SEC-84")
@pytest.mark.parametrize("version", [9, 12])
def test_nothing_of_a_log_is_looked_up_for_who_may_not_read_it(version: int) -> None:
    """Before, whether it asks for zstd was told, and by a last fetched epoch its end and high watermark."""
    wanted = FetchRequestPartition(partition=0, fetch_offset=9, last_fetched_epoch=0, partition_max_bytes=1000)
    fields = {**ROWS[1].fields, "topics": [FetchRequestTopic(topic="t", partitions=[wanted])]}
    assert of_partitions(ask(1, fields, authorizer(), version=version)) == [("t", [TOPIC])]


@pytest.mark.spec("SEC-50", "SEC-87")
@pytest.mark.parametrize("replica_id", [2, -1])
def test_who_only_says_that_it_is_a_follower_gets_no_session_of_one(replica_id: int) -> None:
    manager = NoReads()
    fields = {**ROWS[1].fields, "replica_id": replica_id, "session_epoch": 0}
    response = ask(1, fields, authorizer(), replica_manager=manager)
    assert (of_partitions(response), len(manager.fetch_sessions)) == ([("t", [TOPIC])], int(replica_id < 0))
    assert bool(response.session_id) == (replica_id < 0)


@pytest.mark.spec("SEC-84", "TXN-93")
def test_a_described_transaction_names_the_topics_that_one_may_describe_alone() -> None:
    value = SimpleNamespace(state=TransactionState.ONGOING, timeout_ms=1, start_ms=0, producer_id=1, epoch=0)
    found = SimpleNamespace(value=value, partitions={TopicPartition("t", 0), TopicPartition("secret", 1)})
    transactions = SimpleNamespace(describe=lambda _: found)
    rights = authorizer(
        (ResourceType.TRANSACTIONAL_ID, "tx", Operation.DESCRIBE), (ResourceType.TOPIC, "t", Operation.DESCRIBE)
    )
    for one, shown in ((rights, ["t"]), (None, ["secret", "t"])):
        (told,) = ask(65, {"transactional_ids": ["tx"]}, one, transactions=transactions).transactions
        assert [topic.topic for topic in told.topics] == shown
