"""A search that evens out what brokers hold at the lowest cost, by steps of one unit, until no cycle of steps helps.

A *unit* is a replica, or a leadership; an *item* is the partition it belongs to. Handing a unit of an item from one
broker to another has a cost, and brokers that hold unequally much cost the sum of the squares of what they hold. A plan
is the cheapest if and only if no cycle of such steps lowers the cost (cycle cancelling, Klein 1967; by it a sum of
squares becomes as even as it can be in every respect: smallest maximum, largest minimum).

The graph has a node per broker, not per partition: for each pair of brokers only the cheapest step counts. So a round
of the search costs brokers squared, whatever the number of partitions.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

SMALL: Final = 100_000
"""No step costs more, or less than -SMALL, beside HEAVY. Evenness is worth all the small costs of a cycle together."""

HEAVY: Final = 10**18
"""A cost that no evenness is worth, such as two replicas in one rack; sums of the rest stay far below."""

Step = tuple[int, int, int]
"""(from, to, cost): brokers by their place in the list."""

Edge = tuple[int, int]


class Problem(Protocol):
    """The units that can be handed over, and their cost. Items are numbered from 0."""

    def __len__(self) -> int: ...

    def steps(self, item: int) -> Iterable[Step]:
        """Yield every step that the item can take now; cost is within SMALL, plus or minus HEAVY."""

    def cost(self, item: int) -> int:
        """Return what the item costs as it is: a step changes it by the step's cost."""

    def apply(self, item: int, source: int, target: int) -> None:
        """Take the step."""


class Search:
    """A search that lowers the cost of ``problem`` as far as it goes. ``loads``: units that each broker holds."""

    def __init__(self, problem: Problem, loads: Sequence[int]) -> None:
        self._problem = problem
        self._loads = list(loads)
        count = len(loads)
        self._square = SMALL * (count + 2)
        self._steps: list[list[defaultdict[int, list[int]]]] = [
            [defaultdict(list) for _ in range(count)] for _ in range(count)
        ]
        self._age = [0] * len(problem)  # a stored step of an older age is no longer true
        self._cheapest: list[list[int | None]] = [[None] * count for _ in range(count)]
        for item in reversed(range(len(problem))):  # the last stored is taken first: low numbers move first
            self._store(item)
        for source in range(count):
            self._refresh(source)

    def run(self) -> None:
        """Lower the cost; changes the problem through ``apply`` only."""
        self._even_out()
        while cycle := self._negative_cycle():
            if not self._take(cycle):
                return

    # --- cheapest steps -------------------------------------------------------------------------------------------

    def _store(self, item: int) -> None:
        stamped = self._age[item] * len(self._age) + item
        for source, target, cost in self._problem.steps(item):
            self._steps[source][target][cost].append(stamped)

    def _item(self, source: int, target: int, cost: int) -> int | None:
        """Return an item that can take this step at this cost now, or None."""
        stored = self._steps[source][target][cost]
        while stored:
            age, item = divmod(stored[-1], len(self._age))
            if self._age[item] == age:
                return item
            stored.pop()
        return None

    def _refresh(self, source: int) -> None:
        for target, by_cost in enumerate(self._steps[source]):
            costs = (cost for cost in sorted(by_cost) if self._item(source, target, cost) is not None)
            self._cheapest[source][target] = next(costs, None)

    def _apply(self, item: int, source: int, target: int) -> None:
        touched = {step[0] for step in self._problem.steps(item)} | {source, target}
        self._problem.apply(item, source, target)
        self._loads[source] -= 1
        self._loads[target] += 1
        self._age[item] += 1
        self._store(item)
        for broker in touched:
            self._refresh(broker)

    # --- the search -----------------------------------------------------------------------------------------------

    def _even_out(self) -> None:
        """Take the plain steps first, from a full broker to the emptiest: nearly all of the way, without a search."""
        loads = self._loads
        while True:
            target = min(range(len(loads)), key=loads.__getitem__)
            offers = [
                (cost, -loads[source], source)
                for source in range(len(loads))
                if loads[source] >= loads[target] + 2 and (cost := self._cheapest[source][target]) is not None
            ]
            if not offers or min(offers)[0] > HEAVY // 2:
                return
            cost, _, source = min(offers)
            item = self._item(source, target, cost)
            assert item is not None
            self._apply(item, source, target)

    def _negative_cycle(self) -> list[Edge]:
        """Return the edges of a cycle that lowers the cost, or none (Bellman and Ford, stopped at the first cycle found).

        The last node stands for evenness: into it from the broker that keeps one unit more, out of it to the broker
        that ends with one less.
        """
        count = len(self._loads)
        edges = [
            (source, target, cost)
            for source, row in enumerate(self._cheapest)
            for target, cost in enumerate(row)
            if cost is not None
        ]
        edges += [(broker, count, self._square * (2 * load + 1)) for broker, load in enumerate(self._loads)]
        edges += [(count, broker, -self._square * (2 * load - 1)) for broker, load in enumerate(self._loads) if load]
        distance = [0] * (count + 1)
        before: list[int | None] = [None] * (count + 1)
        changed = True
        while changed:
            changed = False
            known = distance.copy()  # a round at a time: short cycles are found before long ones
            for source, target, cost in edges:
                if known[source] + cost < distance[target]:
                    distance[target] = known[source] + cost
                    before[target] = source
                    changed = True
            if changed and (cycle := _cycle_in(before)):
                return cycle
        return []

    def _take(self, cycle: Sequence[Edge]) -> bool:
        """Take the cycle's steps; False: they did not lower the cost, and nothing is changed.

        That happens with racks only, where two steps of one partition are not worth the sum of both.
        """
        count = len(self._loads)
        steps = []
        for source, target in cycle:
            if count not in (source, target):
                cost = self._cheapest[source][target]
                assert cost is not None
                item = self._item(source, target, cost)
                assert item is not None
                steps.append((item, source, target))
        items = {item for item, _, _ in steps}
        before = self._total(items)
        for step in steps:
            self._apply(*step)
        if self._total(items) < before:
            return True
        for item, source, target in reversed(steps):
            self._apply(item, target, source)
        return False

    def _total(self, items: Iterable[int]) -> int:
        return sum(map(self._problem.cost, items)) + self._square * sum(load * load for load in self._loads)


def _cycle_in(before: Sequence[int | None]) -> list[Edge]:
    """Return a cycle among the predecessors, in the direction of its steps; none: an empty list."""
    seen_from: list[int | None] = [None] * len(before)
    for start in range(len(before)):
        node: int | None = start
        while node is not None and seen_from[node] is None:
            seen_from[node] = start
            node = before[node]
        if node is not None and seen_from[node] == start:
            return _edges_back(before, node)
    return []


def _edges_back(before: Sequence[int | None], end: int) -> list[Edge]:
    edges = []
    node = end
    while True:
        previous = before[node]
        assert previous is not None
        edges.append((previous, node))
        node = previous
        if node == end:
            return edges[::-1]
