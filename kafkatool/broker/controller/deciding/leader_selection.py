"""The choice of a partition's leader and ISR, as pure functions of values (CTL-43, 46, 47, 71, 95, 102, 114).

Nothing here knows of ZooKeeper, time or requests. ``live`` always means: usable for this partition right now.
Source: Kafka 2.8.0 controller/Election.scala, 1.1.1 controller/ReplicaStateMachine.scala for ``without_replicas``.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from kafkatool.core.model.values import LeaderAndIsr


class Choice(NamedTuple):
    """The outcome of an election. ``unclean``: the leader was not in the ISR, records may be lost."""

    leader: int
    isr: tuple[int, ...]
    unclean: bool = False


def first_leader(assigned: Sequence[int], live: Collection[int]) -> Choice | None:
    """Choose for a partition that was never led: the first live replica, with the live ones as ISR (CTL-71, 73)."""
    isr = tuple(b for b in assigned if b in live)
    return Choice(isr[0], isr) if isr else None


def elect_offline(
    state: LeaderAndIsr, assigned: Sequence[int], live: Collection[int], *, unclean_allowed: bool
) -> Choice | None:
    """Choose for a partition whose leader died (CTL-43). None: no candidate, the partition stays offline."""
    in_sync = tuple(b for b in state.isr if b in live)
    for broker in assigned:
        if broker in in_sync:
            return Choice(broker, in_sync)
    if unclean_allowed:
        for broker in assigned:
            if broker in live:
                return Choice(broker, (broker,), unclean=True)
    return None


def elect_reassigned(state: LeaderAndIsr, wanted: Sequence[int], live: Collection[int]) -> Choice | None:
    """Choose the first wanted replica that is live and in sync; the ISR stays (CTL-91 step 7, CTL-95)."""
    leader = next((b for b in wanted if b in live and b in state.isr), None)
    return None if leader is None else Choice(leader, state.isr)


def elect_preferred(state: LeaderAndIsr, assigned: Sequence[int], live: Collection[int]) -> Choice | None:
    """Choose AR[0], if live and in sync; the ISR stays. Never a choice that loses data (CTL-102, 103)."""
    return elect_reassigned(state, assigned[:1], live)


def elect_for_shutdown(
    state: LeaderAndIsr, assigned: Sequence[int], live: Collection[int], shutting_down: Collection[int]
) -> Choice | None:
    """Choose the first of AR in sync and not shutting down; the ISR loses all that are (CTL-114). None: no change."""
    leader = next((b for b in assigned if b in live and b in state.isr and b not in shutting_down), None)
    return None if leader is None else Choice(leader, tuple(b for b in state.isr if b not in shutting_down))


def without_replicas(state: LeaderAndIsr, gone: Collection[int], controller_epoch: int) -> LeaderAndIsr | None:
    """Return the state after replicas went offline (CTL-46, 47). None: nothing changes, nothing is to be written.

    The ISR never becomes empty: followers go first, the former leader last, and the last member stays, so that this
    replica can lead again when it returns. A leader that goes leaves the partition without one.
    """
    isr = tuple(b for b in state.isr if b not in gone)
    if not isr:
        isr = (state.leader,) if state.leader in state.isr and state.leader is not None else state.isr[-1:]
    leader = None if state.leader in gone else state.leader
    if leader == state.leader and isr == state.isr:
        return None
    return LeaderAndIsr(leader, state.leader_epoch + 1, isr, controller_epoch)
