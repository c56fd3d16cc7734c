"""Right histories made at random are clean; with one thing changed they show what was changed."""

import copy as copying
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.histories.analyser.model import CHANGES, CHANGES_OF_GROUPS, Model, encode
from tests.histories.analyser.verdict import judge
from tests.histories.history import read


def _made(seed: int, *, transactions: bool = True, groups: bool = False) -> list[dict[str, Any]]:
    return Model(random.Random(seed), transactions=transactions, with_groups=groups).run(60)


@pytest.mark.spec("HIS-3", "HIS-16")
@pytest.mark.parametrize(("transactions", "groups"), [(True, False), (False, False), (True, True)])
def test_a_right_history_is_clean(transactions: bool, groups: bool) -> None:
    for seed in range(60):
        verdict = judge(read(encode(_made(seed, transactions=transactions, groups=groups))))
        assert not verdict.unallowed, (seed, list(verdict.lines()))
        assert verdict.exit_code == 0


@pytest.mark.spec("HIS-3")
@pytest.mark.parametrize("change", CHANGES + CHANGES_OF_GROUPS, ids=lambda change: change.__name__)
def test_a_change_is_found(change: Callable[[list[dict[str, Any]], random.Random], set[str] | None]) -> None:
    planted = 0
    for seed in range(25):
        entries = copying.deepcopy(_made(seed, groups=change in CHANGES_OF_GROUPS))
        expected = change(entries, random.Random(seed))
        if expected is not None:
            planted += 1
            found = judge(read(encode(entries)))
            assert expected & found.kinds(), (seed, list(found.lines()))
    assert planted >= 10
