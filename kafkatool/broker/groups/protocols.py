"""The choice of a group's assignment protocol among those that all its members offer (GRP-22, GRP-30)."""

from collections import Counter
from collections.abc import Sequence

from kafkatool.broker.groups.member import Member, Protocols


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
