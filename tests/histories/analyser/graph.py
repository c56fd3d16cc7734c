"""Cycles: information from the future, and logs against the order of acknowledgements.

Every operation gets a position between its two lines, so that in a right history nearly every edge leads upwards. A cycle
lies within a stretch that downward edges span; only what lies in one is made into a graph.
"""

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias

from tests.histories.analyser.versions import Finding, Versions, highest_of
from tests.histories.history import FAIL, INFO, NEVER, OK, Operation, Poll, Send

WW, WR, PROCESS, REALTIME = "ww", "wr", "process", "realtime"
_MOST_STARTS: Final = 64  # of a component, from which the shortest cycle is looked for

Edge: TypeAlias = tuple[int, int, str]  # from, to, why


class Pass(NamedTuple):
    """``kinds``: what a cycle is called that needs no other edges than these, the strongest first."""

    kinds: tuple[tuple[str, frozenset[str]], ...]
    transactions: bool  # whether it has their ww edges, and wr edges at all
    writes: bool


PASSES: Final = (
    Pass(
        (
            ("G1c", frozenset({WR})),
            ("G1c-process", frozenset({WR, PROCESS})),
            ("G1c-realtime", frozenset({WR, PROCESS, REALTIME})),
        ),
        transactions=True,
        writes=False,
    ),
    Pass(
        (("G0-process", frozenset({WW, PROCESS})), ("G0-realtime", frozenset({WW, PROCESS, REALTIME}))),
        transactions=False,
        writes=True,
    ),
    Pass(
        (("G0", frozenset({WW})), ("G1c-ww", frozenset({WW, WR, PROCESS, REALTIME}))),
        transactions=True,
        writes=True,
    ),
)


class _Vertices:
    """Transactions, and each send and each poll of other operations; a vertex is a number."""

    def __init__(self, versions: Versions) -> None:
        self.operations: list[Operation] = []  # of each vertex
        self.parts: list[Send | Poll | None] = []  # None: a transaction
        self.positions: list[float] = []
        self.of_value: dict[int, int] = {}
        self.of_operation: dict[int, range] = {}  # by the line of its invocation
        self._orders = versions.orders
        for operation in versions.history.operations:
            if operation.transactional:
                self._add_transaction(versions, operation)
            elif operation.parts and operation.type != FAIL:
                self._add_parts(operation)

    def _add_transaction(self, versions: Versions, operation: Operation) -> None:
        sends = operation.sends
        if operation.type == FAIL or (
            operation.type == INFO and not any(s.value in versions.orders[s.key].seen for s in sends)
        ):
            return
        position: float = operation.invoked
        if operation.ended_at is not None:
            asked = bisect_right(versions.history.times, operation.ended_at) - 0.5
            position = min(max(asked, operation.invoked), operation.completed)
        number = self._add(operation, None, position)
        self.of_operation[operation.invoked] = range(number, number + 1)
        for send in sends:
            self.of_value[send.value] = number

    def _add_parts(self, operation: Operation) -> None:
        first = len(self.positions)
        line, step = operation.invoked, 1 / (len(operation.parts) + 1)
        for place, part in enumerate(operation.parts, 1):
            if type(part) is Poll:
                line = operation.completed
                self._add(operation, part, line + place * step)
            elif type(part) is Send and part.outcome != FAIL:
                self.of_value[part.value] = self._add(operation, part, line + place * step)
        self.of_operation[operation.invoked] = range(first, len(self.positions))

    def _add(self, operation: Operation, part: Send | Poll | None, position: float) -> int:
        self.operations.append(operation)
        self.parts.append(part)
        self.positions.append(position)
        return len(self.positions) - 1

    @cached_property
    def reads_from_above(self) -> list[tuple[float, float]]:
        """The spans of wr edges that do not lead upwards: from writers positioned above their readers, or level."""
        written = {value: self.positions[vertex] for value, vertex in self.of_value.items()}
        rising = {key: order.rising(written) for key, order in self._orders.items()}
        found = []
        for vertex, position in enumerate(self.positions):
            if type(self.parts[vertex]) is Send:
                continue
            for key, offsets, values in self.polled(vertex):
                if rising[key].get(highest_of(offsets, values), NEVER) >= position:
                    highest = max((written.get(value, -1.0) for value in values if value is not None), default=-1.0)
                    if highest >= position:
                        found.append((position, highest))
        return found

    @cached_property
    def by_position(self) -> list[int]:
        return _by_position(self.positions)

    def polled(self, vertex: int) -> Iterator[tuple[int, tuple[int, ...], tuple[int | None, ...]]]:
        part = self.parts[vertex]
        polls = self.operations[vertex].polls if part is None else [part] if type(part) is Poll else ()
        for poll in polls:
            for key, (offsets, values) in poll.runs.items():
                yield key, offsets, values


def _by_position(positions: Sequence[float]) -> list[int]:
    return sorted(range(len(positions)), key=positions.__getitem__)


class _Writes:
    """The ww edges: all, those that leave each vertex, and the values that lie one behind the other."""

    def __init__(self, found: Iterable[tuple[int, int, int, int]]) -> None:
        """``found``: writers of a value and of the next, and these two values."""
        self.edges: list[Edge] = []
        self.leaving: dict[int, list[Edge]] = defaultdict(list)
        self.values: dict[tuple[int, int], tuple[int, int]] = {}
        for one, other, before, after in found:
            edge = (one, other, WW)
            self.edges.append(edge)
            self.leaving[one].append(edge)
            self.values.setdefault((one, other), (before, after))


def cycles(versions: Versions, *, all_suspects: bool = False) -> Iterator[Finding]:
    """Find cycles, in three passes that are judged by themselves (HIS-31 to HIS-34)."""
    vertices = _Vertices(versions)
    transactions = any(part is None for part in vertices.parts)
    for each in PASSES if transactions else PASSES[:2]:
        yield from _search(versions, vertices, each, all_suspects)


def _search(versions: Versions, vertices: _Vertices, each: Pass, all_suspects: bool) -> Iterator[Finding]:
    writes = _Writes(_ww_edges(versions, vertices, each.transactions) if each.writes else ())
    for suspects in _suspects(vertices, each, writes, all_suspects=all_suspects):
        yield from _judge(versions, vertices, each, suspects, writes, reads=each.transactions)


def _suspects(
    vertices: _Vertices, each: Pass, writes: _Writes, *, all_suspects: bool = False
) -> Iterator[Sequence[int]]:
    """Yield the vertices of each stretch that downward edges span; a cycle lies within one."""
    positions = vertices.positions if each.transactions else _raised(vertices, writes.edges)
    downwards = [(positions[b], positions[a]) for a, b, _ in writes.edges if positions[b] <= positions[a]]
    if each.transactions:
        # Transactions that asked for their commits between the same two lines have one position: level edges make cycles.
        intervals = downwards + vertices.reads_from_above
    else:
        intervals = [(low, high) for low, high in downwards if low < high]  # all but these lead upwards, or to the next
    if all_suspects:
        intervals = [(-1, NEVER + 1)]
    if not intervals:
        return
    by_position = vertices.by_position if each.transactions else _by_position(positions)
    yield from _stretches(by_position, positions, intervals)


def _ww_edges(versions: Versions, vertices: _Vertices, transactions: bool) -> Iterator[tuple[int, int, int, int]]:
    """Yield the writers of each clear value and of the next, or of the next sent without a transaction; and the values."""
    for order in versions.orders.values():
        before, last = None, 0
        for value in order.values:
            writer = versions.writers.get(value) if value is not None else None
            if value is not None and not transactions and (writer is None or writer[0].transactional):
                continue
            vertex = vertices.of_value.get(value) if value is not None else None
            if value is not None and vertex is not None and before is not None and before != vertex:
                yield before, vertex, last, value
            before, last = vertex, value or 0  # None: nothing is compared across what is unclear


def _raised(vertices: _Vertices, writes: Sequence[Edge]) -> list[float]:
    """Let each send be at least where the value before it in its key is, as far as its completion allows."""
    positions = list(vertices.positions)
    for before, vertex, _ in writes:
        if positions[vertex] < positions[before]:
            latest = vertices.operations[vertex].completed + positions[vertex] % 1
            positions[vertex] = max(positions[vertex], min(positions[before], latest))
    return positions


def _stretches(
    by_position: list[int], positions: Sequence[float], intervals: list[tuple[float, float]]
) -> Iterator[list[int]]:
    """Yield the vertices of each connected stretch of the intervals."""
    merged: list[list[float]] = []
    for low, high in sorted(intervals):
        if merged and low <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], high)
        else:
            merged.append([low, high])
    at = 0
    for low, high in merged:
        while at < len(by_position) and positions[by_position[at]] < low:
            at += 1
        first = at
        while at < len(by_position) and positions[by_position[at]] <= high:
            at += 1
        yield by_position[first:at]


def _judge(
    versions: Versions, vertices: _Vertices, each: Pass, suspects: Sequence[int], writes: _Writes, *, reads: bool
) -> Iterator[Finding]:
    inside = set(suspects)
    edges: list[Edge] = []
    if reads:
        for vertex in suspects:
            if type(vertices.parts[vertex]) is Send:
                continue
            writers = {vertices.of_value.get(v) for _, _, values in vertices.polled(vertex) for v in values}  # type: ignore[arg-type]
            edges += [(w, vertex, WR) for w in writers if w is not None and w in inside and w != vertex]
    edges += [edge for vertex in suspects for edge in writes.leaving.get(vertex, ()) if edge[1] in inside]
    edges += _process_edges(vertices, inside)
    moments, chain = _realtime_edges(vertices, suspects)
    edges += chain
    cyclic = set[int]().union(*components(_graph(edges)))  # what is on no cycle of all edges is on none of fewer
    edges = [edge for edge in edges if edge[0] in cyclic and edge[1] in cyclic]
    told: set[int] = set()
    for kind, why in each.kinds if cyclic else ():
        graph = _graph(edge for edge in edges if edge[2] in why)
        for component in components(graph):
            if told.isdisjoint(component):
                told.update(component)
                cycle = shortest_cycle(graph, component, moments)
                if cycle is not None:
                    yield _finding(versions, vertices, writes, kind, cycle)


def _graph(edges: Iterable[Edge]) -> dict[int, list[tuple[int, str]]]:
    graph: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for a, b, why in edges:
        graph[a].append((b, why))
    return graph


def _process_edges(vertices: _Vertices, inside: set[int]) -> list[Edge]:
    """Return edges along each process; sends with no poll between them are side by side.

    None leads from a send that was not acknowledged: it may happen long after its process has gone on.
    """
    edges: list[Edge] = []
    ends: dict[object, list[int]] = {}  # process -> what the next one comes after
    operations = sorted({vertices.operations[v].invoked: vertices.operations[v] for v in inside}.values(), key=_invoked)
    for operation in operations:
        before, beside = ends.get(operation.process, []), list[int]()
        for vertex in vertices.of_operation[operation.invoked]:
            if vertex not in inside:
                continue
            part = vertices.parts[vertex]
            if type(part) is Send:
                edges += [(b, vertex, PROCESS) for b in before]
                if part.outcome == OK:
                    beside.append(vertex)
            else:
                edges += [(b, vertex, PROCESS) for b in beside or before]
                before, beside = [vertex], []
        ends[operation.process] = beside or before
    return edges


def _invoked(operation: Operation) -> int:
    return operation.invoked


def _realtime_edges(vertices: _Vertices, suspects: Sequence[int]) -> tuple[set[int], list[Edge]]:
    """Return a chain of moments, one for each run of completions, and the edges through it (HIS-32).

    An operation leads to the moment after its completion, a moment to what was invoked before the next one and to the
    next: so one operation is reached from another exactly when it came after it.
    """
    lines: list[tuple[int, int, Operation]] = []
    for operation in {vertices.operations[v].invoked: vertices.operations[v] for v in suspects}.values():
        lines.append((operation.invoked, 0, operation))
        if operation.type != INFO and operation.completed != NEVER:
            lines.append((operation.completed, 1, operation))
    lines.sort(key=lambda line: line[0])
    inside = set(suspects)
    moment, moments, edges, fresh = len(vertices.positions), set[int](), list[Edge](), False
    for _, completes, operation in lines:
        mine = [v for v in vertices.of_operation[operation.invoked] if v in inside]
        if completes:
            if not fresh:
                if moment in moments:
                    edges.append((moment, moment + 1, REALTIME))
                moment += 1
                moments.add(moment)
                fresh = True
            edges += [(v, moment, REALTIME) for v in mine]
        else:
            if moment in moments:
                edges += [(moment, v, REALTIME) for v in mine]
            fresh = False
    return moments, edges


# --- cycles of any graph --------------------------------------------------------------------------------------------


def components(graph: Mapping[int, Iterable[tuple[int, str]]]) -> list[set[int]]:
    """Return the strongly connected components of more than one vertex (Tarjan's, without recursion)."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found = []
    for root in list(graph):
        if root in order:
            continue
        order[root] = low[root] = len(order)
        stack.append(root)
        on_stack.add(root)
        walk = [(root, iter(graph.get(root, ())))]
        while walk:
            vertex, rest = walk[-1]
            for following, _ in rest:
                if following not in order:
                    order[following] = low[following] = len(order)
                    stack.append(following)
                    on_stack.add(following)
                    walk.append((following, iter(graph.get(following, ()))))
                    break
                if following in on_stack:
                    low[vertex] = min(low[vertex], order[following])
            else:
                walk.pop()
                if walk:
                    low[walk[-1][0]] = min(low[walk[-1][0]], low[vertex])
                if low[vertex] == order[vertex]:
                    component = set()
                    while vertex not in component:
                        component.add(stack.pop())
                    on_stack -= component
                    if len(component) > 1:
                        found.append(component)
    return found


def shortest_cycle(
    graph: Mapping[int, Sequence[tuple[int, str]]], component: set[int], moments: set[int]
) -> list[tuple[int, str]] | None:
    """Return the shortest cycle through one of the component's first vertices, each with the edge that leaves it.

    Moments are not counted as steps, and not shown.
    """
    best: list[tuple[int, str]] | None = None
    for start in sorted(component - moments)[:_MOST_STARTS]:
        came: dict[int, tuple[int, str]] = {}
        distance = {start: 0}
        queue = deque([start])
        while queue and start not in came:
            vertex = queue.popleft()
            for following, why in graph.get(vertex, ()):
                if following not in component:
                    continue
                cost = distance[vertex] + (following not in moments)
                if following == start:
                    came.setdefault(start, (vertex, why))
                elif following not in distance or cost < distance[following]:
                    distance[following] = cost
                    came[following] = (vertex, why)
                    (queue.appendleft if following in moments else queue.append)(following)
        if start in came:
            cycle, vertex = [came[start]], came[start][0]
            while vertex != start:
                cycle.append(came[vertex])
                vertex = came[vertex][0]
            shown = [step for step in reversed(cycle) if step[0] not in moments]
            if best is None or len(shown) < len(best):
                best = shown
    return best


def _finding(
    versions: Versions, vertices: _Vertices, writes: _Writes, kind: str, cycle: list[tuple[int, str]]
) -> Finding:
    told, lines = [], set()
    for (vertex, why), (following, _) in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
        one = vertices.operations[vertex]
        lines.add(one.completed if one.completed != NEVER else one.invoked)
        told.append(_step(versions, vertices, writes, (vertex, following), why))
    return Finding(kind, None, "; ".join(told), tuple(sorted(lines)))


def _step(versions: Versions, vertices: _Vertices, writes: _Writes, ends: tuple[int, int], why: str) -> str:
    vertex, following = ends
    one, other = vertices.operations[vertex], vertices.operations[following]
    if why == WR:
        runs = vertices.polled(following)
        polled = ((value, offset) for _, offsets, values in runs for offset, value in zip(offsets, values, strict=True))
        value, offset = next(each for each in polled if vertices.of_value.get(each[0]) == vertex)  # type: ignore[arg-type]
        key = versions.writers[value][1].key  # type: ignore[index]
        return f"{one.process} sent {value} to key {key}, {other.process} polled it at {offset}"
    if why == WW:
        before, after = writes.values[ends]
        return f"{one.process}'s {before} lies before {other.process}'s {after} in key {versions.writers[after][1].key}"
    if why == PROCESS:
        return f"{one.process} went on"
    return f"{one.process}'s line {one.completed} was before {other.process}'s {other.invoked}"
