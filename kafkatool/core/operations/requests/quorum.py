"""The quorum of controllers that keeps the metadata of a cluster without ZooKeeper, as its leader tells it."""

from collections.abc import Mapping
from dataclasses import dataclass

from kafkatool.core.protocol.messages import describe_quorum
from kafkatool.core.protocol.messages.describe_quorum import (
    DescribedQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)


@dataclass(frozen=True, slots=True)
class Quorum:
    """Who leads it. ``behind_s``: how long ago each voter last had all there was; None: not told, or never."""

    leader: int | None
    epoch: int
    behind_s: Mapping[int, float | None]

    @property
    def tells_times(self) -> bool:
        """Tell whether it says of any voter how far it is behind; nodes older than 3.4 do not."""
        return any(behind is not None for behind in self.behind_s.values())


NO_QUORUM = Quorum(None, 0, {})


def quorum_request() -> DescribeQuorumRequest:
    """Make the request that asks for it."""
    partition = describe_quorum.QuorumPartition(partition_index=0)
    topic = describe_quorum.QuorumTopic(topic_name=describe_quorum.METADATA_TOPIC, partitions=[partition])
    return DescribeQuorumRequest(topics=[topic])


def described_in(answer: DescribeQuorumResponse) -> DescribedQuorumPartition | None:
    """Return what an answer tells of the one partition that was asked about; None: nothing."""
    return next((p for t in answer.topics for p in t.partitions), None)


def quorum_of(answer: DescribeQuorumResponse) -> Quorum:
    """Return what an answer tells; an error, or no leader, is a quorum without one."""
    described = described_in(answer)
    if answer.error_code or described is None or described.error_code or described.leader_id < 0:
        return NO_QUORUM
    last = {v.replica_id: v.last_caught_up_timestamp for v in described.current_voters}
    newest = max(last.values(), default=-1)
    behind = {voter: (newest - at) / 1000 if at >= 0 else None for voter, at in sorted(last.items())}
    return Quorum(described.leader_id, described.leader_epoch, behind)
