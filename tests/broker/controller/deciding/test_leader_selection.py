"""Every decision about leaders as a table of rows: pure functions, no cluster."""

import pytest

from kafkatool.broker.controller.deciding.leader_selection import (
    Choice,
    elect_for_shutdown,
    elect_offline,
    elect_preferred,
    elect_reassigned,
    first_leader,
    without_replicas,
)
from kafkatool.core.model.values import LeaderAndIsr


def state(leader: int | None, *isr: int) -> LeaderAndIsr:
    return LeaderAndIsr(leader, 5, isr, 1)


@pytest.mark.spec("CTL-71", "CTL-73")
@pytest.mark.parametrize(
    ("assigned", "live", "expected"),
    [
        ((1, 2, 3), {1, 2, 3}, Choice(1, (1, 2, 3))),
        ((3, 1, 2), {1, 2, 3}, Choice(3, (3, 1, 2))),
        ((1, 2, 3), {3, 2}, Choice(2, (2, 3))),
        ((1, 2, 3), {4}, None),
    ],
)
def test_a_new_partition_is_led_by_the_first_live_replica(
    assigned: tuple[int, ...], live: set[int], expected: Choice | None
) -> None:
    assert first_leader(assigned, live) == expected


@pytest.mark.spec("CTL-43", "ADM-62")
@pytest.mark.parametrize(
    ("isr", "live", "unclean_allowed", "expected"),
    [
        ((1, 2, 3), {2, 3}, True, Choice(2, (2, 3))),
        ((3, 2, 1), {2, 3}, False, Choice(2, (3, 2))),  # AR order decides the leader, ISR order stays
        ((1, 3), {2, 3}, True, Choice(3, (3,))),  # in sync goes before the order of AR
        ((1,), {2, 3}, True, Choice(2, (2,), unclean=True)),
        ((1,), {3}, True, Choice(3, (3,), unclean=True)),
        ((1,), {2, 3}, False, None),
        ((1,), set(), True, None),
    ],
)
def test_a_partition_without_leader(
    isr: tuple[int, ...], live: set[int], unclean_allowed: bool, expected: Choice | None
) -> None:
    found = elect_offline(state(1, *isr), (1, 2, 3), live, unclean_allowed=unclean_allowed)
    assert found == expected


@pytest.mark.spec("CTL-43")
def test_the_order_of_the_assignment_decides_and_not_that_of_ids() -> None:
    assigned, live = (4, 3, 1, 2), {1, 2, 3}
    assert elect_offline(state(4, 1, 2, 3, 4), assigned, live, unclean_allowed=False) == Choice(3, (1, 2, 3))
    assert elect_offline(state(4, 4), assigned, live, unclean_allowed=True) == Choice(3, (3,), unclean=True)


@pytest.mark.spec("CTL-64", "CTL-91", "CTL-95")
@pytest.mark.parametrize(
    ("wanted", "live", "isr", "expected"),
    [
        ((4, 5, 6), {4, 5, 6}, (1, 2, 3, 4, 5, 6), Choice(4, (1, 2, 3, 4, 5, 6))),
        ((4, 5, 6), {5, 6}, (1, 4, 5, 6), Choice(5, (1, 4, 5, 6))),
        ((4, 5, 6), {4, 5, 6}, (1, 6), Choice(6, (1, 6))),
        ((4, 5, 6), {4, 5, 6}, (6, 5, 1), Choice(5, (6, 5, 1))),  # the first of RAR, not of the ISR
        ((4, 5, 6), {1}, (1, 4, 5, 6), None),
        ((4, 5, 6), {4}, (1, 5), None),
    ],
)
def test_the_leader_of_a_reassigned_partition(
    wanted: tuple[int, ...], live: set[int], isr: tuple[int, ...], expected: Choice | None
) -> None:
    assert elect_reassigned(state(1, *isr), wanted, live) == expected


@pytest.mark.spec("CTL-102", "CTL-103", "ELE-7")
@pytest.mark.parametrize(
    ("live", "isr", "expected"),
    [
        ({1, 2, 3}, (2, 3, 1), Choice(1, (2, 3, 1))),
        ({2, 3}, (1, 2, 3), None),
        ({1, 2, 3}, (2, 3), None),
    ],
)
def test_the_preferred_replica_leads_only_live_and_in_sync(
    live: set[int], isr: tuple[int, ...], expected: Choice | None
) -> None:
    assert elect_preferred(state(2, *isr), (1, 2, 3), live) == expected


@pytest.mark.spec("CTL-64", "CTL-114")
def test_a_dead_member_of_the_isr_neither_takes_over_nor_leaves_the_isr_with_a_broker_that_stops() -> None:
    assert elect_for_shutdown(state(1, 1, 2, 3), (1, 2, 3), {3}, {1}) == Choice(3, (2, 3))


@pytest.mark.spec("CTL-114")
@pytest.mark.parametrize(
    ("isr", "stopping", "expected"),
    [
        ((1, 2, 3), {1}, Choice(2, (2, 3))),
        ((1, 2, 3), {1, 2}, Choice(3, (3,))),
        ((3, 2, 1), {1}, Choice(2, (3, 2))),  # the first of AR, not of the ISR
        ((1,), {1}, None),
        ((1, 2), {1, 2}, None),
    ],
)
def test_a_broker_that_stops_hands_over(isr: tuple[int, ...], stopping: set[int], expected: Choice | None) -> None:
    assert elect_for_shutdown(state(1, *isr), (1, 2, 3), {1, 2, 3} - stopping, stopping) == expected


@pytest.mark.spec("CTL-46", "CTL-47")
@pytest.mark.parametrize(
    ("before", "gone", "after"),
    [
        (state(1, 1, 2, 3), {2}, (1, (1, 3))),
        (state(1, 1, 2, 3), {2, 3}, (1, (1,))),
        (state(1, 1, 3), {2}, None),  # was not in sync
        (state(1, 1), {1}, (None, (1,))),  # never empty
        (state(2, 1, 2, 3), {1, 2, 3}, (None, (2,))),  # the former leader goes last, and stays in the list
        (state(None, 3), {3}, None),
        (state(None, 1, 2, 3), {1, 2, 3}, (None, (3,))),  # without a leader the last of the list stays
        (state(1, 1, 2), {1}, (None, (2,))),
    ],
)
def test_replicas_going_offline(
    before: LeaderAndIsr, gone: set[int], after: tuple[int | None, tuple[int, ...]] | None
) -> None:
    found = without_replicas(before, gone, controller_epoch=7)
    assert found == (None if after is None else LeaderAndIsr(after[0], 6, after[1], 7))
