"""Two analysers, written apart from one specification, say the same of histories made at random (HIS-3).

What is compared, kind by kind, is said in ``judge.differences``.
"""

import copy as copying
import random
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import settings

from tests.histories.analyser.model import CHANGES, CHANGES_OF_GROUPS, Model, compact, encode, revalue
from tests.histories.analyser.notation import history
from tests.histories.analyser.test_anomalies import COMPACTED, COMPACTION, GROUPS_HAVE, GROUPS_NEARLY, HAS, NEARLY
from tests.histories.analyser.verdict import judge
from tests.histories.history import History, read
from tests.histories.twin import judge as twin
from tests.histories.twin import lags as twin_lags
from tests.histories.twin.facts import Facts
from tests.histories.twin.wild import spoil, starve, stretch

ALLOWED = {"int-send-skip", "G0", "G1c-ww"}  # Kafka isolates no writes
OF_GROUPS: list[Any] = [*GROUPS_HAVE, *GROUPS_NEARLY]
WRITTEN: list[tuple[str, dict[int, Any], dict[str, Any]]] = [
    *((text, {}, {}) for _, text in (*HAS, *NEARLY)),
    *((text, extras, {}) for _, text, extras in OF_GROUPS),
    *((text, {}, COMPACTED) for _, text, _ in COMPACTION),
]

Entries = list[dict[str, Any]]
Change = Callable[[Entries, random.Random], set[str] | None]


class Judged(NamedTuple):
    """What became of one seed: how many histories, the kinds that were found, and the change that was planted."""

    histories: int
    kinds: set[str]
    planted: str | None


def _compared(given: History, *said: object) -> set[str]:
    """Let both analysers judge a history, and return the kinds that they agree on."""
    found, verdict = twin.judge(given), judge(given)
    firsts = [finding for anomaly in verdict.anomalies for finding in anomaly.findings]
    differ = twin.differences(given, found, firsts)
    assert not differ, (*said, differ)
    figures = {(one.process, one.key, one.lag.ns, one.stall.ns) for one in verdict.lags.worst}
    assert twin_lags.worst(Facts(given)) == figures, said
    return {each.kind for each in found}


def _made(chance: random.Random) -> Entries:
    """Return a right history of at most sixty operations."""
    transactions, groups = chance.random() < 0.7, chance.random() < 0.6
    model = Model(chance, keys=chance.randint(2, 3), workers=3, transactions=transactions, with_groups=groups)
    return model.run(chance.randint(15, 50))


def _judged(seed: int) -> Judged:
    """Judge a right history, the same compacted, with one change planted, and with several that no run would show."""
    chance = random.Random(seed)
    entries = _made(chance)
    kinds = _compared(read(encode(entries)), seed, "right")
    assert kinds <= ALLOWED, (seed, "right", kinds)
    compacted = copying.deepcopy(entries)
    revalue(compacted, chance)
    compact(compacted)
    came = _compared(read(encode(compacted, cleanup="compact")), seed, "compacted")
    assert came <= ALLOWED, (seed, "compacted", came)
    change: Change = chance.choice(CHANGES + CHANGES_OF_GROUPS)
    planted = copying.deepcopy(entries)
    expected = change(planted, chance)
    if expected is not None:
        came = _compared(read(encode(planted)), seed, change.__name__)
        assert expected & came, (seed, change.__name__, expected, came)
        kinds |= came
    spoilt = copying.deepcopy(entries)
    options = spoil(spoilt, chance)
    if chance.random() < 0.5:
        stretch(spoilt, chance)
    kinds |= _compared(read(encode(spoilt, **options)), seed, "spoilt")
    return Judged(3 + (expected is not None), kinds, None if expected is None else change.__name__)


@pytest.mark.slow
@pytest.mark.spec("HIS-3")
def test_both_analysers_say_the_same_of_a_few_hundred_histories() -> None:
    """Right ones are clean, and one planted change shows what was planted."""
    seed = 1 if settings().derandomize else random.randrange(1 << 32)  # a change is judged by what it changes
    print(f"seed {seed}")
    histories, kinds = 0, set[str]()
    for each in range(seed, seed + 80):
        judged = _judged(each)
        histories += judged.histories
        kinds |= judged.kinds
    assert histories >= 240 and len(kinds) > 15


@pytest.mark.spec("HIS-3", "HIS-50")
@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(1800)
def test_both_analysers_say_the_same_of_ten_thousand_histories() -> None:
    """And every kind that there is comes up, and every change is planted."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    histories, kinds, planted = 0, Counter[str](), Counter[str | None]()
    while histories < 10_000:
        judged = _judged(seed)
        histories += judged.histories
        kinds.update(judged.kinds)
        planted[judged.planted] += 1
        seed += 1
    print(f"{histories} histories: {dict(sorted(kinds.items()))}, planted: {planted}")
    assert {kind for kind, *_ in (*HAS, *NEARLY, *GROUPS_HAVE, *COMPACTION)} | {"early-read"} == set(kinds)
    assert all(planted[change.__name__] >= 20 for change in CHANGES + CHANGES_OF_GROUPS)


@pytest.mark.spec("HIS-3")
@pytest.mark.parametrize("change", CHANGES + CHANGES_OF_GROUPS, ids=lambda change: change.__name__)
def test_both_analysers_find_a_change_that_was_planted(change: Change) -> None:
    planted = 0
    for seed in range(12):
        entries = Model(random.Random(seed), workers=3, with_groups=True).run(50)
        expected = change(entries, random.Random(seed))
        if expected is not None:
            planted += 1
            assert expected & _compared(read(encode(entries)), seed), seed
    assert planted >= 6


@pytest.mark.spec("HIS-3")
def test_both_analysers_say_the_same_of_the_histories_written_by_hand() -> None:
    for text, extras, options in WRITTEN:
        _compared(history(text, extras, **options), text)


@pytest.mark.slow
@pytest.mark.spec("HIS-3", "HIS-34", "HIS-27")
def test_both_analysers_say_the_same_of_who_waits_and_of_who_waits_too_long() -> None:
    """Of histories that take minutes; what waits too long is no finding where a fault is to blame."""
    waited, stuck, excused = 0, 0, 0
    for seed in range(60):
        chance = random.Random(seed)
        entries = Model(chance, workers=3, transactions=False).run(20)
        starve(entries, chance)
        stretch(entries, chance)
        given = read(encode(entries))
        _compared(given, seed)
        facts = Facts(given)
        waited += len(twin_lags.worst(facts))
        stuck += len(twin_lags.stuck(facts))
        excused += len(twin_lags.stuck(Facts(given._replace(faults=[]))) - twin_lags.stuck(facts))
    assert waited > 100 and stuck >= 4 and excused >= 4, (waited, stuck, excused)
