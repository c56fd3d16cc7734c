"""The consequences of a plan for each broker and each partition."""

import pytest

from kafkatool.core.model.values import BrokerInfo, TopicPartition
from kafkatool.core.planner.consequences import BrokerConsequences, broker_consequences, reason

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.spec("RSN-29X")
def test_each_broker_is_told_before_and_after_with_the_bytes_it_gets() -> None:
    current, proposed = {A: (1, 2), B: (2, 1)}, {A: (2, 3), B: (2, 1)}
    one, two, three = broker_consequences(current, proposed, (), {A: 700, B: 50})
    assert one == BrokerConsequences(1, 2, 1, 1, 0, incoming=0, outgoing=1, copied_bytes=0)
    assert two == BrokerConsequences(2, 2, 2, 1, 2, incoming=0, outgoing=0, copied_bytes=0)
    assert three == BrokerConsequences(3, 0, 1, 0, 0, incoming=1, outgoing=0, copied_bytes=700)
    assert [row.copied_bytes for row in broker_consequences(current, proposed, (), {B: 50})] == [0, 0, None]
    assert [row.copied_bytes for row in broker_consequences(current, proposed, (4,))] == [None] * 4


@pytest.mark.spec("RSN-29X")
@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ((1, 2), (1, 2), None),
        ((1, 2), (2, 1), "even out leaders"),
        ((1, 2), (1, 3), "even out replicas"),
        ((1, 2), (2, 3), "even out replicas"),
        ((9, 2), (2, 3), "leaves 9"),
        ((1, 2), (1, 2, 3), "replication factor 2 to 3"),
        ((1, 2), (2,), "replication factor 2 to 1"),
        ((9, 2, 1), (1, 2), "leaves 9; replication factor 3 to 2"),
        ((1, 3, 9), (3, 1, 2), "leaves 9; even out leaders"),
        ((1, 4), (1, 2), "spread over more racks"),
    ],
)
def test_the_reason_of_a_change_is_named(before: tuple[int, ...], after: tuple[int, ...], why: str | None) -> None:
    racks = {1: "a", 2: "b", 3: "b", 4: "a"}
    assert reason(before, after, {b: BrokerInfo(b, (), rack) for b, rack in racks.items()}) == why
