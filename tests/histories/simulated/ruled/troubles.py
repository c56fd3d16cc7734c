"""Faults of a cluster with a controller of its own: sessions that end, rulers that die or stand still, ZooKeeper unheard."""

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from tests.histories.simulated.brokers import BROKERS, PARTITIONS, partition_of
from tests.histories.simulated.ruled.broker import RuledBroker
from tests.simulation.world import Chances

if TYPE_CHECKING:
    from tests.histories.simulated.ruled.realm import RuledRealm
    from tests.histories.simulated.windows import Stage

OWN_KINDS: Final = (
    "expire", "depose", "ruler", "still", "dark", "bounce", "unseen", "unrest", "elect", "shuffle", "exile",
)  # fmt: skip
OWN_ASKED_FOR: Final = ("relapse",)
"""As ``ASKED_FOR``."""
_DARK_MS: Final = 400
_STILL_MS: Final = 350  # longer than a session
_LAZY_MS: Final = 100


class Troubles:
    """Has them befall a cluster. What ends, ends by itself."""

    def __init__(self, realm: "RuledRealm") -> None:
        self._realm, self._world = realm, realm.world

    def befall(self, kind: str, broker: RuledBroker, lasts: int, stage: "Stage") -> None:
        realm, ruler = self._realm, self._ruler()
        match kind:
            case "expire":  # it lives on, and registers anew
                realm.session_ended(broker.id)
            case "depose":
                realm.delete_controller()
            case "ruler":
                if ruler is not None:
                    ruler.kill()
                    stage.later(lasts, partial(stage.revive, ruler))
            case "still":
                if ruler is not None:
                    ruler.freeze(max(lasts, _STILL_MS))
            case "dark":
                self._go_dark(min(lasts, _DARK_MS))
            case "bounce":
                self._bounce(broker)
            case "unseen":
                self._bounce_unseen(broker, lasts, stage)
            case "unrest":
                self._be_unquiet(lasts)
            case "elect":
                realm.elect_preferred(realm.partitions())
            case "shuffle":
                for key in stage.chance.sample(PARTITIONS, 2):
                    realm.move(key, stage.chance.choice(BROKERS))
            case "exile":
                self._exile(broker, stage.chance.choice(PARTITIONS), lasts, stage)
            case "relapse":
                self._relapse(broker, stage)
            case _:
                raise ValueError(f"no fault is called {kind}")

    def _ruler(self) -> RuledBroker | None:
        """Return the broker that rules, if it lives and is at work."""
        process = self._realm.controller()
        return process.broker if process is not None and not process.broker.frozen else None

    def _go_dark(self, ms: float) -> None:
        """Have nobody reach ZooKeeper; sessions outlive that."""
        server = self._realm.server
        server.is_up = False
        for process in self._realm.alive():
            process.client.drop(1.0)

        def light() -> None:
            server.is_up = True

        self._world.after(ms, light)

    def _bounce(self, broker: RuledBroker) -> None:
        """Have it die, and come again at once, its session ended: whoever looks between two changes sees but one life."""
        self._realm.session_ended(broker.id)
        broker.kill()
        self._world.after(self._world.random.choice((2.0, 10.0, 30.0)), partial(self._start, broker))

    def _start(self, broker: RuledBroker) -> None:
        if not broker.alive:
            broker.start()

    def _bounce_unseen(self, broker: RuledBroker, lasts: int, stage: "Stage") -> None:
        """Have it bounce while nobody rules: the next controller finds it registered."""
        ruler = self._ruler()
        if ruler is not None and ruler is not broker:
            ruler.kill()
            stage.later(lasts, partial(stage.revive, ruler))
        self._bounce(broker)

    def _relapse(self, broker: RuledBroker, stage: "Stage") -> None:
        """Have a leader lose its power, and what it had not synced, and come again, all of it while nobody rules.

        Another replica in sync lives on, and has all of it.
        """
        ruler = self._ruler()
        if ruler is None or ruler is broker or not stage.led_by(broker) or not stage.are_all_well():
            return
        broker.lazy = True
        stage.later(_LAZY_MS, partial(self._fall_back, broker, ruler, (broker.life, ruler.life), stage))

    def _fall_back(self, broker: RuledBroker, ruler: RuledBroker, lives: tuple[int, int], stage: "Stage") -> None:
        broker.lazy = False
        if lives != (broker.life, ruler.life) or not stage.are_all_well() or self._ruler() is not ruler:
            return
        ruler.kill()
        self._realm.session_ended(broker.id)
        broker.kill()
        broker.lose_power(stage.chance, has_flushed=True)
        broker.start()
        stage.later(stage.chance.choice((20, 120, 400)), partial(stage.revive, ruler))

    def _be_unquiet(self, ms: float) -> None:
        """Have requests lost, connections broken and processes stopped or killed wherever chance wants it, for a while."""
        random = self._world.random
        chances = self._world.chances = _drawn(random)

        def calm() -> None:
            if self._world.chances is chances:
                self._world.chances = self._realm.everyday

        self._world.after(ms, calm)

    def _exile(self, broker: RuledBroker, key: int, lasts: int, stage: "Stage") -> None:
        """Have a key moved away from a broker, where it is deleted, and back."""
        realm, partition = self._realm, partition_of(key)
        realm.ask_to_move({partition: tuple(b for b in BROKERS if b != broker.id)})
        stage.later(lasts, partial(realm.ask_to_move, {partition: tuple(stage.chance.sample(BROKERS, len(BROKERS)))}))


def _drawn(random: Random) -> Chances:
    def sometimes(*values: float) -> float:
        return random.choice(values) if random.random() < 0.5 else 0.0

    return Chances(
        others_first=random.choice((0.1, 0.3, 0.6)),
        stopped=sometimes(0.01, 0.05),
        killed=sometimes(0.01, 0.03),
        cut=sometimes(0.02, 0.08),
        expiry=random.choice((0.0, 0.3)),
        request_lost=sometimes(0.1, 0.3),
        answer_lost=sometimes(0.1, 0.3),
        slow=sometimes(0.1, 0.3),
    )
