"""Faults of several steps, each of which opens one window that chance alone hardly ever opens; and what all faults share.

A step is made when what it waits for is so. Whatever else befalls the brokers meanwhile, such a fault does only what may
happen to them: who dies has on its disk what it has acknowledged, and who leads is in sync.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Final

from kafkatool.broker.storage.log.log import Log
from kafkatool.broker.storage.segment.transaction_index import read_aborted
from kafkatool.core.protocol.records.batches import CONTROL
from tests.broker.replication.world import Clock
from tests.histories.simulated.brokers import BROKERS, KEYS, PARTITIONS, READ, Broker, Wires
from tests.histories.simulated.controller import Rule

STALLED_MS: Final = 180  # less than what puts followers out of the in-sync set
_PATIENCE_MS: Final = 900  # for what a step waits for
_TAIL_MS: Final = 60
_YOUNG_BYTES: Final = 800  # of a segment
_AGAIN_MS: Final = 20
_HEARD_MS: Final = 40  # until all who wait for a deposed leader's answer have one; the product tells them at once
_RECORD_BYTES: Final = 20  # fewer than any record has


class Stage:
    """What faults are played on, and what is due of them.

    ``is_over``: no new ones begin, and those under way do not go on.
    """

    def __init__(
        self, brokers: Mapping[int, Broker], controller: Rule, wires: Wires, clock: Clock, chance: Random
    ) -> None:
        self.is_over = False
        self.brokers, self.controller, self.wires, self.chance = brokers, controller, wires, chance
        self._clock = clock
        self._due: list[tuple[float, int, Callable[[], None]]] = []  # a heap
        self._order = count()

    def pass_ms(self) -> None:
        """Do what is due by now; what that makes due at once, it does the next time."""
        due = []
        while self._due and self._due[0][0] <= self._clock():
            due.append(heappop(self._due)[2])
        for what in due:
            what()

    def later(self, ms: float, what: Callable[[], None]) -> None:
        heappush(self._due, (self._clock() + ms, next(self._order), what))

    def when(
        self,
        is_so: Callable[[], bool],
        then: Callable[[], None],
        otherwise: Callable[[], None],
        ms: int = _PATIENCE_MS,
    ) -> None:
        """Do the one as soon as it is so, the other if that takes too long; neither once all is over."""
        if self.is_over:
            return
        if is_so():
            then()
        elif ms:
            self.later(1, partial(self.when, is_so, then, otherwise, ms - 1))
        else:
            otherwise()

    def revive(self, broker: Broker) -> None:
        """Start it again, as soon as it may be."""
        if not broker.alive and not self.controller.may_start(broker):
            self.later(_AGAIN_MS, partial(self.revive, broker))
        elif not broker.alive:
            broker.start()

    def revive_clean(self, broker: Broker) -> None:
        if broker.is_stopping:
            self.later(_AGAIN_MS, partial(self.revive_clean, broker))
        elif not broker.alive:
            broker.start(clean=True)

    def leader_of(self, key: int) -> Broker | None:
        """Return who leads, and knows of it."""
        state, _ = self.controller.state(key)
        leader = self.brokers.get(state.leader or 0)
        if leader is None or not leader.alive or leader.frozen:
            return None
        partition = leader.partitions[key]
        return leader if partition.is_leader and partition.leader_epoch == state.leader_epoch else None

    def led_by(self, broker: Broker) -> list[int]:
        """Return the keys that it leads."""
        return [key for key in KEYS if self.leader_of(key) is broker]

    def is_in_sync(self, broker: Broker, key: int) -> bool:
        return broker.alive and broker.id in self.controller.state(key)[0].isr

    def are_all_well(self) -> bool:
        well = all(broker.alive and not broker.frozen for broker in self.brokers.values())
        return well and self.controller.live == set(BROKERS) and self.controller.all_in_sync()


class Windows:
    """The faults of several steps."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    # --- away -----------------------------------------------------------------------------------------------------

    def go_away(self, broker: Broker) -> None:
        """Have a leader die with records of its own, and come back when its successor has been started anew and leads again.

        What it has to cut, only the begin of its successor's first epoch tells: the second one's is beyond its end.
        """
        stage = self._stage
        led = stage.led_by(broker)
        if led and stage.are_all_well():
            broker.stalled = PARTITIONS
            stage.later(_TAIL_MS, partial(self._leave, broker, stage.chance.choice(led), broker.life))

    def _leave(self, broker: Broker, key: int, life: int) -> None:
        stage, others = self._stage, [one for one in self._stage.brokers.values() if one is not broker]
        broker.stalled = ()
        if stage.is_over or broker.life != life or stage.leader_of(key) is not broker or not stage.are_all_well():
            return
        end = broker.partitions[key].log.log_end_offset
        if end == max(one.partitions[key].log.log_end_offset for one in others):
            return
        stage.controller.session_ended(broker.id)
        broker.kill()

        def is_beyond() -> bool:
            """The successor has filled a segment and begun another, all of it in sync, since it took over."""
            leader = stage.leader_of(key)
            if leader is None or len(stage.controller.state(key)[0].isr) < len(others):
                return False
            partition = leader.partitions[key]
            return partition.high_watermark.offset > partition.log.segments.active.base_offset > end

        stage.when(is_beyond, partial(self._start_successor_anew, broker, key), partial(stage.revive, broker))

    def _start_successor_anew(self, broker: Broker, key: int) -> None:
        stage = self._stage
        successor = stage.leader_of(key)
        assert successor is not None  # just seen
        stage.controller.session_ended(successor.id)
        if stage.chance.random() < 0.5:
            successor.stop()
            stage.later(_AGAIN_MS, partial(stage.revive_clean, successor))
        else:
            successor.flush()
            successor.kill()
            successor.lose_power(stage.chance, has_flushed=True)
            stage.later(_AGAIN_MS, partial(stage.revive, successor))

        def come_back() -> None:
            stage.controller.move(key, successor.id)
            stage.revive(broker)
            stage.when(
                partial(stage.is_in_sync, broker, key), partial(stage.controller.move, key, broker.id), _do_nothing
            )

        stage.when(partial(stage.is_in_sync, successor, key), come_back, partial(stage.revive, broker))

    # --- twice ----------------------------------------------------------------------------------------------------

    def fall_twice(self, broker: Broker) -> None:
        """Have the others die, and the broker twice: its process first, and its power as soon as it has read its logs again.

        What it was sent meanwhile only it has, and nobody could read; what is before that is on its disk. The others are
        out of the in-sync set before it could hear of that: so it leads again, with a part of what it had.
        """

        def is_young() -> bool:
            led = self._stage.led_by(broker)
            active = [broker.partitions[key].log.segments.active.size_bytes for key in led]
            return self._stage.are_all_well() and any(size < _YOUNG_BYTES for size in active)

        self._stage.when(is_young, partial(self._leave_alone, broker), _do_nothing, 200)

    def _leave_alone(self, broker: Broker) -> None:
        stage = self._stage
        broker.flush()
        broker.lazy = True
        stage.wires.cut(0, broker.id)
        others = [one for one in stage.brokers.values() if one is not broker]
        for other in others:
            other.kill()
        stage.later(stage.chance.choice((60, 100, 140)), partial(self._fall, broker, broker.life, others))

    def _fall(self, broker: Broker, life: int, others: list[Broker]) -> None:
        stage = self._stage
        broker.lazy = False
        stage.wires.mend(broker.id)
        if broker.alive and broker.life == life and not stage.is_over:
            for one in (*others, broker):
                stage.controller.session_ended(one.id)
            broker.kill()
            broker.start()
            broker.kill()
            broker.lose_power(stage.chance, has_flushed=True)
            stage.later(_AGAIN_MS, partial(stage.revive, broker))
        for other in others:
            stage.later(_AGAIN_MS, partial(stage.revive, other))

    # --- garbled --------------------------------------------------------------------------------------------------

    def garble(self, broker: Broker) -> None:
        """Leave garbage in the last record of a log, as a crash of the machine may, and have that broker lead.

        All others have the record. That of a marker is left as it is: a broker that took it for one would not start.
        """
        stage = self._stage
        if not stage.are_all_well():
            return
        key = stage.chance.choice(KEYS)
        active = broker.partitions[key].log.segments.active
        last = next(iter(deque(active.headers(), maxlen=1)), None)
        if last is None or last[1].is_control or stage.leader_of(key) is broker:
            return
        stage.controller.session_ended(broker.id)
        broker.kill()
        broker.garble(key, stage.chance.randint(1, _RECORD_BYTES), stage.chance)
        stage.later(_AGAIN_MS, partial(stage.revive, broker))
        stage.when(lambda: stage.is_in_sync(broker, key), partial(stage.controller.move, key, broker.id), _do_nothing)

    # --- early ----------------------------------------------------------------------------------------------------

    def remove_early(self, broker: Broker) -> None:
        """Have a leader go by size as soon as it has records of its own, and die.

        All before them it has removed in peace, and the others know that: so there is nothing that it may remove.
        """
        stage, life = self._stage, broker.life
        led = stage.led_by(broker)
        if not led or not stage.are_all_well():
            return
        key = stage.chance.choice(led)
        partition = broker.partitions[key]

        def is_led() -> bool:
            return broker.life == life and stage.leader_of(key) is broker

        def have_followed() -> bool:
            starts = {one.partitions[key].log.log_start_offset for one in stage.brokers.values() if one.alive}
            return is_led() and starts == {partition.log.log_start_offset}

        def has_own() -> bool:
            return is_led() and partition.log.log_end_offset > partition.high_watermark.offset + 1

        def go_on() -> None:
            if broker.life == life:
                broker.stalled = ()

        def remove_in_peace() -> None:
            _keep_nothing(partition.log)
            stage.when(have_followed, wait_for_own, _do_nothing)

        def wait_for_own() -> None:
            broker.stalled = READ
            stage.when(has_own, remove, go_on, STALLED_MS)

        def remove() -> None:
            if len(partition.log.segments) == 1:
                _keep_nothing(partition.log)
                stage.later(stage.chance.choice((10, 30, 60)), die)
            else:
                go_on()

        def die() -> None:
            if is_led():
                stage.controller.session_ended(broker.id)
                broker.kill()
                stage.later(_AGAIN_MS, partial(stage.revive, broker))

        stage.when(
            lambda: is_led() and partition.high_watermark.offset == partition.log.log_end_offset,
            remove_in_peace,
            _do_nothing,
        )

    # --- aborted --------------------------------------------------------------------------------------------------

    def lose_aborted(self, broker: Broker) -> None:
        """Have a leadership go to another while a transaction lies aborted in what the leader has alone; then come back.

        Of the same producer there may be another, at those offsets, when it does.
        """
        stage = self._stage
        if not stage.led_by(broker) or not stage.are_all_well():
            return
        broker.stalled = READ
        life = broker.life

        def found() -> int | None:
            return next((key for key in stage.led_by(broker) if self._has_aborted_alone(broker, key)), None)

        def lose() -> None:
            broker.stalled = ()
            key = found()
            state = stage.controller.state(key or 0)[0]
            others = [one for one in state.isr if one != broker.id]
            if key is not None and others:
                stage.controller.move(key, others[0])
                back = partial(
                    stage.when,
                    lambda: stage.is_in_sync(broker, key) and broker.fetches_from(others[0], key),
                    partial(stage.controller.move, key, broker.id),
                    _do_nothing,
                )
                stage.later(_HEARD_MS, back)

        def go_on() -> None:
            if broker.life == life:
                broker.stalled = ()

        stage.when(lambda: broker.life == life and found() is not None, lose, go_on, STALLED_MS)

    def _has_aborted_alone(self, broker: Broker, key: int) -> bool:
        """Tell whether data and end of a transaction lie in what it has alone: the next leader gets but the end, sooner."""
        others = [one.partitions.get(key) for one in self._stage.brokers.values() if one is not broker]
        end = max((one.log.log_end_offset for one in others if one is not None), default=0)
        active = broker.partitions[key].log.segments.active
        if active.base_offset > end:
            return False
        aborted = [one for one in read_aborted(active.transaction_index_path) if one.last_offset >= end]
        data = {h.producer_id for _, h in active.headers() if h.base_offset >= end and not h.attributes & CONTROL}
        return any(one.producer_id in data for one in aborted)


def _keep_nothing(log: Log) -> None:
    """Let retention by size take what it may."""
    config = log.config
    log.update_config(replace(config, retention_bytes=0))
    log.apply_retention()
    log.update_config(config)


def _do_nothing() -> None:
    """What was waited for has not come."""
