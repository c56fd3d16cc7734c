"""AlterReplicaLogDirs (key 34), versions 0-2: this broker's replicas are to lie in other log directories of it (KIP-113).

NONE says that a move has begun, or that nothing is to be done; DescribeLogDirs tells how far it is. A replica that is not
here yet is made in the directory asked for. Of a partition named twice the last directory counts, as in Kafka.
"""

from itertools import groupby

from kafkatool.broker.handlers.authorization import by_handler
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.model.acls import Operation, ResourceType
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import alter_replica_log_dirs as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode


@Served(wire.API, versions=(0, 2), asks=(by_handler,))
def handle(request: wire.AlterReplicaLogDirsRequest, call: Call) -> wire.AlterReplicaLogDirsResponse:
    wanted = {TopicPartition(t.topic, p): d.path for d in request.dirs for t in d.topics for p in t.partitions}
    if call.allows(Operation.ALTER, ResourceType.CLUSTER):
        codes = call.context.replica_manager.control.alter_log_dirs(wanted)
    else:
        codes = dict.fromkeys(wanted, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return wire.AlterReplicaLogDirsResponse(
        results=[
            wire.AlterReplicaLogDirsResponseTopic(
                topic=topic,
                partitions=[
                    wire.AlterReplicaLogDirsResponsePartition(partition=p.partition, error_code=codes[p]) for p in named
                ],
            )
            for topic, named in groupby(sorted(codes), key=lambda p: p.topic)
        ]
    )
