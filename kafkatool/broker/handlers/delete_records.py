"""DeleteRecords (key 21), versions 0-1: raise a partition's log start, on all live replicas (KIP-107).

Each partition is asked of its leader. The space is given back with the next retention run.
"""

from kafkatool.broker.administration.record_deletion import DelayedDeletion, delete_on_leader
from kafkatool.broker.handlers.call import Call
from kafkatool.broker.handlers.served import Served
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.delete_records import (
    API,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kafkatool.core.protocol.messages.error_codes import ErrorCode


def handle(request: DeleteRecordsRequest, call: Call) -> None:
    context = call.context
    find_leader = context.replica_manager.partitions.leader
    deletions = {
        partition: delete_on_leader(partition, wanted.offset, find_leader)
        for topic in request.topics
        for wanted in topic.partitions
        for partition in [TopicPartition(topic.name, wanted.partition)]
    }

    for partition, deletion in deletions.items():
        if deletion.error is ErrorCode.NONE:
            context.replica_manager.delayed.fetches.check(partition)  # sessions tell it with their next answer

    def result(topic: str, number: int) -> DeleteRecordsPartitionResult:
        deletion = deletions[TopicPartition(topic, number)]
        low = deletion.low_watermark if deletion.error is ErrorCode.NONE else -1
        return DeleteRecordsPartitionResult(partition=number, low_watermark=low, error_code=deletion.error)

    def answer() -> None:
        topics = [
            DeleteRecordsTopicResult(name=t.name, partitions=[result(t.name, p.partition) for p in t.partitions])
            for t in request.topics
        ]
        call.respond(DeleteRecordsResponse(topics=topics))

    timeout_ms = call.patience_ms(request.timeout_ms)
    waiting = DelayedDeletion(timeout_ms, deletions, find_leader, context.metadata_cache, answer)
    context.replica_manager.delayed.deletions.watch(waiting, waiting.subjects)


SERVED = Served(api=API, versions=(0, 1), handle=handle)
