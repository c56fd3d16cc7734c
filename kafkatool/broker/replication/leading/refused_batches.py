"""Transactional batches that were refused for a while: none that was sent behind one is to be written in its place (TXN-76).

Clients send several batches of a partition one behind the other. Of one that comes after a refused one the log tells by its
sequence that another is missing, unless it knows nothing of the producer: then any may be the first (TXN-81). A producer of
librdkafka that is told of a later batch takes the earlier ones for written, too, and commits without them. So a later one is
refused likewise, and all of them come again in their order. The first refusal may have come before the partition was led
here, or was here at all: it is kept beside the logs.
"""

from threading import Lock
from typing import Final

from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.records.batches import BatchHeader

NO_SEQUENCE: Final = 2**31  # above all that are
_KEPT = 10_000


class RefusedBatches:
    """The lowest sequence refused of each producer, in its newest epoch, until something of it is written. Any thread.

    Of too many producers the oldest are forgotten; it is only until those behind a refused batch have come that they count.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._lowest: dict[tuple[TopicPartition, int], tuple[int, int]] = {}

    def note(self, partition: TopicPartition, header: BatchHeader) -> None:
        """Keep that a batch was refused, which its producer sends again."""
        key, told = (partition, header.producer_id), (header.producer_epoch, header.base_sequence)
        with self._lock:
            known = self._lowest.pop(key, told)
            if known[0] == told[0]:
                self._lowest[key] = min(known, told)
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
        epoch, sequence = self._lowest.get((partition, header.producer_id), (-1, NO_SEQUENCE))
        return sequence if epoch == header.producer_epoch else NO_SEQUENCE
