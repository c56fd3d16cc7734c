"""What stands in the way of moves: brokers that are gone, throttles next to nothing, partitions that nobody leads."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from kafkatool.core.errors import NoPermissionError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.reassignment.throttles import MIN_SAFE_RATE, rates_by_broker
from kafkatool.core.zookeeper.cluster_view import read_states
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import BrokersZnode


class Hindrances(NamedTuple):
    """What was seen that keeps moves from going on; nothing of it: all empty.

    ``awaited``: brokers that partitions are to be on, and that are not registered. ``throttled``: brokers whose rate is
    below ``MIN_SAFE_RATE``, and that rate in bytes per second. ``leaderless``: partitions with nobody to copy from.
    ``others``: what somebody else moves, whose end a batch waits for before it is sent.
    """

    awaited: tuple[int, ...] = ()
    throttled: tuple[tuple[int, int], ...] = ()
    leaderless: tuple[TopicPartition, ...] = ()
    others: tuple[TopicPartition, ...] = ()


NOTHING: Final = Hindrances()


def missing(wanted: Iterable[Iterable[int]], live: Collection[int]) -> tuple[int, ...]:
    """Return the brokers of those lists of replicas that are not live."""
    return tuple(sorted({broker for replicas in wanted for broker in replicas}.difference(live)))


def too_slow(rates: Mapping[int, Iterable[str]], brokers: Collection[int]) -> tuple[tuple[int, int], ...]:
    """Return which of those brokers' lowest rate is below ``MIN_SAFE_RATE``."""
    lowest = {
        b: min(known)
        for b in sorted(brokers)
        if (known := [int(rate) for rate in rates.get(b, ()) if rate.isdecimal()])
    }
    return tuple((broker, rate) for broker, rate in lowest.items() if rate < MIN_SAFE_RATE)


def find_awaited(zk: ZooKeeper, left: Mapping[TopicPartition, tuple[int, ...]]) -> tuple[int, ...]:
    """Read which brokers those replicas are to be on that are not registered."""
    return missing(left.values(), {int(name) for name in zk.children(BrokersZnode.PATH) or () if name.isdecimal()})


def find(zk: ZooKeeper, left: Mapping[TopicPartition, tuple[int, ...]]) -> Hindrances:
    """Look for all of it, for the moves that are left with their targets. Rates that may not be read are left out."""
    states = read_states(zk, left)
    try:
        rates = {broker: rates.values() for broker, rates in rates_by_broker(zk).items()}
    except NoPermissionError:
        rates = {}
    leaderless = tuple(sorted(p for p in left if p not in states or states[p].leader_and_isr.leader is None))
    sources = {b for state in states.values() for b in state.leader_and_isr.isr}
    concerned = sources.union(*left.values())
    return Hindrances(find_awaited(zk, left), too_slow(rates, concerned), leaderless)
