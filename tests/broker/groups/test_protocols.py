"""Which assignment protocol a group speaks."""

import pytest

from kafkatool.broker.groups.member import Member
from kafkatool.broker.groups.protocols import fits, most_voted


def offers(*names: str) -> tuple[tuple[str, bytes], ...]:
    return tuple((name, b"") for name in names)


def member(*names: str) -> Member:
    return Member("m", None, "client", "host", 1, 1, offers(*names))


@pytest.mark.spec("GRP-30")
@pytest.mark.parametrize(
    ("leader", "others", "chosen"),
    [
        (member("range"), [], "range"),
        (member("range", "sticky"), [member("sticky", "range"), member("sticky", "range")], "sticky"),
        (member("range", "sticky"), [member("sticky", "range")], "range"),  # a tie: the leader's order
        (member("only-mine", "sticky", "range"), [member("range", "sticky")], "sticky"),
        (member("a", "b", "c"), [member("c", "b"), member("b", "c")], "b"),
    ],
)
def test_most_votes_among_what_all_offer(leader: Member, others: list[Member], chosen: str) -> None:
    assert most_voted([leader, *others], leader) == chosen


@pytest.mark.spec("GRP-22")
def test_one_protocol_that_all_offer_is_enough_to_fit() -> None:
    members = [member("a", "b"), member("b", "c")]
    assert fits(offers("x", "b"), members)
    assert not fits(offers("a", "c"), members)
