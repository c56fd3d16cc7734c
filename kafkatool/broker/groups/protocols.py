"""The choice of a group's assignment protocol among those that all its members offer (GRP-22, GRP-30), and what these
say of a consumer's subscription (ADM-67).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from struct import Struct

from kafkatool.broker.groups.member import Member, Protocols

_VERSION, _COUNT, _LENGTH = Struct(">h"), Struct(">i"), Struct(">h")


def common(members: Sequence[Member]) -> set[str]:
    """Return the protocols that all of these offer; there is at least one member."""
    return set.intersection(*({name for name, _ in m.protocols} for m in members))


def fits(protocols: Protocols, members: Sequence[Member]) -> bool:
    """Tell whether one who offers these can be among them."""
    shared = common(members)
    return any(name in shared for name, _ in protocols)


def most_voted(members: Sequence[Member], leader: Member) -> str:
    """Return the protocol with most votes, each member's first that all offer; ties go to the leader's order."""
    shared = common(members)
    votes = Counter(next(name for name, _ in m.protocols if name in shared) for m in members)
    return max((name for name, _ in leader.protocols if name in shared), key=lambda name: votes[name])


def subscribed_topics(members: Iterable[Member]) -> frozenset[str] | None:
    """Return the topics that any of these consumers has subscribed to; None: one's subscription cannot be read."""
    topics: set[str] = set()
    for member in members:
        for _, metadata in member.protocols:
            read = _topics_in(metadata)
            if read is None:
                return None
            topics |= read
    return frozenset(topics)


def _topics_in(metadata: bytes) -> set[str] | None:
    """Read the start of a ConsumerProtocolSubscription, which is the same in all its versions."""
    position = _VERSION.size + _COUNT.size
    if len(metadata) < position:
        return None
    (count,) = _COUNT.unpack_from(metadata, _VERSION.size)
    topics = set()
    for _ in range(count):
        if len(metadata) < position + _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(metadata, position)
        position += _LENGTH.size
        if length < 0 or len(metadata) < position + length:
            return None
        topics.add(metadata[position : position + length].decode(errors="replace"))
        position += length
    return topics
