"""The steps of a follower with one partition, on the leader's answers: truncate, append (BRK-66, 70 to 74)."""

import enum
import logging
from collections.abc import Callable

from kafkatool.broker.replication.following.fetch_state import FollowedPartition
from kafkatool.broker.replication.following.leader_endpoint import LeaderEndpoint, LookupRefusedError
from kafkatool.broker.replication.following.truncation import decide_truncation
from kafkatool.broker.replication.partition.partition import Partition, StaleRoleError
from kafkatool.broker.replication.partition.partition_reads import EARLIEST, LATEST
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.core.errors import CorruptRecordsError, KafkatoolError, OutOfResourcesError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.fetch import FetchResponsePartition
from kafkatool.core.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponsePartition

log = logging.getLogger(__name__)


class FollowStep(enum.Enum):
    """The outcome of a step with one partition."""

    DONE = enum.auto()
    DELAY = enum.auto()
    DROP = enum.auto()  # fenced, or not ours any more: wait for LeaderAndIsr
    FAILED = enum.auto()


class TruncationRefusedError(KafkatoolError):
    """The leader lacks records that were committed here, and kt.halt.on.truncation.below.hw is set."""


class Follow:
    """The steps. Used by one fetcher's thread; StorageError, OffsetOrderError and bugs pass through to it (BRK-72)."""

    def __init__(
        self, config: BrokerConfig, leader: LeaderEndpoint, check_delayed: Callable[[TopicPartition], None]
    ) -> None:
        self._leader = leader
        self._check_delayed = check_delayed
        self._halt_below_high_watermark = config.kt_halt_on_truncation_below_hw

    def nothing_new(self, followed: FollowedPartition, answer: FetchResponsePartition) -> bool:
        """Tell whether the answer, as most do on a quiet partition, changes nothing at all."""
        partition = followed.partition
        if answer.error_code or answer.records or followed.lag:
            return False
        committed = min(answer.high_watermark, followed.fetch_offset)
        if committed != partition.high_watermark.offset or answer.log_start_offset > partition.log.log_start_offset:
            return False
        followed.lag = max(0, answer.high_watermark - followed.fetch_offset)
        return True

    def take(self, followed: FollowedPartition, answer: FetchResponsePartition) -> FollowStep:
        """Append what was fetched, follow the leader's high watermark and log start."""
        partition, code = followed.partition, answer.error_code
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return self._out_of_range(followed)
        if code != ErrorCode.NONE:
            return _refused(followed, code)
        before = partition.high_watermark.offset
        try:
            followed.fetch_offset = partition.append_as_follower(
                memoryview(answer.records or b""),  # type: ignore[arg-type]
                followed.leader_epoch,
                fetched_at=followed.fetch_offset,
                high_watermark=answer.high_watermark,
                log_start_offset=answer.log_start_offset,
            )
        except StaleRoleError:
            return FollowStep.DROP
        except (CorruptRecordsError, OutOfResourcesError) as e:  # what came before is appended
            log.error("%s: fetched at %d: %s", partition.tp, followed.fetch_offset, e)
            followed.fetch_offset = partition.log.log_end_offset
            return FollowStep.DELAY
        followed.log_start_offset = partition.log.log_start_offset
        followed.lag = max(0, answer.high_watermark - followed.fetch_offset)
        if partition.high_watermark.offset != before:
            self._check_delayed(partition.tp)
        return FollowStep.DONE

    def truncate_to_high_watermark(self, followed: FollowedPartition) -> FollowStep:
        """Cut at the high watermark: no epoch is known here, it is all there is to go by."""
        return self._cut(followed, followed.partition.high_watermark.offset, done=True)

    def truncate(self, followed: FollowedPartition, answer: OffsetForLeaderEpochResponsePartition | None) -> FollowStep:
        """Cut where the logs part, as the leader's answer about the newest local epoch says."""
        if answer is None:
            return FollowStep.DELAY
        if answer.error_code != ErrorCode.NONE:
            return _refused(followed, answer.error_code)
        partition = followed.partition
        epochs = partition.log.leader_epochs
        asked = epochs.latest
        cut = decide_truncation(
            epochs,
            partition.log.log_end_offset,
            partition.high_watermark.offset,
            answer.leader_epoch,
            answer.end_offset,
        )
        outcome = self._cut(followed, cut.offset, done=cut.done)
        if outcome is FollowStep.DONE and not cut.done and epochs.latest == asked:
            return FollowStep.DELAY  # the same question would follow at once, and the same answer
        return outcome

    def _cut(self, followed: FollowedPartition, offset: int, *, done: bool) -> FollowStep:
        partition = followed.partition
        if offset < partition.high_watermark.offset:
            self._warn_of_loss(followed, offset)
        if (gap := partition.log.gap_at) is not None and gap < offset:
            log.warning("%s: records may be missing from %d on since a power cut: copying anew", partition.tp, gap)
            offset, done = gap, False  # the answer was about what lay behind it: below, the logs may have parted before
        try:
            followed.fetch_offset = partition.truncate(followed.leader_epoch, offset)
        except StaleRoleError:
            return FollowStep.DROP
        followed.log_start_offset = partition.log.log_start_offset
        followed.truncating = not done
        return FollowStep.DONE

    def _out_of_range(self, followed: FollowedPartition) -> FollowStep:
        """Cut to the leader's end, or start over where it begins: it has less, or dropped what we lack (BRK-73, 74)."""
        asked_for = followed.fetch_offset
        try:
            followed.fetch_offset = self._nearest_offset(followed)
        except LookupRefusedError as e:
            log.warning("%s", e)
            return FollowStep.DELAY
        except StaleRoleError:
            return FollowStep.DROP
        followed.log_start_offset = followed.partition.log.log_start_offset
        topic, number = followed.partition.tp
        reset_to = followed.fetch_offset
        log.error(
            "Current offset %d for partition [%s,%d] out of range; reset offset to %d",
            asked_for,
            topic,
            number,
            reset_to,
        )
        return FollowStep.DONE

    def _nearest_offset(self, followed: FollowedPartition) -> int:
        """Bring the log to where the leader's has something to go on with; return the offset to fetch there."""
        partition, epoch = followed.partition, followed.leader_epoch
        end = partition.log.log_end_offset
        latest = self._leader.log_edge(partition.tp, epoch, LATEST)
        if latest < end:
            if latest < partition.high_watermark.offset:
                self._warn_of_loss(followed, latest)
            _warn_of_reset(partition, end, "latest", latest)
            return partition.truncate(epoch, latest)
        earliest = self._leader.log_edge(partition.tp, epoch, EARLIEST)
        _warn_of_reset(partition, end, "start", earliest)
        if earliest > end:
            end = partition.restart_at(epoch, earliest)
        return max(earliest, end)

    def _warn_of_loss(self, followed: FollowedPartition, offset: int) -> None:
        partition = followed.partition
        text = (
            f"{partition.tp}: the leader's log makes us cut at {offset}, below the high watermark "
            f"{partition.high_watermark.offset}: records that counted as committed are lost"
        )
        if self._halt_below_high_watermark:
            raise TruncationRefusedError(text + "; refused by kt.halt.on.truncation.below.hw")
        log.warning("%s", text)


def _warn_of_reset(partition: Partition, end: int, edge: str, offset: int) -> None:
    """Say in the documents' words that the follower goes on at that edge of the leader's log."""
    log.warning(
        "Replica %d for partition %s reset its fetch offset from %d to current leader %s's %s offset %d",
        partition.broker_id,
        partition.tp,
        end,
        partition.leader_id,
        edge,
        offset,
    )


def _refused(followed: FollowedPartition, code: int) -> FollowStep:
    if code == ErrorCode.FENCED_LEADER_EPOCH:
        log.info("%s: fenced in epoch %d, waiting for LeaderAndIsr", followed.partition.tp, followed.leader_epoch)
        return FollowStep.DROP
    log.info("%s: the leader answered with error %d, trying again", followed.partition.tp, code)
    return FollowStep.DELAY
