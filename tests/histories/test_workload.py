"""The workload's own parts: keys that retire, values that travel, operations told as they were done."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.histories.clients import values
from tests.histories.run import cell_of
from tests.histories.workload import ACTIVE, VALUES_A_KEY, Keys


@pytest.mark.spec("HIS-41")
def test_keys_are_skewed_and_retire_when_they_are_full() -> None:
    chance, keys = random.Random(1), Keys()
    drawn = [keys.draw(chance) for _ in range(4000)]
    counts = Counter(key for key, _ in drawn)
    assert len({value for _, value in drawn}) == len(drawn)
    assert max(counts.values()) == VALUES_A_KEY
    assert len(keys.active) == ACTIVE
    assert set(keys.active) <= set(keys.all) == set(range(len(keys.all)))
    assert all(counts[key] == VALUES_A_KEY for key in set(keys.all) - set(keys.active))
    assert len(keys.all) > ACTIVE + 5


@pytest.mark.spec("HIS-41", "HIS-13")
@given(key=st.integers(0, 1 << 20), value=st.integers(-(1 << 40), 1 << 40), process=st.integers(0, 1 << 20))
def test_a_value_travels_and_nothing_else_is_taken_for_one(key: int, value: int, process: int) -> None:
    assert values.key_of(values.topic_of(key), values.partition_of(key)) == key
    data = values.encode(value, key, process)
    assert values.decode(data) == value
    assert values.decode(data[:-1] + bytes([data[-1] ^ 1])) is None
    assert values.decode(b"7" + data) is None
    assert values.decode(data[:3]) is None
    assert values.decode(None) is None


@pytest.mark.spec("HIS-44")
def test_a_seed_draws_its_cell_and_all_are_drawn() -> None:
    assert cell_of(7) == cell_of(7)
    drawn = {cell_of(seed) for seed in range(200)}
    assert {(cell.via, cell.guarantee) for cell in drawn} == {
        (via, guarantee) for via in ("assign", "subscribe") for guarantee in ("plain", "idempotent", "transactional")
    }
    assert 5 < sum(cell_of(seed).isolation == "read_uncommitted" for seed in range(200)) < 50
