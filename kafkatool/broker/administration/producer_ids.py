"""Producer ids, handed out from blocks of 1000 that the brokers of a cluster reserve in ZooKeeper (BRK-163).

Ids of a block that were not used before a stop are lost. Source: Kafka 1.1.1
coordinator/transaction/ProducerIdManager.scala.
"""

import logging
import threading

from kafkatool.core.errors import NodeExistsError, VersionConflictError
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ProducerIdBlockZnode

log = logging.getLogger(__name__)

BLOCK_SIZE = 1000


class ProducerIds:
    """The source of producer ids. Thread-safe; asks ZooKeeper once in a thousand times."""

    def __init__(self, zookeeper: ZooKeeper, broker_id: int) -> None:
        self._zookeeper = zookeeper
        self._broker_id = broker_id
        self._lock = threading.Lock()
        self._next, self._last = 0, -1

    def next_id(self) -> int:
        """Return an id no other producer of the cluster has. Raises ZooKeeperError when it has to reserve and cannot."""
        with self._lock:
            if self._next > self._last:
                self._next, self._last = self._reserve()
            self._next += 1
            return self._next - 1

    def _reserve(self) -> tuple[int, int]:
        while True:
            node = self._zookeeper.get(ProducerIdBlockZnode.PATH)
            # The node is made without content when a broker starts, before anybody needed an id.
            start = ProducerIdBlockZnode.decode(node.data)[2] + 1 if node and node.data else 0
            end = start + BLOCK_SIZE - 1
            data = ProducerIdBlockZnode.encode(self._broker_id, start, end)
            try:
                if node is None:
                    self._zookeeper.create(ProducerIdBlockZnode.PATH, data)
                else:
                    self._zookeeper.set(ProducerIdBlockZnode.PATH, data, node.version)
            except (NodeExistsError, VersionConflictError):
                continue  # another broker took this block
            log.info("reserved producer ids %d to %d", start, end)
            return start, end
