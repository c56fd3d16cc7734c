"""What a run's topics suffer of an administrator: a function of the seed and of the topic's number."""

import random
from typing import Final, Literal, NamedTuple

from tests.faults.world import BROKERS

Kind = Literal["reassign", "elect", "delete", "add partitions", "force compaction", "delete group"]

MOVED: Final = 0.1  # of topics get a reassignment or an election
DELETED: Final = 0.05  # of topics lose their older records
GROWN: Final = 0.05  # of topics get a partition more, which holds no key
FORCED: Final = 0.05  # of compacted topics are compacted up to their ends
FORGOTTEN: Final = 0.05  # of topics have a group that is deleted with its offsets


class Chore(NamedTuple):
    """``at``: which part of the values one key takes the topic has by then."""

    kind: Kind
    at: float
    salt: int


def chores_of(seed: int, number: int, *, compacted: bool = False) -> list[Chore]:
    """Draw what a topic suffers, by its number. Kafka deletes no records of compacted topics."""
    chance = random.Random(f"{seed}-topic-{number}")
    kinds: list[Kind] = []
    if chance.random() < MOVED:
        kinds.append(chance.choice(("reassign", "elect")))
    if chance.random() < DELETED and not compacted:
        kinds.append("delete")
    if chance.random() < GROWN:
        kinds.append("add partitions")
    if chance.random() < FORCED and compacted:
        kinds.append("force compaction")
    if chance.random() < FORGOTTEN:
        kinds.append("delete group")
    return sorted(
        (Chore(kind, chance.uniform(0.1, 0.9), chance.randrange(1 << 32)) for kind in kinds), key=lambda c: c.at
    )


def moves_of(chore: Chore) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Draw where a topic's replicas go: to two of the brokers, and back to all of them, in an order of its own."""
    chance = random.Random(chore.salt)
    return tuple(chance.sample(BROKERS, len(BROKERS) - 1)), tuple(chance.sample(BROKERS, len(BROKERS)))
