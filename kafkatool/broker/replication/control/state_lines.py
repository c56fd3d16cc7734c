"""The lines this broker writes to state-change.log about control requests, in the words of Kafka 1.1.1.

Each function makes the lines of one template (Kafka 1.1.1 server/ReplicaManager.scala, MetadataCache.scala). They are
generators: when the log is switched off, nothing is formatted.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kafkatool.broker.metadata_cache import LEADER_BEING_DELETED
from kafkatool.core.model.values import TopicPartition, join_ids
from kafkatool.core.protocol.messages.leader_and_isr import LeaderAndIsrPartition
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataPartition

TRACE, INFO, WARN, ERROR = "TRACE", "INFO", "WARN", "ERROR"


class Origin(NamedTuple):
    """The request a line is about."""

    broker_id: int
    controller_id: int
    controller_epoch: int
    correlation_id: int

    @property
    def me(self) -> str:
        return f"[Broker id={self.broker_id}] "

    @property
    def controller(self) -> str:
        return f"controller {self.controller_id} epoch {self.controller_epoch}"

    @property
    def request(self) -> str:
        return f"correlation id {self.correlation_id} from {self.controller}"


def received(origin: Origin, states: Iterable[LeaderAndIsrPartition]) -> Iterator[str]:
    for s in states:
        yield (
            f"{origin.me}Received LeaderAndIsr request PartitionState(controllerEpoch={s.controller_epoch}, "
            f"leader={s.leader}, leaderEpoch={s.leader_epoch}, isr={join_ids(s.isr)}, zkVersion={s.zk_version}, "
            f"replicas={join_ids(s.replicas)}, isNew={str(s.is_new).lower()}) {origin.request} "
            f"for partition {s.topic}-{s.partition}"
        )


def old_controller(origin: Origin, latest_epoch: int) -> str:
    return (
        f"{origin.me}Ignoring LeaderAndIsr request from controller {origin.controller_id} with correlation id "
        f"{origin.correlation_id} since its controller epoch {origin.controller_epoch} is old. "
        f"Latest known controller epoch is {latest_epoch}"
    )


def ignored(origin: Origin, partition: TopicPartition, why: str) -> str:
    return (
        f"{origin.me}Ignoring LeaderAndIsr request from controller {origin.controller_id} with correlation id "
        f"{origin.correlation_id} epoch {origin.controller_epoch} for partition {partition} {why}"
    )


def in_offline_dir() -> str:
    return "as the local replica for the partition is in an offline log directory"


def not_assigned(state: LeaderAndIsrPartition) -> str:
    return f"as itself is not in assigned replica list {join_ids(state.replicas)}"


def old_leader_epoch(state: LeaderAndIsrPartition, current: int) -> str:
    return (
        f"since its associated leader epoch {state.leader_epoch} is not higher than the current leader epoch {current}"
    )


def starting(origin: Origin, role: str, partitions: Iterable[TopicPartition]) -> Iterator[str]:
    for tp in partitions:
        yield (
            f"{origin.me}Handling LeaderAndIsr request correlationId {origin.correlation_id} from {origin.controller} "
            f"starting the become-{role} transition for partition {tp}"
        )


def completed(origin: Origin, role: str, partitions: Iterable[TopicPartition]) -> Iterator[str]:
    for tp in partitions:
        yield (
            f"{origin.me}Completed LeaderAndIsr request correlationId {origin.correlation_id} from {origin.controller} "
            f"for the become-{role} transition for partition {tp}"
        )


def fetchers_stopped_to_lead(origin: Origin, states: Iterable[LeaderAndIsrPartition]) -> Iterator[str]:
    for s in states:
        yield (
            f"{origin.me}Stopped fetchers as part of become-leader request from {origin.controller} with correlation "
            f"id {origin.correlation_id} for partition {s.topic}-{s.partition} "
            f"(last update controller epoch {s.controller_epoch})"
        )


def fetchers_stopped_to_follow(origin: Origin, partitions: Iterable[TopicPartition]) -> Iterator[str]:
    for tp in partitions:
        yield (
            f"{origin.me}Stopped fetchers as part of become-follower request from {origin.controller} with "
            f"correlation id {origin.correlation_id} for partition {tp}"
        )


def truncated(origin: Origin, partitions: Iterable[TopicPartition]) -> Iterator[str]:
    for tp in partitions:
        yield (
            f"{origin.me}Truncated logs and checkpointed recovery boundaries for partition {tp} as part of "
            f"become-follower request with {origin.request}"
        )


def fetchers_started(origin: Origin, partitions: Iterable[TopicPartition]) -> Iterator[str]:
    for tp in partitions:
        yield (
            f"{origin.me}Started fetcher to new leader as part of become-follower request from {origin.controller} "
            f"with correlation id {origin.correlation_id} for partition {tp}"
        )


def fetchers_not_started(origin: Origin, partitions: Iterable[TopicPartition]) -> Iterator[str]:
    for tp in partitions:
        yield (
            f"{origin.me}Skipped the adding-fetcher step of the become-follower state change with {origin.request} "
            f"for partition {tp} since it is shutting down"
        )


def _updated(state: LeaderAndIsrPartition) -> str:
    return f"partition {state.topic}-{state.partition} (last update controller epoch {state.controller_epoch})"


def leads_already(origin: Origin, state: LeaderAndIsrPartition) -> str:
    return (
        f"{origin.me}Skipped the become-leader state change after marking its partition as leader with "
        f"{origin.request} for {_updated(state)} since it is already the leader for the partition."
    )


def follows_already(origin: Origin, state: LeaderAndIsrPartition) -> str:
    return (
        f"{origin.me}Skipped the become-follower state change after marking its partition as follower with "
        f"{origin.request} for {_updated(state)} since the new leader {state.leader} is the same as the old leader"
    )


def disk_failed(origin: Origin, role: str, state: LeaderAndIsrPartition, error: BaseException) -> str:
    return (
        f"{origin.me}Skipped the become-{role} state change with {origin.request} for {_updated(state)} since the replica "
        f"for the partition is offline due to disk error {error}"
    )


def leader_unavailable(origin: Origin, state: LeaderAndIsrPartition) -> str:
    return (
        f"{origin.me}Received LeaderAndIsrRequest with {origin.request} for {_updated(state)} but cannot become follower "
        f"since the new leader {state.leader} is unavailable."
    )


def stopping(broker_id: int, partition: TopicPartition, delete: bool) -> str:
    return f"[Broker id={broker_id}] Handling stop replica (delete={str(delete).lower()}) for partition {partition}"


def stopped(broker_id: int, partition: TopicPartition, delete: bool) -> str:
    return (
        f"[Broker id={broker_id}] Finished handling stop replica (delete={str(delete).lower()}) "
        f"for partition {partition}"
    )


def nothing_to_stop(broker_id: int, partition: TopicPartition) -> str:
    return _deletion_ignored(broker_id, partition, "as replica doesn't exist on broker")


def stop_failed(broker_id: int, partition: TopicPartition) -> str:
    return _deletion_ignored(broker_id, partition, "due to storage exception")


def _deletion_ignored(broker_id: int, partition: TopicPartition, why: str) -> str:
    return f"[Broker id={broker_id}] Ignoring stop replica (delete=true) for partition {partition} {why}"


def stop_from_old_controller(broker_id: int, epoch: int, latest_epoch: int) -> str:
    return (
        f"[Broker id={broker_id}] Received stop replica request from an old controller epoch {epoch}. "
        f"Latest known controller epoch is {latest_epoch}"
    )


def metadata_from_old_controller(origin: Origin, latest_epoch: int) -> str:
    return (
        f"{origin.me}Received update metadata request with correlation id {origin.correlation_id} from an old "
        f"controller {origin.controller_id} with epoch {origin.controller_epoch}. "
        f"Latest known controller epoch is {latest_epoch}"
    )


def metadata(origin: Origin, states: Iterable[UpdateMetadataPartition]) -> Iterator[str]:
    why = (
        f"in response to UpdateMetadata request sent by {origin.controller} with correlation id {origin.correlation_id}"
    )
    for s in states:
        if s.leader == LEADER_BEING_DELETED:
            yield f"{origin.me}Deleted partition {s.topic}-{s.partition} from metadata cache {why}"
            continue
        yield (
            f"{origin.me}Cached leader info PartitionState(controllerEpoch={s.controller_epoch}, leader={s.leader}, "
            f"leaderEpoch={s.leader_epoch}, isr=[{join_ids(s.isr, ', ')}], zkVersion={s.zk_version}, "
            f"replicas=[{join_ids(s.replicas, ', ')}], offlineReplicas=[{join_ids(s.offline_replicas, ', ')}]) "
            f"for partition {s.topic}-{s.partition} {why}"
        )
