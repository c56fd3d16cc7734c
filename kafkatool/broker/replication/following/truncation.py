"""The decision where a follower truncates its log before it fetches from a leader (BRK-66; KIP-101, KIP-279).

Source: Kafka 2.3.1 server/AbstractFetcherThread.scala, getOffsetTruncationState.
"""

from typing import NamedTuple

from kafkatool.broker.storage.log.leader_epochs import LeaderEpochCache


class Truncation(NamedTuple):
    """A cut at ``offset``; unless ``done`` the leader has to be asked again, about an older epoch."""

    offset: int
    done: bool


def decide_truncation(
    epochs: LeaderEpochCache, log_end: int, high_watermark: int, reply_epoch: int, reply_end: int
) -> Truncation:
    """Decide from the leader's answer about this follower's newest epoch: the epoch it knows, and its end there.

    -1 stands for unknown: no end means that the leader knows no such epoch, so only the high watermark is sure; an
    end without epoch comes from a leader older than KIP-279.
    """
    if reply_end < 0:
        return Truncation(min(high_watermark, log_end), True)
    if reply_epoch < 0:
        return Truncation(min(reply_end, log_end), True)
    own_epoch, own_end = epochs.end_offset_for(reply_epoch, log_end)
    if own_end < 0:
        return Truncation(min(reply_end, log_end), True)
    if own_epoch == reply_epoch:
        return Truncation(min(own_end, reply_end, log_end), True)
    # The leader's epoch is not known here: what follows the largest epoch below it is not in the leader's log.
    return Truncation(min(own_end, log_end), False)
