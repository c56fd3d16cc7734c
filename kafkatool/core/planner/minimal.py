"""The plan that balances with the fewest replica moves (RSN-26X to RSN-28X). Pure; the same input gives the same plan.

What counts, in this order: replicas of a partition on as many racks as can be; each broker holding equally many
replicas; each preferred by equally many partitions; few replicas moved; few preferred replicas changed. Evenness is
that of all given partitions together. An integer programme found nothing better for hundreds of small clusters, with
one number of replicas or several, drained and growing ones included, but for one preferred replica more changed in one
cluster with racks. The search has no proof for unequal numbers of replicas.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from kafkatool.core.errors import RefusedError
from kafkatool.core.model.assignment import SOME_RACKS, check_replication_factor
from kafkatool.core.model.values import BrokerInfo, TopicPartition
from kafkatool.core.planner.balancing import LEADERSHIPS, REPLICAS, Offer, Search, Step
from kafkatool.core.planner.plan_files import Moves

MOVE = 10**5
"""The cost of a replica moved: more than all the preferred replicas that a cycle of the search may change (1 each)."""


def plan_minimal(
    brokers: Sequence[BrokerInfo], current: Moves, *, replication_factor: int | None = None, rack_aware: bool = True
) -> dict[TopicPartition, tuple[int, ...]]:
    """Plan every partition of ``current``, with replicas on ``brokers`` alone; others, dead or drained, end empty.

    Without ``replication_factor`` each partition keeps its number of replicas. A partition that gets more keeps all it
    has on ``brokers``. Raises RefusedError: fewer brokers than replicas (TOP-7), racks on some brokers only (ASG-14).
    """
    partitions = sorted(p for p, replicas in current.items() if replicas)
    ids = sorted(b.id for b in brokers)
    racks = {b.id: b.rack for b in brokers if b.rack is not None} if rack_aware else {}
    if racks and len(racks) < len(ids):
        raise RefusedError(SOME_RACKS)
    factors = [len(current[p]) if replication_factor is None else replication_factor for p in partitions]
    for factor in sorted(set(factors)):
        check_replication_factor(factor, len(ids))
    place = {broker: i for i, broker in enumerate(ids)}
    before = [[place[b] for b in current[p] if b in place] for p in partitions]
    growing = [factor > len(current[p]) for p, factor in zip(partitions, factors, strict=True)]
    preferred = [place.get(current[p][0]) for p in partitions]
    for first in (REPLICAS, LEADERSHIPS):
        plan = _Plan(before, preferred, factors, growing, [racks.get(b, "") for b in ids])
        search = Search(plan)
        if search.begin(first):
            break  # nearly always; else there is less left to do when leaderships come first
    search.finish()
    return {
        p: tuple(ids[b] for b in _ordered(plan.leader[i], before[i], plan.held[i])) for i, p in enumerate(partitions)
    }


def _ordered(leader: int, before: Sequence[int], held: Iterable[int]) -> list[int]:
    """Return the leader, then the replicas that stay in the order they had, then the new ones."""
    stay = [b for b in before if b in held]
    return list(dict.fromkeys([leader, *stay, *sorted(held)]))


class _Plan:
    """Which brokers hold each partition, and which is preferred. Brokers by their place in the list of targets.

    Each partition is on as many racks as it can be from the start, and no step is offered that would end that.
    """

    def __init__(
        self,
        before: Sequence[Sequence[int]],
        preferred: Sequence[int | None],
        factors: Sequence[int],
        growing: Sequence[bool],
        racks: Sequence[str],
    ) -> None:
        names = sorted(set(racks))
        self.groups = [len(racks) + names.index(rack) for rack in racks]
        self._racks = set(self.groups)
        self._before = before
        self._preferred = preferred
        self._pinned = [frozenset(was if grows else ()) for was, grows in zip(before, growing, strict=True)]
        self.held = [set(was) for was in before]
        self._fill(factors)
        self.leader = [
            next((b for b in was if b in held), min(held)) for was, held in zip(before, self.held, strict=True)
        ]

    def _fill(self, factors: Sequence[int]) -> None:
        """Bring each partition to its number of replicas and racks, a fair start for the search."""
        load = Counter(b for held in self.held for b in held)
        for item, (held, factor) in enumerate(zip(self.held, factors, strict=True)):
            pinned = self._pinned[item]
            racks = min(len(self._racks), self._spread(pinned) + factor - len(pinned))
            while len(held) > factor or self._spread(held) + factor - len(held) < racks:
                leaving = min(held - pinned, key=lambda b: self._worth(item, b, load))
                held.remove(leaving)
                load[leaving] -= 1
        for item, (held, factor) in enumerate(zip(self.held, factors, strict=True)):
            while len(held) < factor:
                free = (b for b in range(len(self.groups)) if b not in held)
                joining = max(free, key=lambda b: self._worth(item, b, load))
                held.add(joining)
                load[joining] += 1

    def _spread(self, brokers: Iterable[int]) -> int:
        """Return the number of racks."""
        return len({self.groups[b] for b in brokers})

    def _worth(self, item: int, broker: int, load: Counter[int]) -> tuple[bool, int, int, int]:
        """Return how good the broker is for the partition: rack, what is there already, room."""
        alone = all(self.groups[b] != self.groups[broker] for b in self.held[item] if b != broker)
        return alone, MOVE * (broker in self._before[item]) - self._change(item, broker), -load[broker], -broker

    def __len__(self) -> int:
        return len(self.held)

    def _change(self, item: int, leader: int) -> int:
        """Return what it costs that this replica is preferred."""
        return int(leader != self._preferred[item])

    def brokers(self, layer: int, item: int) -> Iterable[int]:
        return self.held[item] if layer == REPLICAS else [self.leader[item]]

    def offers(self, item: int) -> Iterator[Offer]:
        held, was, leader = self.held[item], self._before[item], self.leader[item]
        now = self._change(item, leader)
        followers = [(b, self._change(item, b) - now) for b in sorted(held) if b != leader]
        for follower, change in followers:
            yield (None, leader), (None, follower), change
        for source in sorted(held - self._pinned[item]):
            groups = self._open_groups(item, source)
            back = [b for b in was if b not in held and self.groups[b] in groups]
            for target in (*sorted(groups), *back):
                moved = MOVE * ((source in was) - (target in was))
                yield (source, leader), (target, target), moved + self._change(item, target) - now
                if source != leader:
                    yield (source, None), (target, None), moved
                    continue
                for follower, change in followers:
                    yield (source, leader), (target, follower), moved + change

    def _open_groups(self, item: int, source: int) -> set[int]:
        """Return the racks that may take the replica: all, if another is in its rack, else those without any."""
        others = {self.groups[b] for b in self.held[item] if b != source}
        return self._racks if self.groups[source] in others else self._racks - others

    def is_new(self, item: int, broker: int | None) -> bool:
        return broker not in self.held[item] and broker not in self._before[item]

    def allows(self, step: Step) -> bool:
        item, (source, leader), (target, next_leader) = step
        held = self.held[item]
        if leader not in (None, self.leader[item]):
            return False
        if source is not None and target is not None:
            if source not in held or target in held or self.groups[target] not in self._open_groups(item, source):
                return False
            held = held - {source} | {target}
        return (self.leader[item] if next_leader is None else next_leader) in held

    def cost(self, item: int) -> int:
        missing = sum(b not in self.held[item] for b in self._before[item])
        return MOVE * missing + self._change(item, self.leader[item])

    def apply(self, step: Step) -> None:
        item, (source, _), (target, leader) = step
        if source is not None and target is not None:
            self.held[item].remove(source)
            self.held[item].add(target)
        if leader is not None:
            self.leader[item] = leader
