"""Replica lists given by hand."""

import pytest

from kafkatool.core.errors import RefusedError
from kafkatool.core.operations.topics import replica_lists


@pytest.mark.spec("TOP-2")
@pytest.mark.parametrize("text", ["", "1:", "a", "1:2,,3", "-1", "1;2"])
def test_replica_lists_hold_broker_ids(text: str) -> None:
    with pytest.raises(RefusedError, match="expected broker ids"):
        replica_lists.parse_replica_lists(text)


def test_replica_lists_may_have_spaces() -> None:
    assert replica_lists.parse_replica_lists("1 : 2, 3:1") == [(1, 2), (3, 1)]
