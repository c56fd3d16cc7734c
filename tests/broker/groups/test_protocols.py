"""Which assignment protocol a group speaks."""

import struct

import pytest

from kafkatool.broker.groups.member import Member
from kafkatool.broker.groups.protocols import fits, most_voted, subscribed_topics


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


def subscription(*topics: str, version: int = 0, more: bytes = b"\0\0\0\0") -> bytes:
    names = b"".join(struct.pack(">h", len(t.encode())) + t.encode() for t in topics)
    return struct.pack(">hi", version, len(topics)) + names + more


def consumer(*metadata: bytes) -> Member:
    protocols = tuple((f"p{number}", data) for number, data in enumerate(metadata))
    return Member("m", None, "c", "/h", 0, 0, protocols)


@pytest.mark.spec("ADM-67")
def test_a_consumers_subscription_is_read_in_whatever_version_and_union_of_all_it_offers() -> None:
    assert subscribed_topics([]) == frozenset()
    assert subscribed_topics([consumer(subscription("t", "\u00fc")), consumer(subscription())]) == {"t", "\u00fc"}
    newer = subscription("u", version=9, more=b"what comes in later versions")
    assert subscribed_topics([consumer(subscription("t"), newer)]) == {"t", "u"}


@pytest.mark.spec("ADM-67")
@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\0\0\0\0",
        subscription("t", more=b"")[:-1],
        struct.pack(">hi", 0, 2**31 - 1),
        struct.pack(">hih", 0, 1, -1),
    ],
)
def test_a_subscription_that_cannot_be_read_is_told_apart_from_none(damaged: bytes) -> None:
    assert subscribed_topics([consumer(subscription("t")), consumer(damaged)]) is None
