"""Which transactions hang, and how one is named to be aborted; the rest is seen on brokers (tests/compat)."""

import pytest

from kafkatool.core.errors import RefusedError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.requests.transactions import Abort, Producer, abort_of, hanging

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def open_(place: TopicPartition, producer_id: int, *, start: int | None = 7, since: int | None = 3) -> Producer:
    return Producer(place, producer_id, 5, since, 0, 1000, start)


@pytest.mark.spec("TXN-92")
def test_what_its_coordinator_will_not_end_hangs() -> None:
    known, strange, other = open_(T0, 1), open_(T0, 2), open_(T1, 1)
    assert hanging([known, strange, other], {1: {T0}}) == [strange, other]
    assert hanging([known], {1: ()}) == [known]  # its transaction is over, or was another one
    assert hanging([], {}) == []


@pytest.mark.spec("TXN-92")
def test_one_is_named_by_where_it_begins() -> None:
    producers = [open_(T0, 1, start=None), open_(T0, 2, start=7), open_(T0, 3, start=9, since=None)]
    assert abort_of(producers, T0, 7) == Abort(T0, 2, 5, 3)
    assert abort_of(producers, T0, 9) == Abort(T0, 3, 5, 0)  # no coordinator is known: 0 fences nobody
    with pytest.raises(RefusedError, match="starting at offset 8 on partition t-0"):
        abort_of(producers, T0, 8)
