"""The text of the controller's lines in ``state-change.log``, word for word Kafka's (CTL-117, forms B1 to B13; C16).

Functions of values, called in bulk: one batch of transitions is formatted and written at once.
"""

from collections.abc import Iterable, Sequence

from kafkatool.broker.controller.states import PartitionStatus, ReplicaStatus
from kafkatool.core.model.values import LeaderAndIsr, PartitionState, TopicPartition, join_ids
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.leader_and_isr import LeaderAndIsrPartition, LeaderAndIsrResponse
from kafkatool.core.protocol.messages.stop_replica import StopReplicaResponse
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataPartition, UpdateMetadataResponse


def partition_new(partition: TopicPartition, old: PartitionStatus, replicas: Sequence[int]) -> str:
    """Format line B1."""
    return f"Changed partition {partition} state from {old} to NewPartition with assigned replicas {join_ids(replicas)}"


def partition_online(partition: TopicPartition, old: PartitionStatus, state: PartitionState) -> str:
    """Format line B2."""
    now = state.leader_and_isr
    return (
        f"Changed partition {partition} from {old} to OnlinePartition with state "
        f"LeaderAndIsr(leader={_id(now.leader)}, leaderEpoch={now.leader_epoch}, "
        f"isr=List({join_ids(now.isr, ', ')}), zkVersion={state.version})"
    )


def partition_marked(partition: TopicPartition, old: PartitionStatus, new: PartitionStatus) -> str:
    """Format line B3."""
    return f"Changed partition {partition} state from {old} to {new}"


def partition_failed(
    controller: int, epoch: int, partition: TopicPartition, old: PartitionStatus, new: PartitionStatus
) -> str:
    """Format line B4: an illegal or failed change."""
    return f"Controller {controller} epoch {epoch} failed to change state for partition {partition} from {old} to {new}"


def replica_changed(broker: int, partition: TopicPartition, old: ReplicaStatus, new: ReplicaStatus) -> str:
    """Format line B5."""
    return f"Changed state of replica {broker} for partition {partition} from {old} to {new}"


def replica_failed(
    controller: int, epoch: int, broker: int, partition: TopicPartition, old: ReplicaStatus, new: ReplicaStatus
) -> str:
    """Format line B6: an illegal or failed change."""
    return (
        f"Controller {controller} epoch {epoch} initiated state change of replica {broker} for partition {partition} "
        f"from {old} to {new} failed"
    )


def reassignment_sent(partition: TopicPartition, state: LeaderAndIsr, replicas: Sequence[int]) -> str:
    """Format line B7."""
    leader = _id(state.leader)
    return (
        f"Sent LeaderAndIsr request (Leader:{leader},ISR:{join_ids(state.isr)},LeaderEpoch:{state.leader_epoch},"
        f"ControllerEpoch:{state.controller_epoch}) with new assigned replica list {join_ids(replicas)} "
        f"to leader {leader} for partition being reassigned {partition}"
    )


def reassignment_failed(partition: TopicPartition, replicas: Sequence[int]) -> str:
    """Format line B8."""
    return (
        f"Failed to send LeaderAndIsr request with new assigned replica list {join_ids(replicas)} "
        f"to leader for partition being reassigned {partition}"
    )


def leader_and_isr_refused(response: LeaderAndIsrResponse, broker: int) -> str:
    """Format line B9."""
    codes = ", ".join(f"{p.topic}-{p.partition}={ErrorCode(p.error_code).name}" for p in response.partitions)
    error = ErrorCode(response.error_code).name
    return (
        f"Received error in LeaderAndIsr response LeaderAndIsrResponse(responses={{{codes}}}, error={error}) "
        f"from broker {broker}"
    )


def replicas_offline(partitions: Iterable[TopicPartition], broker: int) -> str:
    """Format line B10."""
    return f"Mark replicas {','.join(map(str, partitions))} on broker {broker} as offline"


def response_received(
    response: LeaderAndIsrResponse | StopReplicaResponse | UpdateMetadataResponse,
    request: str,
    correlation_id: int,
    node: str,
) -> str:
    """Format line B11. ``request`` is LEADER_AND_ISR, STOP_REPLICA or UPDATE_METADATA; ``node`` from ``node_text``."""
    partitions = ""
    if not isinstance(response, UpdateMetadataResponse):
        entries = ",".join(
            f"{{topic={p.topic},partition={p.partition},error_code={p.error_code}}}" for p in response.partitions
        )
        partitions = f",partitions=[{entries}]"
    return (
        f"Received response {{error_code={response.error_code}{partitions}}} for request {request} "
        f"with correlation id {correlation_id} sent to broker {node}"
    )


def node_text(broker: int, host: str, port: int, rack: str | None) -> str:
    """Format a broker as Kafka's Node prints it."""
    return f"{host}:{port} (id: {broker} rack: {'null' if rack is None else rack})"


def leader_and_isr_sent(state: LeaderAndIsrPartition, brokers: Iterable[int]) -> list[str]:
    """Format lines B12, one per receiver."""
    text = (
        f" LeaderAndIsr request PartitionState(controllerEpoch={state.controller_epoch}, leader={state.leader}, "
        f"leaderEpoch={state.leader_epoch}, isr={join_ids(state.isr)}, zkVersion={state.zk_version}, "
        f"replicas={join_ids(state.replicas)}, isNew={'true' if state.is_new else 'false'}) to broker "
    )
    end = f" for partition {state.topic}-{state.partition}"
    return [
        f"Sending become-{'leader' if broker == state.leader else 'follower'}{text}{broker}{end}" for broker in brokers
    ]


def update_metadata_sent(state: UpdateMetadataPartition, brokers: str) -> str:
    """Format line B13. ``brokers`` is ``1, 2, 3``."""
    return (
        f"Sending UpdateMetadata request PartitionState(controllerEpoch={state.controller_epoch}, "
        f"leader={state.leader}, leaderEpoch={state.leader_epoch}, isr={state.isr}, zkVersion={state.zk_version}, "
        f"replicas={state.replicas}, offlineReplicas={state.offline_replicas}) to brokers Set({brokers}) "
        f"for partition {state.topic}-{state.partition}"
    )


def stop_replica_sent(partition: TopicPartition, leader_epoch: int, *, delete: bool, broker: int) -> str:
    """Format line C16, as Kafka 2.8: 1.1.1 says nothing when it sends StopReplica."""
    return (
        f"Sending StopReplica request StopReplicaPartitionState(partitionIndex={partition.partition}, "
        f"leaderEpoch={leader_epoch}, deletePartition={'true' if delete else 'false'}) to broker {broker} "
        f"for partition {partition}"
    )


def _id(leader: int | None) -> int:
    return -1 if leader is None else leader
