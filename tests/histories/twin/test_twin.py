"""Two analysers, written apart from one specification, say the same of histories made at random."""

import copy as copying
import random
from typing import Any

from tests.histories.history import History, read
from tests.histories.model import CHANGES, CHANGES_OF_GROUPS, Model, compact, encode, revalue
from tests.histories.twin import judge as twin
from tests.histories.twin.wild import spoil
from tests.histories.verdict import judge

ALLOWED = {"int-send-skip", "G0", "G1c-ww"}  # Kafka isolates no writes

Entries = list[dict[str, Any]]


def _made(chance: random.Random) -> Entries:
    """Return a right history of at most sixty operations."""
    transactions, groups = chance.random() < 0.7, chance.random() < 0.6
    model = Model(chance, keys=chance.randint(2, 3), workers=3, transactions=transactions, with_groups=groups)
    return model.run(chance.randint(15, 50))


def _compared(given: History) -> tuple[set[str], list[str]]:
    """Return the kinds that the twin finds, and in what the two analysers differ."""
    verdict = judge(given)
    found = twin.judge(given)
    firsts = [finding for anomaly in verdict.anomalies for finding in anomaly.findings]
    return {each.kind for each in found}, twin.differences(given, found, firsts)


def _one(seed: int) -> set[str]:
    """Judge a right history, the same with one change planted, and one with many; return the kinds that came up."""
    chance = random.Random(seed)
    entries = _made(chance)
    kinds, differ = _compared(read(encode(entries)))
    assert not differ, (seed, "right", differ)
    assert kinds <= ALLOWED, (seed, "right", kinds)
    compacted = copying.deepcopy(entries)
    revalue(compacted, chance)
    compact(compacted)
    came, differ = _compared(read(encode(compacted, cleanup="compact")))
    assert not differ, (seed, "compacted", differ)
    assert came <= ALLOWED, (seed, "compacted", came)
    change = chance.choice(CHANGES + CHANGES_OF_GROUPS)
    planted = copying.deepcopy(entries)
    if (expected := change(planted, chance)) is not None:
        came, differ = _compared(read(encode(planted)))
        assert not differ, (seed, change.__name__, differ)
        assert expected & came, (seed, change.__name__, expected, came)
        kinds |= came
    spoilt = copying.deepcopy(entries)
    options = spoil(spoilt, chance)
    came, differ = _compared(read(encode(spoilt, **options)))
    assert not differ, (seed, "spoilt", differ)
    return kinds | came
