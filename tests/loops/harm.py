"""What is done to the processes of loops, in which order: a function of the seed alone."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from tests.faults.proxy import Healing, Proxy, broker_of, client_id_of
from tests.faults.schedule import HEALINGS
from tests.loops.copier import Copier

Kind = Literal["kill", "stop", "replace", "cut", "silence"]
KINDS: Final[dict[Kind, int]] = {"kill": 4, "stop": 2, "replace": 3, "cut": 2, "silence": 2}
"""How often each is drawn. ``replace``: it stands still while another takes its place, then both are there."""
WITHOUT_DOORS: Final[dict[Kind, int]] = {"kill": 4, "stop": 2, "replace": 3}
_MOST: Final = 3
_THREAD: Final = "-StreamThread-"
"""Kafka Streams adds it to the client id, and what follows, for each of its clients."""


@dataclass(frozen=True, slots=True)
class Harm:
    """``copier`` suffers it."""

    kind: Kind
    copier: int
    healing: Healing


def harms(seed: int, copiers: int, kinds: Mapping[Kind, int] = KINDS) -> Iterator[tuple[Harm, ...]]:
    """Yield what happens beside each step of the brokers' faults, without end."""
    chance = random.Random(f"{seed}-loops")
    while True:
        victims = chance.sample(range(copiers), chance.randint(0, min(_MOST, copiers)))
        drawn = chance.choices(list(kinds), list(kinds.values()), k=len(victims))
        yield tuple(Harm(kind, victim, chance.choice(HEALINGS)) for kind, victim in zip(drawn, victims, strict=True))


def speaker_of(first: bytes) -> str:
    """Name who speaks to a broker: one of the copiers, by its client id, or another broker."""
    return broker_of(first) or client_id_of(first).partition(_THREAD)[0]


class Harmer:
    """Does it to these copiers; ``doors`` are the brokers' proxies, if there are any."""

    def __init__(self, copiers: Sequence[Copier], doors: Sequence[Proxy]) -> None:
        self._copiers, self._doors = copiers, doors

    def begin(self, harm: Harm) -> None:
        copier = self._copiers[harm.copier]
        copier.bury()
        match harm.kind:
            case "kill":
                copier.kill()
            case "stop":
                copier.stop()
            case "replace":
                copier.replace()
            case "cut":
                for door in self._doors:
                    door.cut(copier.name)
            case "silence":
                for door in self._doors:
                    door.silence(copier.name)

    def end(self, harm: Harm) -> None:
        copier = self._copiers[harm.copier]
        match harm.kind:
            case "stop":
                copier.go_on()
            case "replace":
                copier.rise()
            case "cut" | "silence":
                for door in self._doors:
                    door.heal(copier.name, harm.healing)

    def told(self, harm: Harm) -> str:
        return f"{harm.kind} {self._copiers[harm.copier].name}"
