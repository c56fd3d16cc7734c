"""What goes wrong, in which order: a function of the seed alone."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from tests.faults.proxy import Healing

Kind = Literal[
    "kill", "tear", "stop", "freeze", "zookeeper", "expire", "link", "isolate", "disk", "depose", "kill all",
    "starve", "outrun", "power cut", "power cut all", "slow disk", "failing disk", "clock",
]  # fmt: skip

# How often each is drawn. Those that are alone with the cluster: their harm is only bounded while all replicas are in
# sync (a torn log on the last replica in sync is a true loss), or they need a load that goes on. When the power of all
# fails, what was not flushed yet is lost, so that comes by its name alone.
ALONE: dict[Kind, int] = {"tear": 3, "disk": 1, "kill all": 1, "stop": 1, "power cut": 3, "failing disk": 1}
BEFORE_THEM_IN_SYNC: frozenset[Kind] = frozenset({"tear", "disk", "power cut", "failing disk"})
TOGETHER: dict[Kind, int] = {
    "kill": 4,
    "freeze": 3,
    "zookeeper": 2,
    "expire": 3,
    "link": 4,
    "isolate": 2,
    "depose": 1,
    "slow disk": 1,
    "clock": 1,
}
_BY_NAME: dict[str, Kind] = {kind: kind for kind in get_args(Kind)}
TEARS = ("cut", "garbled", "grown")
CUT_OFF = "expired, clients cut off"
HEALINGS: tuple[Healing, ...] = ("resume", "reset", "forget")


@dataclass(frozen=True, slots=True)
class Fault:
    """``broker`` suffers it; ``other`` is the far end of a link. ``variant`` is its manner, ``salt`` its own seed."""

    kind: Kind
    broker: int
    other: int
    variant: str
    healing: Healing
    salt: int


@dataclass(frozen=True, slots=True)
class Step:
    """Faults that begin one after the other, last ``seconds`` and are mended; ``settle``: then all is to be well."""

    faults: tuple[Fault, ...]
    seconds: float
    settle: bool

    def __str__(self) -> str:
        told = " and ".join(
            f"{f.kind} {f.broker}" + (f"-{f.other}" if f.kind == "link" else "") + f" ({f.variant}, {f.healing})"
            for f in self.faults
        )
        return f"{told} for {self.seconds:.1f} s" + (", settle" if self.settle else "")


def steps(seed: int, brokers: Sequence[int]) -> Iterator[Step]:
    """Yield steps without end."""
    chance = random.Random(seed)
    while True:
        if chance.random() < 0.3:
            yield Step((_fault(chance, _draw(chance, ALONE), brokers),), chance.uniform(0, 5), True)
            continue
        count = chance.choice([1, 1, 1, 2, 2, 3])
        faults: list[Fault] = []
        while len(faults) < count:
            fault = _fault(chance, _draw(chance, TOGETHER), brokers)
            if all((f.kind, f.broker) != (fault.kind, fault.broker) and _compatible(f, fault) for f in faults):
                faults.append(fault)
        yield Step(tuple(faults), chance.choice([0, 0.5, 2, 6, 12]) * chance.uniform(0.5, 1), chance.random() < 0.7)


def steps_of(seed: int, brokers: Sequence[int], kinds: Sequence[str]) -> Iterator[Step]:
    """Yield steps of these kinds alone; "starve", "outrun" and "power cut all" come in no other schedule.

    Kinds joined by "+" befall one broker in one step, as "isolate+expire". Raises KeyError for a kind there is not.
    """
    chance = random.Random(seed)
    drawn = [[_BY_NAME[name] for name in joined.split("+")] for joined in kinds]
    while True:
        first, *others = chance.choice(drawn)
        fault = _fault(chance, first, brokers)
        more = [replace(_fault(chance, kind, brokers), broker=fault.broker, other=fault.other) for kind in others]
        yield Step((fault, *more), chance.uniform(0, 4), True)


def _compatible(one: Fault, other: Fault) -> bool:
    """Tell which faults fit: a process that is dead cannot be frozen, and there is one ZooKeeper."""
    if one.kind == other.kind == "zookeeper":
        return False
    # Who waits for a session to end, or deletes a node, needs a ZooKeeper that does it.
    if "zookeeper" in (one.kind, other.kind):
        return not {"expire", "freeze", "kill", "depose"} & {one.kind, other.kind}
    return one.broker != other.broker or not {one.kind, other.kind} & {"kill", "freeze"}


def _draw(chance: random.Random, kinds: dict[Kind, int]) -> Kind:
    return chance.choices(list(kinds), list(kinds.values()))[0]


def _fault(chance: random.Random, kind: Kind, brokers: Sequence[int]) -> Fault:
    broker, other = chance.sample(brokers, 2)
    variants = {
        "tear": TEARS,
        "kill": ("at once", "expired"),
        "power cut": ("at once", "expired"),
        "clock": ("leap", "drift", "leap and drift"),
        "failing disk": ("any", "a partition's"),
        "freeze": ("short", "expired", CUT_OFF),
        "link": ("silent", "cut", "silent one way", "cut one way"),
        "isolate": ("silent", "cut"),
        "starve": ("frozen", "cut"),
    }.get(kind, ("",))
    return Fault(kind, broker, other, chance.choice(variants), chance.choice(HEALINGS), chance.randrange(1 << 32))
