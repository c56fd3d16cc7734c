"""How many tombstones go into one batch: both coordinators write them for all that has expired or was deleted."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from kafkatool.broker.replication.replica_manager import ReplicaManager
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.records.batches import HEADER_BYTES

T = TypeVar("T")

BATCH_BYTES: Final = 256 * 1024
"""Of one batch, if max.message.bytes is no less; it is also a slice of the work (GRP-17, TXN-15)."""
_RECORD_OVERHEAD_BYTES: Final = 20  # lengths, times and the key's version, at most


def in_batches(things: Iterable[T], key_bytes: Callable[[T], int], largest_bytes: int) -> Iterator[list[T]]:
    """Divide what gets a tombstone so that those of each part fit into a batch; one that fits into none is by itself."""
    part: list[T] = []
    size_bytes = HEADER_BYTES
    for thing in things:
        record_bytes = key_bytes(thing) + _RECORD_OVERHEAD_BYTES
        if part and size_bytes + record_bytes > largest_bytes:
            yield part
            part, size_bytes = [], HEADER_BYTES
        part.append(thing)
        size_bytes += record_bytes
    if part:
        yield part


def largest_batch(replica_manager: ReplicaManager, partition: TopicPartition) -> int:
    """Return how many bytes a batch of them may have there; where the partition has gone any append is refused."""
    led = replica_manager.partitions.get(partition)
    return BATCH_BYTES if led is None else min(BATCH_BYTES, led.log.config.max_message_bytes)
