"""AlterReplicaLogDirs (key 34), versions 0-2, 2 flexible: move replicas to other disks of their broker (KIP-113).

Source: Kafka 2.8.2 message/AlterReplicaLogDirs*.json.
"""

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, message


@message
class AlterReplicaLogDirsTopic:
    """The partitions of one topic."""

    topic: str
    partitions: list[Int32]


@message
class AlterReplicaLogDir:
    """What is to lie in one log directory, named by its absolute path."""

    path: str
    topics: list[AlterReplicaLogDirsTopic]


@message
class AlterReplicaLogDirsRequest(Request["AlterReplicaLogDirsResponse"]):
    """Each broker is asked about its own replicas."""

    dirs: list[AlterReplicaLogDir]


@message
class AlterReplicaLogDirsResponsePartition:
    """Outcome for one partition: NONE says that the move has begun, not that it is done."""

    partition: Int32
    error_code: Int16 = 0


@message
class AlterReplicaLogDirsResponseTopic:
    """The partitions of one topic."""

    topic: str
    partitions: list[AlterReplicaLogDirsResponsePartition]


@message
class AlterReplicaLogDirsResponse:
    """One entry for each partition."""

    throttle_time_ms: Int32 = 0
    results: list[AlterReplicaLogDirsResponseTopic]


API = Api(34, "AlterReplicaLogDirs", 0, 2, AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse, flexible_from=2)
