"""Kafka's own way to plan, with another replication factor."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkatool.core.model.assignment import assign_replicas
from kafkatool.core.model.values import BrokerInfo
from kafkatool.core.planner.kafkas import plan_like_new

RACKS = "aabbc"


@pytest.mark.spec("RSN-28X")
@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 20), st.booleans(), st.integers(0, 1000))
def test_growing_keeps_all_replicas_and_stays_spread_over_racks(
    before: int, after: int, count: int, rack_aware: bool, seed: int
) -> None:
    brokers = [BrokerInfo(b, (), RACKS[b]) for b in range(5)]
    current = assign_replicas(brokers, count, before, start_index=0, replica_shift=0)
    plan = plan_like_new(brokers, current, replication_factor=after, rack_aware=rack_aware, rng=random.Random(seed))
    assert plan.keys() == current.keys()
    assert all(len(set(replicas)) == after for replicas in plan.values())
    if after > before:
        assert all(plan[p][:before] == current[p] for p in plan)
    if rack_aware:
        assert all(len({RACKS[b] for b in replicas}) == min(after, 3) for replicas in plan.values())


@pytest.mark.spec("RSN-28X")
def test_a_drained_broker_is_not_kept() -> None:
    brokers = [BrokerInfo(b, ()) for b in (2, 3, 4)]
    plan = plan_like_new(brokers, {0: (1, 2)}, replication_factor=3, rack_aware=True, rng=random.Random(1))
    assert plan[0][0] == 2 and sorted(plan[0]) == [2, 3, 4]
