"""AddPartitionsToTxn (key 24), versions 0-4: partitions that a transaction is to write to (TXN-31 to 38; KIP-98, KIP-890).

Version 4 is for brokers: leaders ask with it whether a partition is in a transaction, for many transactions at once.
"""

import threading
from collections.abc import Mapping, Sequence

from kafkatool.broker.handlers.authorization import NotPermittedError
from kafkatool.broker.handlers.call import Call, Served, fenced
from kafkatool.broker.transactions.transaction import Identity
from kafkatool.core.model.acls import Operation, ResourceType
from kafkatool.core.model.topic_names import INTERNAL_TOPICS
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import add_partitions_to_txn as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode

_KNOWS_FENCED = 2
_FOR_BROKERS = 4

_Codes = Mapping[TopicPartition, ErrorCode]


def _may_write(request: wire.AddPartitionsToTxnRequest, call: Call) -> wire.AddPartitionsToTxnRequest:
    """Ask for the transactional id, of brokers for the cluster; topics are asked for with what else is wrong with them."""
    if call.header.api_version >= _FOR_BROKERS:
        if not call.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
            raise NotPermittedError(ResourceType.CLUSTER)
    elif not call.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        raise NotPermittedError(ResourceType.TRANSACTIONAL_ID)
    return request


@Served(wire.API, versions=(0, 4), asks=(_may_write,))
def handle(request: wire.AddPartitionsToTxnRequest, call: Call) -> wire.AddPartitionsToTxnResponse | None:
    """Answer when the transactions are known to have the partitions; the code stands at each."""
    if call.header.api_version >= _FOR_BROKERS:
        return _answer_broker(request.transactions, call)
    partitions = _partitions(request.topics)
    if not partitions:
        return wire.AddPartitionsToTxnResponse()
    if (refused := _refused(partitions, call, of_client=True)) is not None:
        return wire.AddPartitionsToTxnResponse(topics=_topics(refused))

    def answer(code: ErrorCode) -> None:
        codes = dict.fromkeys(partitions, fenced(code, call, since=_KNOWS_FENCED))
        call.respond(wire.AddPartitionsToTxnResponse(topics=_topics(codes)))

    identity = Identity(request.producer_id, request.producer_epoch)
    call.context.transactions.add_partitions(request.transactional_id, identity, frozenset(partitions), answer)
    return None


def _answer_broker(
    transactions: Sequence[wire.AddPartitionsToTxnTransaction], call: Call
) -> wire.AddPartitionsToTxnResponse | None:
    answers: list[_Codes] = [{} for _ in transactions]
    lock, left = threading.Lock(), len(transactions)

    def note(index: int, codes: _Codes) -> None:
        nonlocal left
        answers[index] = codes
        with lock:
            left -= 1
            is_last = left == 0
        if is_last:
            call.respond(
                wire.AddPartitionsToTxnResponse(
                    transactions=[
                        wire.AddPartitionsToTxnResponseTransaction(
                            transactional_id=one.transactional_id, topics=_topics(codes)
                        )
                        for one, codes in zip(transactions, answers, strict=True)
                    ]
                )
            )

    for index, one in enumerate(transactions):
        identity = Identity(one.producer_id, one.producer_epoch)
        partitions = _partitions(one.topics)
        refused = _refused(partitions, call, of_client=not one.verify_only)
        if refused is not None:
            note(index, refused)
        elif one.verify_only:
            note(index, call.context.transactions.verify(one.transactional_id, identity, frozenset(partitions)))
        else:

            def answer(code: ErrorCode, index: int = index, partitions: list[TopicPartition] = partitions) -> None:
                note(index, dict.fromkeys(partitions, code))

            call.context.transactions.add_partitions(one.transactional_id, identity, frozenset(partitions), answer)
    return None if transactions else wire.AddPartitionsToTxnResponse()


def _partitions(topics: Sequence[wire.AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return list(dict.fromkeys(TopicPartition(topic.topic, number) for topic in topics for number in topic.partitions))


def _refused(partitions: Sequence[TopicPartition], call: Call, *, of_client: bool) -> _Codes | None:
    """Return the codes if one of them can be in no client's transaction: then nothing is added (TXN-38)."""
    topics = dict.fromkeys(partition.topic for partition in partitions)
    closed = {topic for topic in topics if of_client and not _may_produce(topic, call)}
    known = call.context.metadata_cache.contains
    codes = {}
    for partition in partitions:
        if partition.topic in closed:
            codes[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif not known(partition):
            codes[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not codes:
        return None
    return {partition: codes.get(partition, ErrorCode.OPERATION_NOT_ATTEMPTED) for partition in partitions}


def _may_produce(topic: str, call: Call) -> bool:
    return topic not in INTERNAL_TOPICS and call.allows(Operation.WRITE, ResourceType.TOPIC, topic)


def _topics(codes: _Codes) -> list[wire.AddPartitionsToTxnResponseTopic]:
    topics: dict[str, list[wire.AddPartitionsToTxnResponsePartition]] = {}
    for partition, code in codes.items():
        one = wire.AddPartitionsToTxnResponsePartition(partition=partition.partition, error_code=code)
        topics.setdefault(partition.topic, []).append(one)
    return [wire.AddPartitionsToTxnResponseTopic(topic=name, partitions=ones) for name, ones in topics.items()]
