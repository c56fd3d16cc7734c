"""The schedule of a fault run: reproducible, varied, and never asking for what cannot be."""

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.faults.schedule import ALONE, TOGETHER, steps, steps_of

_BROKERS = (1, 2, 3)


@given(seed=st.integers(0, 1 << 32))
@pytest.mark.spec("HIS-45")
def test_the_same_seed_gives_the_same_schedule(seed: int) -> None:
    once, again = (list(itertools.islice(steps(seed, _BROKERS), 30)) for _ in range(2))
    assert once == again


@given(seed=st.integers(0, 1 << 32))
@pytest.mark.spec("HIS-45")
def test_faults_of_one_step_get_along(seed: int) -> None:
    for step in itertools.islice(steps(seed, _BROKERS), 50):
        kinds = [f.kind for f in step.faults]
        assert len(step.faults) == 1 or not set(kinds) & set(ALONE)
        processes = Counter(f.broker for f in step.faults if f.kind in ("kill", "freeze"))
        assert all(count == 1 for count in processes.values())
        assert kinds.count("zookeeper") <= 1
        if "zookeeper" in kinds:
            assert not {"expire", "freeze", "kill", "depose"} & set(kinds)
        assert 0 <= step.seconds <= 12


@pytest.mark.spec("HIS-45")
def test_every_kind_of_fault_comes_up() -> None:
    drawn = {f.kind for step in itertools.islice(steps(1, _BROKERS), 200) for f in step.faults}
    assert drawn == set(ALONE) | set(TOGETHER)


@pytest.mark.spec("HIS-45")
def test_faults_that_lose_what_was_acknowledged_or_need_a_load_come_by_their_names_alone() -> None:
    by_name = ["starve", "outrun", "power cut all"]
    assert not set(by_name) & (set(ALONE) | set(TOGETHER))
    drawn = [step.faults for step in itertools.islice(steps_of(1, _BROKERS, [*by_name, "clock+power cut"]), 100)]
    assert {"+".join(f.kind for f in faults) for faults in drawn} == {*by_name, "clock+power cut"}
    assert all(len({f.broker for f in faults}) == 1 for faults in drawn)
    assert {f.variant for faults in drawn for f in faults if f.kind == "power cut"} == {"at once", "expired"}
