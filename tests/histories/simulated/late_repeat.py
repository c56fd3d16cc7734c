"""A produce request that comes late to a broker which knows of its batch from the log alone, and that log is compacted."""

from functools import partial
from typing import Final

from kafkatool.core.protocol.records.batches import read_header
from tests.histories.simulated.brokers import Broker, Produced
from tests.histories.simulated.controller import Controller
from tests.histories.simulated.windows import Stage

_FORGOTTEN_MS: Final = 6000  # until others have written every record key of the batch, and that is compacted
_BACK_MS: Final = 2000


class LateRepeat:
    """Holds up a request of a producer, and has it served when hardly anything tells that its batch is there.

    The producer's repeat, over another connection, is served, but not answered: it gives up and writes no more. When the
    record has been replaced and compacted away, the broker's replica is moved away and comes back: what it knows of the
    producer it has from the others' logs, which keep the last batch of each, empty. It leads again, and gets the request
    that was held up, over a connection that has been there all the time.
    """

    def __init__(self, stage: Stage, broker: Broker, key: int) -> None:
        self._stage, self._broker, self._key, self._life = stage, broker, key, broker.life
        assert isinstance(stage.controller, Controller)  # the other one has no orders for a single replica
        self._controller = stage.controller
        self._first: Produced | None = None
        self._repeat: Produced | None = None

    def begin(self) -> None:
        """Wait for a request to hold up."""
        self._broker.taken = self._take
        self._stage.when(self._is_forgotten, self._move_away, self._end, _FORGOTTEN_MS)

    def _take(self, sent: Produced) -> bool:
        """Take a request from the broker, one without a transaction, and all that repeat it."""
        if sent.key != self._key or sent.transactional_id is not None:
            return False
        if self._first is None:
            self._first = sent
            return True
        if sent.data != self._first.data:
            return False
        if self._repeat is None:
            self._repeat = Produced(sent.key, sent.data)
            self._broker.serve(self._repeat)  # the answer comes to nobody
        return True

    def _is_forgotten(self) -> bool:
        """Tell whether nothing of the record is left, on any broker, and all have what came after it."""
        is_written = self._repeat is not None and self._repeat.offset >= 0
        if not is_written or not self._stage.are_all_well() or self._is_lost():
            return False
        return not any(self._has_record(one) for one in self._stage.brokers.values())

    def _has_record(self, broker: Broker) -> bool:
        assert self._first is not None and self._repeat is not None  # it was written
        own = read_header(self._first.data)
        assert own is not None  # clients send whole batches
        log = broker.partitions[self._key].log
        if log.log_end_offset <= self._repeat.offset:
            return True  # it is still to come
        return any(
            header.record_count and (header.producer_id, header.base_sequence) == (own.producer_id, own.base_sequence)
            for segment in log.segments
            for _, header in segment.headers()
        )

    def _is_lost(self) -> bool:
        """Tell whether the broker has died, and perhaps been started anew: its connections are gone."""
        return not self._broker.alive or self._broker.life != self._life

    def _move_away(self) -> None:
        stage, broker, key = self._stage, self._broker, self._key
        others = [one for one in stage.brokers if one != broker.id]
        if self._controller.state(key)[0].leader == broker.id:
            self._controller.move(key, stage.chance.choice(others))
        self._controller.take_out(key, broker.id)
        broker.begin_anew(key)
        self._controller.tell(key, (broker.id,))
        stage.when(lambda: not self._is_lost() and stage.is_in_sync(broker, key), self._lead, self._end, _BACK_MS)

    def _lead(self) -> None:
        stage, broker, key = self._stage, self._broker, self._key
        self._controller.move(key, broker.id)
        stage.when(lambda: not self._is_lost() and stage.leader_of(key) is broker, self._deliver, self._end, _BACK_MS)

    def _deliver(self) -> None:
        assert self._first is not None  # it was held up
        self._end()
        self._broker.send(partial(self._broker.serve, self._first))

    def _end(self) -> None:
        if not self._is_lost():
            self._broker.taken = None
