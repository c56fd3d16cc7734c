"""Markers that come late, after others were sent in their place; they are known by what they come by (TXN-85).

A coordinator that gets no answer sends its markers once more, over a new connection or to a new leader, and lets the
producer go on. The first ones, should they come after all, would end the producer's next transaction in the midst: nothing
in them tells which one is meant. But their connection is older than one by which that coordinator has sent markers since,
or than the leadership here. Who is taken for late though he is not connects anew and repeats.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple

from kafkatool.broker.replication.partition.local_partitions import LocalPartitions
from kafkatool.core.model.values import TopicPartition

_MOST_SENDERS: Final = 1000  # brokers have one name each; what administrators' tools call themselves is forgotten first


class Sender(NamedTuple):
    """Who sends markers, by its client id, and when its connection was accepted, in ms of the replicas' clock."""

    client_id: str
    accepted_ms: float


class LateMarkers:
    """The newest connection of each sender. Thread-safe."""

    def __init__(self, partitions: LocalPartitions) -> None:
        self._partitions = partitions
        self._lock = threading.Lock()
        self._newest: OrderedDict[str, float] = OrderedDict()  # the one used last is last

    def note(self, sender: Sender) -> None:
        """Take what it has sent by an older connection for late from now on."""
        with self._lock:
            known = self._newest.get(sender.client_id, sender.accepted_ms)
            self._newest[sender.client_id] = max(known, sender.accepted_ms)
            self._newest.move_to_end(sender.client_id)
            if len(self._newest) > _MOST_SENDERS:
                self._newest.popitem(last=False)

    def is_superseded(self, sender: Sender) -> bool:
        """Tell whether it has sent markers by a newer connection."""
        return self._newest.get(sender.client_id, sender.accepted_ms) > sender.accepted_ms

    def are_late(self, sender: Sender, partitions: Iterable[TopicPartition]) -> bool:
        """Tell whether its markers for these partitions may have been sent once more since, here or to another leader."""
        led = (self._partitions.get(tp) for tp in partitions)
        return self.is_superseded(sender) or any(p is not None and p.took_over_ms >= sender.accepted_ms for p in led)
