"""WriteTxnMarkers (key 27), versions 0-1: a coordinator has this leader end a transaction (TXN-59, 92; KIP-98)."""

import logging
from collections.abc import Sequence

from kafkatool.broker.handlers.authorization import cluster
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.broker.storage.batches.transaction_markers import Marker
from kafkatool.broker.transactions.late_markers import Sender
from kafkatool.broker.transactions.marker_writes import Codes, MarkerWrite
from kafkatool.broker.transactions.transaction import Identity
from kafkatool.core.model.acls import Operation
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import write_txn_markers as wire

log = logging.getLogger(__name__)


@Served(wire.API, versions=(0, 1), asks=(cluster(Operation.CLUSTER_ACTION),))
def handle(request: wire.WriteTxnMarkersRequest, call: Call) -> None:
    """Answer when all markers are replicated; entries of one producer are answered as one.

    What comes late is not: its connection is closed, and who is taken for late wrongly repeats over another (TXN-85).
    """
    writes = [
        MarkerWrite(
            Identity(entry.producer_id, entry.producer_epoch),
            Marker(entry.committed, entry.coordinator_epoch),
            list(dict.fromkeys(TopicPartition(t.topic, p) for t in entry.topics for p in t.partitions)),
        )
        for entry in request.markers
    ]

    def answer(outcomes: Sequence[Codes]) -> None:
        of_producer: dict[int, dict[TopicPartition, int]] = {}
        for write, codes in zip(writes, outcomes, strict=True):
            if codes:
                of_producer.setdefault(write.identity.producer_id, {}).update(codes)
        call.respond(
            wire.WriteTxnMarkersResponse(
                markers=[
                    wire.WriteTxnMarkersResponseMarker(producer_id=producer_id, topics=_topics(codes))
                    for producer_id, codes in of_producer.items()
                ]
            )
        )

    sender = Sender(call.header.client_id or "", call.accepted_ms)
    if not call.context.marker_writes.write(writes, answer, sender):
        log.info("markers of %s by an old connection are left alone, and that is closed", call.header.client_id)
        call.close()


def _topics(codes: Codes) -> list[wire.WriteTxnMarkersResponseTopic]:
    topics: dict[str, list[wire.WriteTxnMarkersResponsePartition]] = {}
    for partition, code in codes.items():
        one = wire.WriteTxnMarkersResponsePartition(partition=partition.partition, error_code=code)
        topics.setdefault(partition.topic, []).append(one)
    return [wire.WriteTxnMarkersResponseTopic(topic=name, partitions=ones) for name, ones in topics.items()]
