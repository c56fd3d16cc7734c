"""kill -9 of the coordinator, of a leader of data and of one of offsets, at each request of a transaction (TXN-104).

A request gets no answer: before it has taken effect, after it, or as what it has written is in the leader's log and not in
all that it should be in. Then the broker that has it is killed, and the client does as clients do: it asks whoever comes
next; or it is no more, and the transaction is to end without it.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.crashing_transactions import (
    ENDS,
    PARTITIONS,
    STEPS,
    UNACKNOWLEDGED,
    Last,
    Moment,
    Transactions,
    transactions,
)
from tests.integration.isolation import values_of

pytestmark = [pytest.mark.slow, pytest.mark.slowest, pytest.mark.timeout(1800)]


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Transactions]:
    with transactions(tmp_path / "cluster") as made:
        yield made


@pytest.mark.spec("TXN-104", "TXN-95", "TXN-97", "TXN-42", "TXN-54", "TXN-83", "TXN-86")
@pytest.mark.parametrize("moments", [(Moment.BEFORE, Moment.AFTER), UNACKNOWLEDGED], ids=["answer", "acknowledgement"])
@pytest.mark.parametrize("role", STEPS)
def test_whichever_broker_dies_at_whatever_step_the_transaction_ends_as_was_told(
    on: Transactions, role: str, moments: tuple[Moment, ...]
) -> None:
    for api in STEPS[role]:
        for moment in moments:
            for committed in (True, False) if api in ENDS else (True,):
                on.run(role, api, moment, committed=committed)
    assert sorted(values_of(on.cluster, "t", "read_committed", PARTITIONS)) == sorted(on.kept)
    on.check_nothing_open()


@pytest.mark.spec("TXN-104", "TXN-95", "TXN-56", "TXN-61")
def test_a_coordinator_that_dies_before_complete_is_stored_has_a_successor_that_stores_it(on: Transactions) -> None:
    for last in Last:
        for committed in (True, False):
            on.end(last, committed=committed)


@pytest.mark.spec("TXN-104", "TXN-44", "TXN-95")
@pytest.mark.parametrize("role", STEPS)
def test_what_dies_together_with_its_producer_is_not_open_for_ever_and_is_whole(on: Transactions, role: str) -> None:
    for api in STEPS[role]:
        for moment in (Moment.AFTER, Moment.ALONE):
            for committed in (True, False) if api in ENDS else (True,):
                on.run(role, api, moment, committed=committed, abandoned=True)
    on.check_nothing_open()
    on.check_abandoned()
