"""How many partitions an internal topic has: what says where an id belongs (GRP-2, TXN-1)."""

import logging
from collections.abc import Callable

from kafkatool.broker.coordination.ownership import partition_for
from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.core.errors import KafkatoolError

log = logging.getLogger(__name__)


class PartitionCount:
    """The number of partitions of ``topic``; fixed once the topic was seen (GRP-2).

    The metadata cache tells that there is one, not how large it is: partitions that never had a leader are missing
    there, and brokers that counted differently would look for an id in different places.
    """

    def __init__(
        self, topic: str, metadata_cache: MetadataCache, *, default: int, ask: Callable[[], int | None], ids: str
    ) -> None:
        """Take ``ask``, which counts them in ZooKeeper (None: there is no such topic), and what belongs there (``ids``)."""
        self._topic = topic
        self._metadata_cache = metadata_cache
        self._default = default
        self._ask = ask
        self._ids = ids
        self._count: int | None = None
        self._growth_told = 0

    def startup(self) -> None:
        """Fix the number if the topic is there already. Raises ZooKeeperError."""
        self._count = self._ask()

    def get(self) -> int:
        """Return the number; before there is a topic, the one it will be made with."""
        seen = len(self._metadata_cache.snapshot.partitions.get(self._topic, ()))
        if self._count is not None and seen > self._count:
            self._warn_of_growth(seen)
        if self._count is None:
            if not seen:
                return self._default
            try:
                self._count = self._ask() or seen
            except KafkatoolError as e:
                log.warning("the partitions of %s cannot be counted, %d are known: %s", self._topic, seen, e)
                return seen
        return self._count

    def partition_of(self, id_: str) -> int:
        return partition_for(id_, self.get())

    def _warn_of_growth(self, now: int) -> None:
        if now > max(self._growth_told, self._count or now):
            self._growth_told = now
            log.warning(
                "%s has grown from %s to %d partitions: %s are looked for in the first %s until every broker of the "
                "cluster was restarted",
                self._topic,
                self._count,
                now,
                self._ids,
                self._count,
            )
