"""What the requests of transactions ask leave for, and in which order: each before whatever else is wrong (TXN-6).

The coordinators say 15 to all that gets to them. Without an authorizer all is allowed: told as to who has every right.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from types import SimpleNamespace
from typing import Any, Final

import pytest

from kafkatool.broker.security.authorizer import Authorizer
from kafkatool.broker.transactions.late_markers import Sender
from kafkatool.broker.transactions.marker_writes import Codes, MarkerWrite
from kafkatool.broker.transactions.states import TransactionState
from kafkatool.broker.transactions.transaction import Identity
from kafkatool.core.model.acls import CLUSTER_NAME, Operation, ResourceType
from kafkatool.core.model.topic_names import OFFSETS_TOPIC
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafkatool.core.protocol.messages.write_txn_markers import TxnMarker, WriteTxnMarkersTopic
from tests.broker.handlers.test_authorization import CLUSTER, GROUP, PRODUCER, TOPIC, TRANSACTION, ask, authorizer

AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE
UNKNOWN, NOT_TRIED = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
ID: Final = (ResourceType.TRANSACTIONAL_ID, "tx", Operation.WRITE)
DESCRIBE_ID: Final = (ResourceType.TRANSACTIONAL_ID, "tx", Operation.DESCRIBE)
ANY_ID: Final = (ResourceType.TRANSACTIONAL_ID, "*", Operation.ALL)
THE_GROUP: Final = (ResourceType.GROUP, "g", Operation.READ)
AS_A_BROKER: Final = (ResourceType.CLUSTER, CLUSTER_NAME, Operation.CLUSTER_ACTION)
NOBODY: Final = authorizer()
VERSIONS: Final = range(4)

Told = Callable[[Authorizer | None], Any]


def write(topic: str) -> tuple[ResourceType, str, Operation]:
    return ResourceType.TOPIC, topic, Operation.WRITE


def read(topic: str) -> tuple[ResourceType, str, Operation]:
    return ResourceType.TOPIC, topic, Operation.READ


class Away:
    """Both coordinators, and the writer of markers, of a broker that stops. ``asked`` counts what got to them."""

    def __init__(self) -> None:
        self.asked = 0

    def _away(self) -> ErrorCode:
        self.asked += 1
        return AWAY

    def give_identity(self, *given: Any) -> None:
        given[-1](self._away(), Identity(-1, -1))

    def add_partitions(self, *given: Any) -> None:
        given[-1](self._away())

    def end(self, *_: Any, committed: bool, done: Callable[[ErrorCode], None]) -> None:
        done(self._away())

    def verify(self, _id: str, _who: Identity, partitions: Set[TopicPartition]) -> Mapping[TopicPartition, ErrorCode]:
        return dict.fromkeys(partitions, self._away())

    def describe(self, _id: str) -> ErrorCode:
        return self._away()

    def commit_in_transaction(self, *given: Any) -> None:
        *_, wanted, answer = given
        answer(dict.fromkeys(wanted, self._away()))

    def write(self, writes: Sequence[MarkerWrite], done: Callable[[Sequence[Codes]], None], _: Sender) -> bool:
        code = self._away()
        done([dict.fromkeys(one.partitions, code) for one in writes])
        return True


def codes(response: Any) -> dict[str, int]:
    return {topic.topic: p.error_code for topic in response.topics for p in topic.partitions}


def asking(
    key: int, fields: Mapping[str, Any], version: int, told: Callable[[Any], Any], away: Away, **parts: Any
) -> Told:
    given = {"transactions": away, "groups": away, "marker_writes": away, **parts}
    return lambda rights: told(ask(key, fields, rights, version, **given))


@pytest.mark.spec("TXN-6", "TXN-24", "TXN-39")
@pytest.mark.parametrize("version", VERSIONS)
def test_the_id_is_asked_for_before_what_is_wrong_with_an_identity_or_an_end(version: int) -> None:
    away, code = Away(), lambda response: response.error_code
    init = {"transactional_id": "tx", "transaction_timeout_ms": 0}
    half = {**init, "producer_id": 5, "producer_epoch": -1}
    for told, refusal in (
        (asking(22, init, version, code, away), AWAY),
        (asking(22, half, 4, code, away), ErrorCode.INVALID_REQUEST),
        (asking(26, {**PRODUCER, "committed": True}, version, code, away), AWAY),
    ):
        before = away.asked
        assert (told(NOBODY), away.asked) == (TRANSACTION, before)
        assert told(authorizer(ID)) == told(None) == refusal


@pytest.mark.spec("TXN-6", "TXN-31", "TXN-38")
@pytest.mark.parametrize("version", VERSIONS)
def test_of_an_addition_the_id_is_asked_for_then_each_topic_before_it_is_looked_up(version: int) -> None:
    away = Away()

    def adding(*topics: str) -> Told:
        named = [AddPartitionsToTxnTopic(topic=topic, partitions=[0]) for topic in topics]
        return asking(24, {**PRODUCER, "topics": named}, version, codes, away)

    both, internal = adding("t", "none"), adding("t", OFFSETS_TOPIC)
    assert both(NOBODY) == {"t": TRANSACTION, "none": TRANSACTION}
    assert both(authorizer(ID)) == {"t": TOPIC, "none": TOPIC}
    assert both(authorizer(ID, write("t"))) == {"t": NOT_TRIED, "none": TOPIC}
    assert both(authorizer(ID, write("t"), write("none"))) == both(None) == {"t": NOT_TRIED, "none": UNKNOWN}
    every = authorizer(ID, write("*"))
    assert internal(every) == internal(None) == {"t": NOT_TRIED, OFFSETS_TOPIC: TOPIC}, "nobody may"
    assert adding()(NOBODY) == adding()(every) == {}
    assert away.asked == 0, "the coordinator comes after all of that"
    assert adding("t")(authorizer(ID)) == {"t": TOPIC}
    assert adding("t")(authorizer(ID, write("t"))) == adding("t")(None) == {"t": AWAY}


@pytest.mark.spec("TXN-6", "TXN-34")
def test_brokers_are_asked_for_the_cluster_and_for_topics_where_they_add() -> None:
    away = Away()

    def adding(*, verify_only: bool) -> Told:
        named = [AddPartitionsToTxnTopic(topic="t", partitions=[0])]
        who: Any = PRODUCER
        one = AddPartitionsToTxnTransaction(**who, verify_only=verify_only, topics=named)
        told = lambda r: (r.error_code, [codes(t) for t in r.transactions])  # noqa: E731
        return asking(24, {"transactions": [one]}, 4, told, away)

    for verify_only in (True, False):
        code, _ = adding(verify_only=verify_only)(authorizer(ID, write("t")))
        assert (code, away.asked) == (CLUSTER, 0)
    broker = authorizer(AS_A_BROKER)
    assert adding(verify_only=True)(broker) == (0, [{"t": AWAY}])
    assert adding(verify_only=False)(broker) == (0, [{"t": TOPIC}])
    assert adding(verify_only=False)(authorizer(AS_A_BROKER, write("t"))) == (0, [{"t": AWAY}])
    assert adding(verify_only=False)(None) == (0, [{"t": AWAY}])


@pytest.mark.spec("TXN-6", "TXN-36")
@pytest.mark.parametrize("version", VERSIONS)
def test_of_offsets_the_id_is_asked_for_then_the_group_before_their_topic_is_made(version: int) -> None:
    away, made = Away(), list[str]()
    admin = SimpleNamespace(create_internal_offsets_topic=lambda: made.append(OFFSETS_TOPIC))
    fields = {**PRODUCER, "group_id": "g"}
    told = asking(25, fields, version, lambda r: r.error_code, away, topic_admin=admin)
    assert (told(NOBODY), told(authorizer(THE_GROUP)), told(authorizer(ID))) == (TRANSACTION, TRANSACTION, GROUP)
    assert made == []
    assert (told(authorizer(ID, THE_GROUP)), told(None), made) == (AWAY, AWAY, [OFFSETS_TOPIC] * 2)


@pytest.mark.spec("TXN-6", "TXN-82")
@pytest.mark.parametrize("version", VERSIONS)
def test_of_a_commit_the_id_is_asked_for_then_the_group_then_each_topic_before_it_is_looked_up(version: int) -> None:
    away = Away()
    one = TxnOffsetCommitRequestPartition(partition=0, committed_offset=1)
    named = [TxnOffsetCommitRequestTopic(topic=topic, partitions=[one]) for topic in ("t", "none")]
    told = asking(28, {**PRODUCER, "group_id": "g", "topics": named}, version, codes, away)
    assert told(NOBODY) == told(authorizer(THE_GROUP, read("*"))) == {"t": TRANSACTION, "none": TRANSACTION}
    assert told(authorizer(ID, read("*"))) == {"t": GROUP, "none": GROUP}
    assert told(authorizer(ID, THE_GROUP)) == {"t": TOPIC, "none": TOPIC} and away.asked == 0
    assert told(authorizer(ID, THE_GROUP, read("t"))) == {"t": AWAY, "none": TOPIC}
    assert told(authorizer(ID, THE_GROUP, read("*"))) == told(None) == {"t": AWAY, "none": UNKNOWN}


@pytest.mark.spec("TXN-6", "TXN-2")
@pytest.mark.parametrize("version", range(1, 5))
def test_who_looks_for_a_coordinator_is_asked_before_the_topic_is_made_or_the_id_looked_at(version: int) -> None:
    made: list[str] = []
    admin = SimpleNamespace(create_transaction_topic=lambda: made.append("made"))

    def finding(id_: str) -> Told:
        told = lambda r: r.coordinators[0].error_code if version == 4 else r.error_code  # noqa: E731
        return asking(10, {"key": id_, "keys": [id_], "key_type": 1}, version, told, Away(), topic_admin=admin)

    assert (finding("tx")(NOBODY), finding("")(NOBODY), made) == (TRANSACTION, TRANSACTION, [])
    assert finding("")(authorizer(ANY_ID)) == finding("")(None) == ErrorCode.INVALID_REQUEST
    assert (finding("tx")(authorizer(DESCRIBE_ID)), finding("tx")(None), made) == (AWAY, AWAY, ["made"] * 2)


@pytest.mark.spec("TXN-6", "TXN-93", "TXN-94")
def test_ids_are_described_and_listed_for_who_may_describe_them() -> None:
    away = Away()
    told = asking(
        65,
        {"transactional_ids": ["tx", ""]},
        0,
        lambda r: {t.transactional_id: t.error_code for t in r.transactions},
        away,
    )
    assert (told(NOBODY), away.asked) == ({"tx": TRANSACTION, "": TRANSACTION}, 0)
    assert told(authorizer(DESCRIBE_ID)) == {"tx": AWAY, "": TRANSACTION}
    assert told(authorizer(ANY_ID)) == told(None) == {"tx": AWAY, "": AWAY}
    value = SimpleNamespace(producer_id=1, state=TransactionState.EMPTY, start_ms=-1)
    known = SimpleNamespace(list=lambda: (0, [("other", value), ("tx", value)]), now_ms=lambda: 0)
    for rights, ids in ((NOBODY, []), (authorizer(DESCRIBE_ID), ["tx"]), (None, ["other", "tx"])):
        assert [t.transactional_id for t in ask(66, {}, rights, 1, transactions=known).transactions] == ids


@pytest.mark.spec("TXN-6", "TXN-59")
@pytest.mark.parametrize("version", [0, 1])
def test_who_writes_markers_is_asked_for_the_cluster_before_they_are_looked_at(version: int) -> None:
    away = Away()
    named = [WriteTxnMarkersTopic(topic="none", partitions=[0])]
    one = TxnMarker(producer_id=1, producer_epoch=0, committed=True, topics=named, coordinator_epoch=0)
    told = asking(27, {"markers": [one]}, version, lambda r: [codes(m) for m in r.markers], away)
    assert (told(authorizer(ID, write("*"))), away.asked) == ([{"none": CLUSTER}], 0)
    assert told(authorizer(AS_A_BROKER)) == told(None) == [{"none": AWAY}]
