"""A new replication factor: nothing moves that can stay, and the replicas end evenly."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkatool.core.errors import RefusedError
from kafkatool.core.model.assignment import assign_replicas, change_replication_factor
from kafkatool.core.model.values import BrokerInfo


def brokers(*ids: int, racks: str = "") -> list[BrokerInfo]:
    return [BrokerInfo(b, (), racks[i] if racks else None) for i, b in enumerate(ids)]


@pytest.mark.spec("TOP-29X")
def test_growing_appends_the_emptiest_broker_of_a_new_rack() -> None:
    assert change_replication_factor(brokers(1, 2, 3), {0: (1,), 1: (1,)}, {}, 2) == {0: (1, 2), 1: (1, 3)}
    assert change_replication_factor(brokers(1, 2, 3, racks="aab"), {0: (1,)}, {}, 2) == {0: (1, 3)}


@pytest.mark.spec("TOP-29X")
def test_shrinking_keeps_who_is_in_sync_and_the_preferred_replica() -> None:
    three = {0: (1, 2, 3)}
    assert change_replication_factor(brokers(1, 2, 3), three, {0: (1, 3)}, 2) == {0: (1, 3)}
    assert change_replication_factor(brokers(1, 2, 3), three, {0: (3, 2)}, 1) == {0: (2,)}
    assert change_replication_factor(brokers(1, 2, 3), three, {0: (1, 2, 3)}, 1) == {0: (1,)}
    assert change_replication_factor(brokers(1, 2, 3), three, {0: (1, 2, 3)}, 3) == {}


@pytest.mark.spec("TOP-29X", "TOP-7")
def test_out_of_range_is_refused() -> None:
    with pytest.raises(RefusedError, match="replication factor must be larger than 0"):
        change_replication_factor(brokers(1), {0: (1,)}, {}, 0)
    with pytest.raises(RefusedError, match="replication factor: 2 larger than available brokers: 1"):
        change_replication_factor(brokers(1), {0: (1,)}, {}, 2)


@pytest.mark.spec("TOP-29X")
@given(st.integers(1, 8), st.integers(1, 20), st.data())
def test_no_more_replicas_change_than_must(count: int, partitions: int, data: st.DataObject) -> None:
    ids = brokers(*range(count))
    old, new = data.draw(st.integers(1, count)), data.draw(st.integers(1, count))
    before = assign_replicas(ids, partitions, old, start_index=0, replica_shift=0)
    after = {**before, **change_replication_factor(ids, before, before, new)}
    for partition, replicas in after.items():
        assert len(set(replicas)) == len(replicas) == new
        assert replicas[0] == before[partition][0]
        assert len(set(replicas) & set(before[partition])) == min(old, new)
    if new > old:
        held = Counter({b.id: 0 for b in ids})
        held.update(b for replicas in after.values() for b in replicas)
        assert max(held.values()) - min(held.values()) <= 2
