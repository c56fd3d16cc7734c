"""Broker ids and counts in texts, and leaders counted by preference."""

import pytest

from kafkatool.core.model.values import in_number, join_ids, leaders_by_preference


@pytest.mark.spec("RSN-29X")
def test_a_broker_leads_by_preference_where_it_is_the_first_replica() -> None:
    assert leaders_by_preference([(1, 2), (1, 3), (2, 1), ()]) == {1: 2, 2: 1}


@pytest.mark.spec("RSN-12")
def test_ids_are_joined_as_they_come() -> None:
    assert (join_ids((3, 1, 2)), join_ids([3, 1], ", "), join_ids(())) == ("3,1,2", "3, 1", "")


def test_only_one_is_in_the_singular() -> None:
    texts = [in_number(count, "partition is", "partitions are") for count in (0, 1, 2)]
    assert texts == ["0 partitions are", "1 partition is", "2 partitions are"]
