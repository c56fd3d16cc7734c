"""The consequences of a plan: for each broker before and after, for each partition why it changes (RSN-29X). Pure."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain

from kafkatool.core.model.values import BrokerInfo, TopicPartition, join_ids, leaders_by_preference
from kafkatool.core.planner.plan_files import Moves


@dataclass(frozen=True, slots=True)
class BrokerConsequences:
    """The part of one broker in a plan. ``leaders``: partitions that prefer it. ``copied_bytes`` None: not known."""

    broker: int
    replicas_before: int
    replicas_after: int
    leaders_before: int
    leaders_after: int
    incoming: int
    outgoing: int
    copied_bytes: int | None


def broker_consequences(
    current: Moves, proposed: Moves, brokers: Collection[int], sizes: Mapping[TopicPartition, int] | None = None
) -> tuple[BrokerConsequences, ...]:
    """Return those of ``brokers`` and all that hold a replica before or after, by id; ``sizes`` of partitions in bytes."""
    before, after = _replicas(current), _replicas(proposed)
    led, leads = leaders_by_preference(current.values()), leaders_by_preference(proposed.values())
    came: list[int] = []  # counted as a whole: a Counter updated for each partition took longer than all else here
    went: list[int] = []
    copied: Counter[int] = Counter()
    unknown = set()  # brokers that get a partition of unknown size
    known = sizes or {}
    changes: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[list[int], list[int]]] = {}  # many change alike
    for partition, replicas in proposed.items():
        was = current.get(partition, ())
        if was == replicas:
            continue
        change = changes.get((was, replicas))
        if change is None:
            change = [b for b in replicas if b not in was], [b for b in was if b not in replicas]
            changes[was, replicas] = change
        gained, lost = change
        came += gained
        went += lost
        size = known.get(partition)
        for broker in gained:
            if size is None:
                unknown.add(broker)
            else:
                copied[broker] += size
    incoming, outgoing = Counter(came), Counter(went)
    return tuple(
        BrokerConsequences(
            b,
            before[b],
            after[b],
            led[b],
            leads[b],
            incoming[b],
            outgoing[b],
            None if b in unknown or sizes is None else copied[b],
        )
        for b in sorted({*brokers, *before, *after})
    )


def _replicas(moves: Moves) -> Counter[int]:
    return Counter(chain.from_iterable(moves.values()))


def reason(before: tuple[int, ...], after: tuple[int, ...], targets: Mapping[int, BrokerInfo]) -> str | None:
    """Say why a partition changes; None: it does not. ``targets`` are the brokers that were planned for."""
    if before == after:
        return None
    reasons = []
    if leaving := [b for b in before if b not in targets]:
        reasons.append(f"leaves {join_ids(leaving)}")
    if len(before) != len(after):
        reasons.append(f"replication factor {len(before)} to {len(after)}")
    if _racks(before, targets) < _racks(after, targets) and not leaving and len(before) == len(after):
        reasons.append("spread over more racks")
    if not reasons:
        reasons.append("even out replicas" if set(before) != set(after) else "even out leaders")
    elif before[0] != after[0] and before[0] in after:
        reasons.append("even out leaders")
    return "; ".join(reasons)


def _racks(replicas: Collection[int], brokers: Mapping[int, BrokerInfo]) -> int:
    return len({brokers[b].rack for b in replicas if b in brokers} - {None})
