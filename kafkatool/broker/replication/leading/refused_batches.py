"""Transactional batches that were refused for a while: none that was sent behind one is to be written in its place (TXN-76).

Clients send several batches of a partition one behind the other. Of one that comes after a refused one the log tells by its
sequence that another is missing, unless it knows nothing of the producer: then any may be the first (TXN-81). A producer of
librdkafka that is told of a later batch takes the earlier ones for written, too, and commits without them. So a later one is
refused likewise, and all of them come again in their order. The first refusal may have come before the partition was led
here, or was here at all: it is kept beside the logs.
"""

import time
from collections.abc import Callable
from threading import Lock
from typing import Final, NamedTuple

from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.records.batches import BatchHeader

NO_SEQUENCE: Final = 2**31  # above all that are
_KEPT = 10_000
_KEPT_S: Final = 3600.0
"""No client has batches on their way for longer. The log of another leader may have forgotten the producer in a week."""


class _Refused(NamedTuple):
    epoch: int
    sequence: int
    at: float


_NONE: Final = _Refused(-1, NO_SEQUENCE, 0.0)


class RefusedBatches:
    """The lowest sequence refused of each producer, in its newest epoch, until something of it is written. Any thread.

    Of too many producers the oldest are forgotten, and a sequence an hour after it was refused last; it is only until those
    behind a refused batch have come that they count. ``clock`` gives seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._lowest: dict[tuple[TopicPartition, int], _Refused] = {}

    def note(self, partition: TopicPartition, header: BatchHeader) -> None:
        """Keep that a batch was refused, which its producer sends again."""
        key = partition, header.producer_id
        told = _Refused(header.producer_epoch, header.base_sequence, self._clock())
        with self._lock:
            known = self._lowest.pop(key, told)
            if known.epoch == told.epoch:
                self._lowest[key] = known if known.sequence < told.sequence else told  # those behind renew nothing
            else:
                self._lowest[key] = max(known, told)
            if len(self._lowest) > _KEPT:
                del self._lowest[next(iter(self._lowest))]

    def forget(self, partition: TopicPartition, producer_id: int) -> None:
        """Let the log alone tell which batch is the next."""
        if self._lowest:
            with self._lock:
                self._lowest.pop((partition, producer_id), None)

    def lowest(self, partition: TopicPartition, header: BatchHeader) -> int:
        """Return the lowest sequence that was refused of the batch's producer and epoch; ``NO_SEQUENCE``: none was."""
        refused = self._lowest.get((partition, header.producer_id), _NONE)
        counts = refused.epoch == header.producer_epoch and self._clock() - refused.at < _KEPT_S
        return refused.sequence if counts else NO_SEQUENCE
