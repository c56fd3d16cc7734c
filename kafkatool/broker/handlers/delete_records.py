"""DeleteRecords (key 21), versions 0-2: raise a partition's log start, on all live replicas (KIP-107).

Each partition is asked of its leader. The space is given back with the next retention run. What was answered holds over any
crash: the leader keeps the new start before it is answered, a follower before it tells the leader of it (BRK-141).
"""

from kafkatool.broker.administration.record_deletion import DelayedDeletion, delete_on_leader
from kafkatool.broker.handlers.authorization import topics
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.model.acls import Operation
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import delete_records as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode


@Served(wire.API, versions=(0, 2), asks=(topics(Operation.DELETE, name="name"),))
def handle(request: wire.DeleteRecordsRequest, call: Call) -> None:
    context = call.context
    find_leader = context.replica_manager.partitions.leader
    deletions = {
        partition: delete_on_leader(partition, wanted.offset, find_leader)
        for topic in request.topics
        for wanted in topic.partitions
        for partition in [TopicPartition(topic.name, wanted.partition)]
    }

    raised = [partition for partition, deletion in deletions.items() if deletion.error is ErrorCode.NONE]
    if raised:
        context.log_manager.write_log_starts()
    for partition in raised:
        context.replica_manager.delayed.fetches.check(partition)  # sessions tell it with their next answer

    def result(topic: str, number: int) -> wire.DeleteRecordsPartitionResult:
        deletion = deletions[TopicPartition(topic, number)]
        low = deletion.low_watermark if deletion.error is ErrorCode.NONE else -1
        return wire.DeleteRecordsPartitionResult(partition=number, low_watermark=low, error_code=deletion.error)

    def answer() -> None:
        topics = [
            wire.DeleteRecordsTopicResult(name=t.name, partitions=[result(t.name, p.partition) for p in t.partitions])
            for t in request.topics
        ]
        call.respond(wire.DeleteRecordsResponse(topics=topics))

    timeout_ms = call.patience_ms(request.timeout_ms)
    waiting = DelayedDeletion(timeout_ms, deletions, find_leader, context.metadata_cache, answer)
    context.replica_manager.delayed.deletions.watch(waiting, waiting.subjects)
