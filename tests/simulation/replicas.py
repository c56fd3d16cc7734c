"""What a broker keeps and how it obeys: roles, log directories, metadata, epochs (CTL-13, 58 to 60; BRK-24 to 31, 109).

A broker's disks outlive its process. Replication is reduced to what the controller can see of it: who follows whom in
which leader epoch, and so who may be in the ISR.
"""

from dataclasses import dataclass, field

from kafkatool.broker.controller.telling.channels import Answer, ControlRequest
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrResponsePartition,
)
from kafkatool.core.protocol.messages.stop_replica import (
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaResponsePartition,
)
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


@dataclass(slots=True)
class Role:
    """What a broker was last told of one partition, and what it made of it."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    zk_version: int
    replicas: tuple[int, ...]
    controller_epoch: int
    fetching: bool = True
    stale: bool = False  # the ISR could not be written: it stays as it is until the next LeaderAndIsr (Z-39)


@dataclass(slots=True)
class Disk:
    """What a killed process leaves: directories of replicas; ``failed`` ones cannot be read until it is mended."""

    directories: dict[TopicPartition, None] = field(default_factory=dict)
    failed: dict[TopicPartition, None] = field(default_factory=dict)


@dataclass(slots=True)
class Replicas:
    """One life of one broker."""

    id: int
    disk: Disk
    controller_epoch: int = 0
    roles: dict[TopicPartition, Role] = field(default_factory=dict)
    metadata: dict[TopicPartition, tuple[int, int, tuple[int, ...]]] = field(default_factory=dict)
    known_brokers: tuple[int, ...] = ()

    def obey(self, request: ControlRequest, broker_epoch: int | None) -> Answer:
        """Act and answer. ``broker_epoch``: that of this life; None where the request does not name it."""
        message = request.message
        refusal = self._refusal(request, broker_epoch)
        match message:
            case LeaderAndIsrRequest():
                if refusal:
                    return LeaderAndIsrResponse(error_code=refusal, partitions=[])
                return LeaderAndIsrResponse(partitions=[self._take(s) for s in message.partition_states])
            case StopReplicaRequest():
                if refusal:
                    return StopReplicaResponse(error_code=refusal, partitions=[])
                return StopReplicaResponse(
                    partitions=[
                        StopReplicaResponsePartition(
                            topic=t, partition=p, error_code=self._stop(TopicPartition(t, p), message.delete_partitions)
                        )
                        for t, p in message.partitions
                    ]
                )
            case UpdateMetadataRequest():
                if not refusal:
                    self._learn(message)
                return UpdateMetadataResponse(error_code=refusal)

    def _refusal(self, request: ControlRequest, known: int | None) -> int:
        message = request.message
        if known is not None and message.broker_epoch < known:
            return ErrorCode.STALE_BROKER_EPOCH
        if message.controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = message.controller_epoch
        return ErrorCode.NONE

    def _take(self, state: LeaderAndIsrPartition) -> LeaderAndIsrResponsePartition:
        return LeaderAndIsrResponsePartition(
            topic=state.topic, partition=state.partition, error_code=self._take_role(state)
        )

    def _take_role(self, state: LeaderAndIsrPartition) -> int:
        partition = TopicPartition(state.topic, state.partition)
        if partition in self.disk.failed:
            return ErrorCode.KAFKA_STORAGE_ERROR
        known = self.roles.get(partition)
        if known is not None and state.leader_epoch <= known.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if self.id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self.disk.directories[partition] = None
        self.roles[partition] = Role(
            state.leader,
            state.leader_epoch,
            tuple(state.isr),
            state.zk_version,
            tuple(state.replicas),
            state.controller_epoch,
        )
        return ErrorCode.NONE

    def _stop(self, partition: TopicPartition, delete: bool) -> int:
        if partition in self.disk.failed:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if delete:
            self.roles.pop(partition, None)
            self.disk.directories.pop(partition, None)
        elif partition in self.roles:
            self.roles[partition].fetching = False
        return ErrorCode.NONE

    def _learn(self, message: UpdateMetadataRequest) -> None:
        self.known_brokers = tuple(sorted(b.id for b in message.live_brokers))
        for state in message.partition_states:
            partition = TopicPartition(state.topic, state.partition)
            if state.leader == -2:
                self.metadata.pop(partition, None)
            else:
                self.metadata[partition] = (state.leader, state.leader_epoch, tuple(state.replicas))

    def fail_disk(self, partitions: list[TopicPartition]) -> None:
        """Lose the log directory that holds these."""
        for partition in partitions:
            self.disk.failed[partition] = None
            self.roles.pop(partition, None)
