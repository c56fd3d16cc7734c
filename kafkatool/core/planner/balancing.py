"""Even out what brokers hold and lead at the lowest cost: exchanges of one replica or one leadership at a time.

A *step* changes one item (a partition): it hands a replica, the leadership, or both from broker to broker. Steps have
costs, and brokers that hold or lead unequally much cost the sum of the squares of what they have. Replicas and
leaderships are two *layers*. Within one, a plan is the cheapest if and only if no cycle of steps lowers the cost (cycle
cancelling, Klein 1967; by it a sum of squares becomes as even as it can be in every respect: smallest maximum, largest
minimum). When neither layer has such a cycle, one may still run through both at once: a step that changes both, then
back in each by itself. So the last search is among pairs of brokers, one for each layer.

The graphs are of brokers, not of partitions: for each pair of brokers only the cheapest step counts. So a round of the
search costs a power of the brokers, whatever the number of partitions.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, Protocol, TypeVar

REPLICAS: Final = 0
LEADERSHIPS: Final = 1
LAYERS: Final = (REPLICAS, LEADERSHIPS)

SQUARE: Final = (10**20, 10**10)
"""What the squares of each layer's loads count. Evenness is worth all the smaller costs of a cycle together."""

Places = tuple[int | None, int | None]
"""Where a replica and the leadership come from, or go to; None: the step leaves that layer as it is."""

State = tuple[int, int]
"""The broker that a cycle of both layers has reached in each."""

Node = TypeVar("Node", int, State)

Offer = tuple[Places, Places, int]
"""From, to and cost of a step that an item can take. To a group: to any broker of it that is new to the item."""


class Step(NamedTuple):
    """Brokers by their place in the list."""

    item: int
    source: Places
    target: Places


class Problem(Protocol):
    """What is handed over, and what it costs. Items are numbered from 0; groups of brokers from the last broker on."""

    @property
    def groups(self) -> Sequence[int]:
        """Return each broker's group."""

    def __len__(self) -> int: ...

    def brokers(self, layer: int, item: int) -> Iterable[int]:
        """Return the brokers that have a unit of the item in this layer."""

    def offers(self, item: int) -> Iterable[Offer]:
        """Return every step that the item can take now."""

    def is_new(self, item: int, broker: int | None) -> bool:
        """Tell whether an offer to the broker's group means the broker too."""

    def allows(self, step: Step) -> bool:
        """Tell whether the step can be taken now."""

    def cost(self, item: int) -> int:
        """Return what the item costs as it is: a step changes it by the step's cost."""

    def apply(self, step: Step) -> None:
        """Take the step. With source and target exchanged it is taken back."""


class Search:
    """Lowers the cost of ``problem`` until it finds nothing that lowers it further."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._brokers = range(len(problem.groups))
        self._evenness = max(problem.groups) + 1
        self._loads: dict[int, list[int]] = {}
        self._offers = _Offers(problem)

    def begin(self, first: int) -> bool:
        """Even out one layer, then the other as far as it goes by itself; False: it stays uneven.

        The first takes steps of both layers too. How little is left for ``finish``, which is slow, depends on the order.
        """
        for layer in (first, 1 - first):
            loads = Counter(b for item in range(len(self._problem)) for b in self._problem.brokers(layer, item))
            self._loads[layer] = [loads[b] for b in self._brokers]
            self._even_out(layer)
            self._lower(layer)
        return max(self._loads[1 - first]) - min(self._loads[1 - first]) <= 1

    def finish(self) -> None:
        """Lower the cost of both layers together until nothing is found that lowers it further."""
        while self._lower(REPLICAS) or self._lower(LEADERSHIPS) or self._lower_both():
            pass

    # --- one layer ------------------------------------------------------------------------------------------------

    def _even_out(self, layer: int) -> None:
        """Take plain steps first, from a full broker to the emptiest: nearly all of the way, without a search."""
        loads = self._loads[layer]
        while True:
            target = min(self._brokers, key=loads.__getitem__)
            fuller = (source for source in self._brokers if loads[source] >= loads[target] + 2)
            found = [(offer, source) for source in fuller if (offer := self._cheapest(layer, source, target))]
            if not found:
                return
            (_, step), _ = min(found, key=lambda each: (each[0][0], -loads[each[1]], each[1]))
            self._take([step])

    def _lower(self, layer: int) -> bool:
        """Take cycles of this layer's steps until none lowers the cost; False: there was none."""
        found = False
        while cycles := _negative_cycles(graph := self._graph(layer), lambda node, _: graph[node])[0]:
            edges = [[edge for edge in pairwise(cycle) if self._evenness not in edge] for cycle in cycles]
            ways = [[self._cheapest(layer, *edge) for edge in way] for way in edges]
            self._cancel([[offer[1] for offer in way if offer] for way in ways])
            found = True
        return found

    def _graph(self, layer: int) -> dict[int, list[tuple[int, int]]]:
        """Return where the layer's steps lead from each broker, and at what cost.

        A node more stands for evenness: into it from the broker that keeps one unit more, out of it to the broker that
        ends with one less.
        """
        square, loads = SQUARE[layer], self._loads[layer]
        graph = {self._evenness: [(broker, square * (1 - 2 * load)) for broker, load in enumerate(loads) if load]}
        for source, load in enumerate(loads):
            found = [(target, self._cheapest(layer, source, target)) for target in self._brokers]
            graph[source] = [(target, offer[0]) for target, offer in found if offer]
            graph[source].append((self._evenness, square * (2 * load + 1)))
        return graph

    def _cheapest(self, layer: int, source: int, target: int) -> tuple[int, Step] | None:
        """Return the cheapest step of the layer, after its cost; also of both, while the other layer is not counted."""
        found = self._offers.cheapest(_in(layer, source), _in(layer, target))
        if len(self._loads) == 1 and (both := self._offers.cheapest((source, source), (target, target))):
            return both if found is None or both[0] < found[0] else found
        return found

    # --- both layers ----------------------------------------------------------------------------------------------

    def _lower_both(self) -> bool:
        """Take cycles through both layers; False: none lowers the cost.

        Costs are reckoned from the potentials of each layer (Johnson 1977), so that no step of one layer costs less
        than 0: the search goes only where a step of both has led below.
        """
        layers, heights = [], []
        for layer in LAYERS:
            graph = self._graph(layer)
            _, height = _negative_cycles(graph, lambda node, _: graph[node])  # noqa: B023
            layers.append(
                {
                    node: sorted((cost + height[node] - height[to], to) for to, cost in row)
                    for node, row in graph.items()
                }
            )
            for broker, group in enumerate(self._problem.groups):
                height[group] = max(height.get(group, height[broker]), height[broker])
            heights.append(height)

        of_replicas, of_leaderships = heights

        def onward(state: State, so_far: int) -> Iterator[tuple[State, int]]:
            replica, leader = state
            for cost, to in layers[REPLICAS][replica]:
                if so_far + cost >= 0:
                    break
                yield (to, leader), cost
            for cost, to in layers[LEADERSHIPS][leader]:
                if so_far + cost >= 0:
                    break
                yield (replica, to), cost
            height = of_replicas[replica] + of_leaderships[leader]
            for target, lowest in self._offers.targets(state):
                if so_far + lowest + height < of_replicas[target[0]] + of_leaderships[target[1]]:
                    for each in self._offers.members(target):
                        if offer := self._offers.cheapest(state, each):
                            yield each, offer[0] + height - of_replicas[each[0]] - of_leaderships[each[1]]

        cycles, _ = _negative_cycles(self._offers.states(), onward)
        self._cancel([list(self._steps(cycle)) for cycle in cycles])
        return bool(cycles)

    # --- steps ----------------------------------------------------------------------------------------------------

    def _steps(self, cycle: Sequence[State]) -> Iterator[Step]:
        """Yield the cheapest steps along the cycle; none to and from evenness."""
        for here, there in pairwise(cycle):
            source = (here[0] if here[0] != there[0] else None, here[1] if here[1] != there[1] else None)
            target = (there[0] if here[0] != there[0] else None, there[1] if here[1] != there[1] else None)
            if self._evenness not in (*source, *target) and (offer := self._offers.cheapest(source, target)):
                yield offer[1]

    def _cancel(self, ways: Sequence[Sequence[Step]]) -> None:
        """Take the ways that lower the cost. When none does, an item cannot take two steps at once: one is passed over."""
        if not any([self._take(way) for way in ways]):  # noqa: C419  all are to be tried
            for way in ways:
                self._offers.pass_over(max(way, key=lambda step: None not in step.source))

    def _take(self, steps: Sequence[Step]) -> bool:
        """Take the steps; False: not all can be taken, or they do not lower the cost, and nothing is changed."""
        items = dict.fromkeys(step.item for step in steps)
        before = self._total(items)
        taken: list[Step] = []
        for step in steps:
            if not self._problem.allows(step):
                break
            self._apply(step)
            taken.append(step)
        if len(taken) == len(steps) and self._total(items) < before:
            for item in items:
                self._offers.store(item)
            return True
        for item, source, target in reversed(taken):
            self._apply(Step(item, target, source))
        return False

    def _apply(self, step: Step) -> None:
        self._problem.apply(step)
        for layer, loads in self._loads.items():
            source, target = step.source[layer], step.target[layer]
            if source is not None and target is not None:
                loads[source] -= 1
                loads[target] += 1

    def _total(self, items: Iterable[int]) -> int:
        uneven = sum(SQUARE[layer] * sum(load * load for load in loads) for layer, loads in self._loads.items())
        return sum(map(self._problem.cost, items)) + uneven


def _in(layer: int, broker: int) -> Places:
    return (broker, None) if layer == REPLICAS else (None, broker)


class _Queue:
    """The items that make the same offer, in the order in which they came to make it."""

    def __init__(self) -> None:
        self.stamped: list[int] = []
        self.heads: dict[Places, int] = {}  # by target: none before this place makes the offer any more, or to it


class _Offers:
    """The steps that items can take now.

    A step to a broker that is new to the item costs the same whichever it is, so it is kept once for a whole group, and
    whether it fits a broker is seen when one asks.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._members: dict[int, list[int]] = {broker: [broker] for broker in range(len(problem.groups))}
        for broker, group in enumerate(problem.groups):
            self._members.setdefault(group, []).append(broker)
        self._queues: dict[Places, dict[Places, dict[int, _Queue]]] = {}  # by source, target, cost
        self._found: dict[Places, dict[Places, tuple[int, Step] | None]] = {}  # what cheapest returned, by source
        self._sources: list[set[Places]] = [set() for _ in range(len(problem))]  # of the steps of each item
        self._age = [0] * len(problem)  # what is stamped with an older age is no longer true
        for item in range(len(problem)):
            self.store(item)

    def store(self, item: int) -> None:
        """Note what the item can do now, instead of what it could."""
        self._age[item] += 1
        stamped = self._age[item] * len(self._age) + item
        old = self._sources[item]
        new = self._sources[item] = set()
        for source, target, cost in self._problem.offers(item):
            new.add(source)
            by_cost = self._queues.setdefault(source, {}).setdefault(target, {})
            if cost not in by_cost:
                by_cost[cost] = _Queue()
            by_cost[cost].stamped.append(stamped)
        for source in old | new:
            self._found.pop(source, None)

    def cheapest(self, source: Places, target: Places) -> tuple[int, Step] | None:
        """Return the cheapest step, after its cost."""
        found = self._found.setdefault(source, {})
        if target not in found:
            offers = [
                (cost, Step(item, source, target))
                for queue, cost, to in self._queues_for(source, target)
                if (item := self._first(queue, target, to)) is not None
            ]
            found[target] = min(offers, key=lambda offer: offer[0], default=None)
        return found[target]

    def _queues_for(self, source: Places, target: Places) -> Iterator[tuple[_Queue, int, Places]]:
        """Yield the queues for the target itself, and those for its group; with their cost and their own target."""
        names = [target]
        broker, leader = target
        if broker is not None:
            group = self._problem.groups[broker]
            names.append((group, group if leader == broker else leader))
        for to in names:
            for cost, queue in self._queues.get(source, {}).get(to, {}).items():
                yield queue, cost, to

    def _first(self, queue: _Queue, target: Places, to: Places) -> int | None:
        """Return the first item of the queue that can take the step."""
        first = queue.heads.get(target, 0)
        for head in range(first, len(queue.stamped)):
            age, item = divmod(queue.stamped[head], len(self._age))
            if self._age[item] == age and (to == target or self._problem.is_new(item, target[0])):
                queue.heads[target] = head
                return item
        queue.heads[target] = len(queue.stamped)
        return None

    def pass_over(self, step: Step) -> None:
        """Do not offer the step again until its item has changed."""
        for queue, _, to in self._queues_for(step.source, step.target):
            if self._first(queue, step.target, to) == step.item:
                queue.heads[step.target] += 1
        del self._found[step.source]

    def states(self) -> list[State]:
        """Return the sources of the steps that change both layers."""
        return [(replica, leader) for replica, leader in self._queues if replica is not None and leader is not None]

    def targets(self, source: State) -> Iterator[tuple[State, int]]:
        """Yield where steps lead from there, brokers or groups, and the cost below which none does."""
        for (to, leader), by_cost in self._queues.get(source, {}).items():
            assert to is not None and leader is not None
            yield (to, leader), min(by_cost)

    def members(self, target: State) -> Iterator[State]:
        """Yield the brokers, each with the leader, that the target of an offer stands for."""
        to, leader = target
        for broker in self._members[to]:
            yield broker, broker if leader == to else leader


def _negative_cycles(
    start: Iterable[Node], onward: Callable[[Node, int], Iterable[tuple[Node, int]]]
) -> tuple[list[list[Node]], dict[Node, int]]:
    """Return cycles that lower the cost and have no node in common; and each node's distance, 0 or less.

    After Bellman and Ford, stopped as soon as there are any; none returned means that there are none. ``onward`` gives
    the edges from a node at a distance; it may leave out those that lead to 0 or more.
    """
    distance: dict[Node, int] = defaultdict(int)
    before: dict[Node, Node] = {}
    reached = dict.fromkeys(start, 0)
    while reached:
        later: dict[Node, int] = {}  # a round at a time: short cycles are found before long ones
        for node, so_far in reached.items():
            for target, cost in onward(node, so_far):
                if so_far + cost < distance[target]:
                    distance[target] = later[target] = so_far + cost
                    before[target] = node
        if later and (cycles := _cycles_in(before)):
            return cycles, distance
        reached = later
    return [], distance


def _cycles_in(before: Mapping[Node, Node]) -> list[list[Node]]:
    """Return the cycles among the predecessors, in the direction of their steps, the first node at the end again."""
    cycles: list[list[Node]] = []
    seen_from: dict[Node, Node] = {}
    for start in before:
        path: list[Node] = []
        node: Node = start
        while node in before and node not in seen_from:
            seen_from[node] = start
            path.append(node)
            node = before[node]
        if seen_from.get(node) == start:
            path.append(node)
            cycles.append(path[path.index(node) :][::-1])
    return cycles
