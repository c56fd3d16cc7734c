"""Faults of the simulation: what befalls its brokers, and how each ends. All is done in ``pass_ms``, when it is due."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from tests.broker.replication.world import Clock
from tests.histories.simulated.brokers import BROKERS, KEYS, LAG_MS, PARTITIONS, READ, Broker, Wires
from tests.histories.simulated.controller import SESSION_MS, Rule
from tests.histories.simulated.late_repeat import LateRepeat
from tests.histories.simulated.windows import STALLED_MS, Stage, Windows


@dataclass(frozen=True, slots=True)
class Fault:
    """What befalls a broker, when, and for how long, in ms."""

    at: int
    kind: str
    broker: int
    lasts: int

    def __str__(self) -> str:
        return f"at {self.at}: {self.kind} {self.broker} for {self.lasts}"


KINDS: Final = (
    "kill", "chase", "freeze", "isolate", "deaf", "session", "unheard", "sever", "stall", "starve", "behind", "misled",
    "move", "stop", "tear", "power", "alone",
)  # fmt: skip

ASKED_FOR: Final = ("away", "twice", "garbled", "aborted", "early", "delete", "repeat")
"""Kinds that a run has only if it asks for them: each opens one window, at the cost of others."""


def draw_faults(chance: Random, end: int, kinds: Sequence[str]) -> tuple[Fault, ...]:
    """Draw one each 150 to 700 ms, of these kinds, until ``end``."""
    faults, at = [], 300
    while at < end:
        lasts = chance.choice((20, 120, 400, 900))
        faults.append(Fault(at, chance.choice(kinds), chance.choice(BROKERS), lasts))
        at += chance.choice((150, 400, 700)) + (lasts if chance.random() < 0.7 else 0)
    return tuple(faults)


class Faults(Stage):
    """Begins faults on the brokers of a run and ends them. ``tell`` is called with each that begins.

    ``delete``: called with a key, has records of it deleted.
    """

    def __init__(
        self,
        brokers: Mapping[int, Broker],
        controller: Rule,
        wires: Wires,
        clock: Clock,
        chance: Random,
        tell: Callable[[Fault], None],
        delete: Callable[[int], None],
    ) -> None:
        super().__init__(brokers, controller, wires, clock, chance)
        self._tell, self._delete = tell, delete
        self._windows = Windows(self)

    def plan(self, faults: Sequence[Fault]) -> None:
        """Have them begin when they are to."""
        for fault in faults:
            self.later(fault.at, partial(self._begin, fault))

    def _begin(self, fault: Fault) -> None:
        broker, others = self.brokers[fault.broker], [b for b in BROKERS if b != fault.broker]
        if self.is_over or not broker.alive or broker.frozen:
            return
        self._tell(fault)
        end: Callable[[Broker], None] = self._mend
        match fault.kind:
            case "kill":
                broker.kill()
                end = self.revive
            case "chase":
                broker.kill()
                end = self.revive
                led = [key for key in KEYS if self.controller.state(key)[0].leader == broker.id]
                key = self.chance.choice(led or KEYS)
                self.later(self.controller.heard_ms + self.chance.randint(2, 12), partial(self._kill_leader, key))
            case "stop":
                self.controller.stop(broker)
                end = self.revive_clean
            case "tear":
                if not self.controller.all_in_sync() or not all(b.alive for b in self.brokers.values()):
                    return  # a torn log is a loss, unless the others have all of it
                self.controller.session_ended(fault.broker)
                broker.kill()
                broker.tear(self.chance.choice(("cut", "garbled", "grown")), self.chance)
                end = self.revive
            case "power":
                if self._alone_in(broker):
                    return  # what it alone has, may be lost
                self.controller.session_ended(fault.broker)
                broker.kill()
                broker.lose_power(self.chance)
                end = self.revive
            case "alone":
                for other in others:
                    self.wires.cut(other, fault.broker)
                    self.wires.cut(fault.broker, other)
                self.later(LAG_MS + 100, partial(self._flush_once_alone, broker))
                return
            case "freeze":
                broker.freeze(fault.lasts)
                end = self._thaw
            case "isolate" | "sever" | "starve":
                for other in others:
                    self.wires.cut(fault.broker, other)
                    self.wires.cut(other, fault.broker)
                if fault.kind == "sever":
                    self.wires.cut(fault.broker, 0)
                    self.wires.cut(0, fault.broker)
                elif fault.kind == "starve":
                    end = self._starved
            case "stall":
                broker.stalled = self.chance.choice((READ, READ, PARTITIONS))
                led = [key for key in READ if self.controller.state(key)[0].leader == broker.id]
                end = partial(self._stalled, led=led)
            case "deaf":
                for other in others:
                    self.wires.cut(fault.broker, other)  # its answers are lost, not the questions
            case "session" | "unheard":
                self.wires.cut(fault.broker, 0)
                self.wires.cut(0, fault.broker)
                if fault.kind == "unheard":  # its session is back before it hears of its successors
                    self.later(SESSION_MS + 20, partial(self.wires.mend_way, fault.broker, 0))
                    self.later(SESSION_MS + 20 + fault.lasts, partial(self._mend, broker))
                    return
            case "misled":
                self._mislead(broker)
                return
            case "away":
                self._windows.go_away(broker)
                return
            case "twice":
                self._windows.fall_twice(broker)
                return
            case "aborted":
                self._windows.lose_aborted(broker)
                return
            case "garbled":
                self._windows.garble(broker)
                return
            case "early":
                self._windows.remove_early(broker)
                return
            case "repeat":
                led = self.led_by(broker)
                if led and broker.taken is None and self.are_all_well():
                    LateRepeat(self, broker, self.chance.choice(led)).begin()
                return
            case "delete":
                self._delete(self.chance.choice(KEYS))
                return
            case "move":
                for key in PARTITIONS:
                    state, _ = self.controller.state(key)
                    if state.leader == broker.id and (others := [b for b in state.isr if b != broker.id]):
                        self.controller.move(key, self.chance.choice(others))
                return
            case "behind":
                for other in others:
                    self.wires.cut(fault.broker, other)
                self.later(LAG_MS + 100, partial(self._come_back_behind, broker))
                return
            case kind:
                self.controller.befall(kind, broker, fault.lasts, self)
                return
        longest = {"starve": 120, "stall": STALLED_MS}.get(fault.kind, fault.lasts)
        self.later(min(fault.lasts, longest), partial(end, broker))

    def _mislead(self, broker: Broker) -> None:
        """Have a leadership go to another and come back, while the broker does not hear of it and follows on.

        It may have records of the first term that the other leader lacks.
        """
        for key in self.chance.sample(KEYS, len(KEYS)):
            state, _ = self.controller.state(key)
            others = [b for b in state.isr if b not in (state.leader, broker.id)]
            if state.leader not in (None, broker.id) and others:
                leader, other = state.leader or 0, others[0]
                self.wires.cut(0, broker.id)
                self.wires.cut(leader, other)
                self.later(30, partial(self.controller.move, key, other))
                self.later(30, partial(self.wires.mend_way, leader, other))
                self.later(80, partial(self.controller.move, key, leader))
                self.later(250, partial(self._mend, broker))
                return

    def _come_back_behind(self, broker: Broker, tries: int = 300) -> None:
        """Move a leadership while the broker, which was away, lacks the last records of its key.

        The new leader does not hear of the old one how far that is. It hears the broker, but not the reverse once that has
        asked for records. It dies, as the old one does, as soon as it has taken the broker back.
        """
        self.wires.mend(broker.id)
        for key in KEYS:
            state, _ = self.controller.state(key)
            others = [b for b in self.brokers.values() if b.alive and b.id in state.isr and b.id != state.leader]
            old = self.brokers.get(state.leader or 0)
            if broker.id in state.isr or not broker.alive or not others or old is None or not old.alive:
                continue
            new, own = others[0].partitions[key], broker.partitions[key].log.log_end_offset
            told = old.partitions[key].high_watermark.offset  # to clients
            if new.high_watermark.offset <= own < told <= new.log.log_end_offset:
                self.controller.move(key, others[0].id)
                self.wires.cut(old.id, others[0].id)
                self.later(1, partial(self._kill_once_taken_back, key, (others[0], old), broker, 120))
                return
        if tries and not self.is_over:
            self.later(1, partial(self._come_back_behind, broker, tries - 1))

    def _kill_once_taken_back(self, key: int, leaders: Sequence[Broker], broker: Broker, tries: int) -> None:
        state, _ = self.controller.state(key)
        if broker.fetches_from(leaders[0].id, key):
            self.wires.cut(leaders[0].id, broker.id)
        if state.leader == leaders[0].id and broker.id in state.isr:
            for leader in leaders:
                self._kill_for(leader, 2 * SESSION_MS)
        elif tries and not self.is_over:
            self.later(1, partial(self._kill_once_taken_back, key, leaders, broker, tries - 1))
            return
        for one in (*leaders, broker):
            self.wires.mend(one.id)

    def _flush_once_alone(self, broker: Broker, tries: int = 20) -> None:
        """Bring to its disk all of a broker that is the last in sync of something it leads; its power fails a while later.

        What it acknowledges of that meanwhile it has alone, and not on the disk: it must not acknowledge anything.
        """
        alone = self._alone_in(broker) if broker.alive and not broker.frozen else {}
        # it hears later than others what it has written
        if alone and all(broker.partitions[key].in_sync.members == (broker.id,) for key in alone):
            broker.flush()
            self.later(self.chance.choice((60, 200)), partial(self._cut_power, broker, broker.life, alone))
        elif tries and broker.alive and not self.is_over:
            self.later(20, partial(self._flush_once_alone, broker, tries - 1))
        else:
            self._mend(broker)

    def _cut_power(self, broker: Broker, life: int, flushed: Mapping[int, int]) -> None:
        still = self._alone_in(broker).items() <= flushed.items()  # not alone again, after it was not
        if broker.alive and broker.life == life and still and not self.is_over:
            self.controller.session_ended(broker.id)
            broker.kill()
            broker.lose_power(self.chance, has_flushed=True)
            self.later(20, partial(self.revive, broker))
        self._mend(broker)

    def _alone_in(self, broker: Broker) -> dict[int, int]:
        """Return what it alone is in sync for, and the version of that state."""
        states = {key: self.controller.state(key) for key in PARTITIONS}
        return {key: version for key, (state, version) in states.items() if state.isr == (broker.id,)}

    def _kill_leader(self, key: int) -> None:
        """Kill who has just taken over, before its followers have again what they cut."""
        self._kill_for(self.brokers[self.controller.state(key)[0].leader or 1], 400)

    def _kill_for(self, broker: Broker, ms: float) -> None:
        """Kill it, if it lives; what takes over from a broker that has just died has perhaps not all of it yet."""
        if broker.alive:
            broker.kill()
            self.later(ms, partial(self.revive, broker))

    def _mend(self, broker: Broker) -> None:
        self.wires.mend(broker.id)

    def _thaw(self, broker: Broker) -> None:
        broker.thaw()

    def _starved(self, broker: Broker) -> None:
        """Kill the leader whose followers have not heard of it for a while."""
        self._kill_for(broker, 400)
        self._mend(broker)

    def _stalled(self, broker: Broker, led: Sequence[int]) -> None:
        """Kill a leader that has much alone; when it is back, and has cut that, have it lead again."""
        broker.stalled = ()
        self._kill_for(broker, 20)
        if led:
            self.later(SESSION_MS, partial(self._kill_leader_when_in_sync, self.chance.choice(led), 40))

    def _kill_leader_when_in_sync(self, key: int, attempts: int) -> None:
        if self.is_over or not attempts:
            return
        if self.controller.live == set(BROKERS) and self.controller.all_in_sync():
            self._kill_for(self.brokers[self.controller.state(key)[0].leader or 0], 20)
        else:
            self.later(20, partial(self._kill_leader_when_in_sync, key, attempts - 1))
