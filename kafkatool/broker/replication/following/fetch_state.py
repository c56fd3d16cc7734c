"""The state of one followed partition, as its fetcher keeps it."""

from dataclasses import dataclass, field

from kafkatool.broker.replication.partition.partition import Partition
from kafkatool.core.protocol.messages.fetch import FetchRequestPartition


@dataclass(slots=True, eq=False)
class FollowedPartition:
    """A followed partition in one leader epoch; another epoch brings a new object, so a late answer is recognised.

    ``truncating``: the leader must be asked where the logs part before anything is fetched (BRK-66, 67).
    """

    partition: Partition
    leader_epoch: int
    truncating: bool = True
    delayed_until_ms: float = 0.0
    """Time until which it is left alone (BRK-71)."""
    lag: int | None = None
    """Records behind the leader's high watermark; None: not known yet (BRK-157)."""
    asked_at: tuple[int, int] | None = None
    """Fetch offset and log start that the leader was told last."""
    max_bytes: int = 0
    """Limit of what one answer may bring."""
    fetch_offset: int = field(init=False)
    """Next offset to fetch."""
    log_start_offset: int = field(init=False)

    def __post_init__(self) -> None:
        self.fetch_offset = self.partition.high_watermark.offset
        self.log_start_offset = self.partition.log.log_start_offset

    def wanted(self) -> FetchRequestPartition:
        """Make its part of the next fetch request."""
        return FetchRequestPartition(
            partition=self.partition.tp.partition,
            current_leader_epoch=self.leader_epoch,
            fetch_offset=self.fetch_offset,
            log_start_offset=self.log_start_offset,
            partition_max_bytes=self.max_bytes,
        )
