"""The plan that balances with the fewest replica moves (RSN-26X to RSN-28X). Pure; the same input gives the same plan.

What counts, in this order: replicas of a partition on as many racks as can be; each broker holding equally many
replicas; each preferred by equally many partitions; few replicas moved; few preferred replicas changed. Evenness is
that of all given partitions together. It is proven optimal where no racks are given and all partitions get the same
number of replicas; with racks, a partition that would have to shuffle several of its own replicas at once may be left.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from kafkatool.core.errors import RefusedError
from kafkatool.core.model.assignment import SOME_RACKS, check_replication_factor
from kafkatool.core.model.values import BrokerInfo, TopicPartition
from kafkatool.core.planner.balancing import HEAVY, SMALL, Search, Step
from kafkatool.core.planner.plan_files import Moves

MOVE = SMALL - 1
"""The cost of a replica moved: more than all the preferred replicas lost (1 each) in a cycle of the search."""


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
    replicas = _Replicas(before, factors, [len(current[p]) for p in partitions], [racks.get(b) for b in ids])
    loads = replicas.fill()
    Search(replicas, loads).run()
    leaders = _spread_leaders(before, replicas, len(ids))
    return {
        p: tuple(ids[b] for b in _ordered(leaders[i], before[i], replicas.held[i])) for i, p in enumerate(partitions)
    }


def _ordered(leader: int, before: Sequence[int], held: Iterable[int]) -> list[int]:
    """Return the leader, then the replicas that stay in the order they had, then the new ones."""
    stay = [b for b in before if b in held]
    return list(dict.fromkeys([leader, *stay, *sorted(held)]))


class _Replicas:
    """The search for who holds each partition: ``held``. Brokers by their place in the list of targets."""

    def __init__(
        self,
        before: Sequence[Sequence[int]],
        factors: Sequence[int],
        sizes_before: Sequence[int],
        racks: Sequence[str | None],
    ) -> None:
        self._brokers = len(racks)
        self._factors = factors
        self._racks = racks if any(rack is not None for rack in racks) else None
        # What it costs that a broker does not hold the partition, as it did before.
        self._missed = [{b: MOVE + (b == was[0]) for b in was} for was in before]
        growing = (factor > size for factor, size in zip(factors, sizes_before, strict=True))
        self._pinned = [frozenset(was if grows else ()) for was, grows in zip(before, growing, strict=True)]
        self.held = [set(was) for was in before]

    def fill(self) -> list[int]:
        """Bring each partition to its number of replicas, a fair start for the search; returns each broker's load."""
        load = Counter(b for held in self.held for b in held)
        for item, (held, factor) in enumerate(zip(self.held, self._factors, strict=True)):
            while len(held) > factor:
                leaving = min(held, key=lambda b: self._worth(item, b, load))
                held.remove(leaving)
                load[leaving] -= 1
        for item, (held, factor) in enumerate(zip(self.held, self._factors, strict=True)):
            while len(held) < factor:
                free = (b for b in range(self._brokers) if b not in held)
                joining = max(free, key=lambda b: self._worth(item, b, load))
                held.add(joining)
                load[joining] += 1
        return [load[b] for b in range(self._brokers)]

    def _worth(self, item: int, broker: int, load: Counter[int]) -> tuple[bool, int, int, int]:
        """Rate a broker for the partition, more being better: by rack, by what is there already, by room."""
        racks, others = self._racks, self.held[item] - {broker}
        alone = racks is None or all(racks[b] != racks[broker] for b in others)
        return alone, self._missed[item].get(broker, 0), -load[broker], -broker

    def __len__(self) -> int:
        return len(self.held)

    def steps(self, item: int) -> Iterator[Step]:
        held, missed, racks = self.held[item], self._missed[item], self._racks
        for source in sorted(held - self._pinned[item]):
            given_up = missed.get(source, 0)
            if racks is None:
                for target in range(self._brokers):
                    if target not in held:
                        yield source, target, given_up - missed.get(target, 0)
                continue
            others = {racks[b] for b in held if b != source}
            freed = racks[source] in others
            for target, rack in enumerate(racks):
                if target not in held:
                    yield source, target, ((rack in others) - freed) * HEAVY + given_up - missed.get(target, 0)

    def cost(self, item: int) -> int:
        held = self.held[item]
        doubled = len(held) - len({self._racks[b] for b in held}) if self._racks is not None else 0
        return doubled * HEAVY + sum(cost for broker, cost in self._missed[item].items() if broker not in held)

    def apply(self, item: int, source: int, target: int) -> None:
        self.held[item].remove(source)
        self.held[item].add(target)


class _Leaders:
    """The search for the replica that each partition prefers. Staying costs nothing, another that stays 1, a new one 2."""

    def __init__(self, before: Sequence[Sequence[int]], held: Sequence[Iterable[int]]) -> None:
        self._ranks = [
            {b: _rank(b, was) for b in (*(b for b in was if b in now), *sorted(now))}
            for was, now in zip(before, held, strict=True)
        ]
        self.leader = [min(ranks, key=ranks.__getitem__) for ranks in self._ranks]

    def __len__(self) -> int:
        return len(self.leader)

    def steps(self, item: int) -> Iterator[Step]:
        leader, ranks = self.leader[item], self._ranks[item]
        for broker, rank in ranks.items():
            if broker != leader:
                yield leader, broker, rank - ranks[leader]

    def cost(self, item: int) -> int:
        return self._ranks[item][self.leader[item]]

    def apply(self, item: int, source: int, target: int) -> None:
        assert self.leader[item] == source
        self.leader[item] = target


def _rank(broker: int, before: Sequence[int]) -> int:
    if broker not in before:
        return 2
    return int(broker != before[0])


def _spread_leaders(before: Sequence[Sequence[int]], replicas: _Replicas, brokers: int) -> list[int]:
    """Choose the preferred replica of each partition, as evenly as the replicas allow.

    With equal numbers of replicas everywhere that is even always: spread over its replicas, a partition's leadership
    gives each broker its share, so whole leaderships can too. With unequal numbers replicas may have to change places.
    """
    while True:
        leaders = _Leaders(before, replicas.held)
        loads = Counter(leaders.leader)
        Search(leaders, [loads[b] for b in range(brokers)]).run()
        if not _change_places(leaders.leader, replicas, brokers):
            return leaders.leader


def _change_places(leader: Sequence[int], replicas: _Replicas, brokers: int) -> bool:
    """Let a broker that is preferred too seldom have a replica of one preferred too often; False: nothing to change.

    It gives one of its own in return, unless it holds fewer. No rack gets worse.
    """
    preferred = Counter(leader)
    load = Counter(b for held in replicas.held for b in held)
    pairs = sorted((preferred[few] - preferred[many], many, few) for many in range(brokers) for few in range(brokers))
    for difference, many, few in pairs:
        if difference > -2:
            return False
        given = next((i for i in _movable(replicas, many, few) if leader[i] == many), None)
        if given is None:
            continue
        back = None
        if load[many] <= load[few]:
            back = next((i for i in _movable(replicas, few, many) if leader[i] != few), None)
            if back is None:
                continue
            replicas.apply(back, few, many)
        replicas.apply(given, many, few)
        return True
    return False


def _movable(replicas: _Replicas, source: int, target: int) -> Iterator[int]:
    """Yield the partitions that can hand a replica from one broker to the other, at no cost in racks."""
    for item, held in enumerate(replicas.held):
        if source in held and target not in held:
            cost = next((cost for s, t, cost in replicas.steps(item) if (s, t) == (source, target)), HEAVY)
            if cost < HEAVY // 2:
                yield item
