"""The literal twin's cycles (section 5): edges between all pairs, and who reaches whom by plain loops.

Realtime edges are drawn one by one, without a chain of moments, and every vertex is a suspect.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.histories.history import FAIL, INFO, OK, Operation, Poll, Send
from tests.histories.twin.facts import Facts, Found, name


class Vertex(NamedTuple):
    """A transaction, or one send or poll of another operation; ``layer``: what lies side by side shares one."""

    operation: Operation
    layer: int
    parts: tuple[int, ...]


Edge = tuple[int, int]


class Graph:
    """The vertices of a history (HIS-31), and its edges by kind."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.vertices = [vertex for operation in facts.operations for vertex in _vertices(facts, operation)]
        self.wr = {edge for edge in self._wr() if edge[0] != edge[1]}
        self.ww = {edge for edge in self._ww(lambda value: True) if edge[0] != edge[1]}
        self.ww_single = {edge for edge in self._ww(self._is_single) if edge[0] != edge[1]}
        self.process = set(self._process())
        self.realtime = set(self._realtime())

    def _holding(self, operation: Operation, part: int) -> int | None:
        for number, vertex in enumerate(self.vertices):
            if vertex.operation is operation and part in vertex.parts:
                return number
        return None

    def _writer(self, value: int | None) -> int | None:
        """Return the vertex that sent a value, to whatever key; None: nobody did, or its writer has none."""
        if value not in self.facts.writers:
            return None
        operation, send = self.facts.writers[value]
        return self._holding(operation, operation.parts.index(send))

    def _wr(self) -> Iterator[Edge]:
        for each in self.facts.polled:
            writer = self._writer(each.value)
            reader = self._holding(each.operation, each.part)
            if writer is not None and reader is not None:
                yield writer, reader

    def _ww(self, wanted: Callable[[int], bool]) -> Iterator[Edge]:
        """Yield edges from value to next value of a key, of those wanted.

        Nothing leads across a value that is not clear, or across one that is wanted and whose writer has no vertex.
        """
        for key, log in self.facts.log.items():
            last: int | None = None
            for _, values in sorted(log.items()):
                (value, *more) = values
                if more or (key, value) not in self.facts.index:
                    last = None
                    continue
                if wanted(value):
                    vertex = self._writer(value)
                    if last is not None and vertex is not None:
                        yield last, vertex
                    last = vertex

    def _is_single(self, value: int) -> bool:
        return value in self.facts.writers and not self.facts.writers[value][0].transactional

    def _process(self) -> Iterator[Edge]:
        """Yield edges along each process, from each layer to all that follow.

        None leads from a send that was not acknowledged: it may happen long after its process has gone on, as it is
        with realtime edges. What lies before it leads past it, too.
        """
        for a, one in enumerate(self.vertices):
            for b, other in enumerate(self.vertices) if not self._is_doubtful(one) else ():
                follows = (one.operation.completed, one.layer) < (other.operation.completed, other.layer)
                if follows and one.operation.process == other.operation.process:
                    yield a, b

    def _is_doubtful(self, vertex: Vertex) -> bool:
        parts = [vertex.operation.parts[number] for number in vertex.parts]
        return not vertex.operation.transactional and any(isinstance(p, Send) and p.outcome != OK for p in parts)

    def _realtime(self) -> Iterator[Edge]:
        for a, one in enumerate(self.vertices):
            if one.operation.type != INFO and one.layer == self._layers(one.operation) - 1:
                for b, other in enumerate(self.vertices):
                    if other.layer == 0 and one.operation.completed < other.operation.invoked:
                        yield a, b

    def _layers(self, operation: Operation) -> int:
        return max(vertex.layer for vertex in self.vertices if vertex.operation is operation) + 1


def _vertices(facts: Facts, operation: Operation) -> Iterator[Vertex]:
    if operation.type == FAIL:
        return
    records = [number for number, part in enumerate(operation.parts) if isinstance(part, Send | Poll)]
    if operation.transactional:  # of an unknown outcome: a vertex where any of its values was seen
        sends = operation.sends
        if operation.type == OK or any(facts.is_proven(operation, send) for send in sends):
            yield Vertex(operation, 0, tuple(records))
        return
    layer = -1
    previous: type | None = None
    for number in records:
        part = operation.parts[number]
        if isinstance(part, Send) and part.outcome == FAIL:
            continue
        kind = type(part)
        if kind is Poll or previous is not Send:
            layer += 1
        previous = kind
        yield Vertex(operation, layer, (number,))


def components(edges: set[Edge], size: int) -> list[frozenset[int]]:
    """Return the sets of vertices that reach each other and themselves, by who reaches whom."""
    reached = [0] * size  # a bit for each vertex reached
    for a, b in edges:
        reached[a] |= 1 << b
    for via in range(size):
        for a in range(size):
            if reached[a] >> via & 1:
                reached[a] |= reached[via]
    found = set()
    for a in range(size):
        if reached[a] >> a & 1:
            found.add(frozenset(b for b in range(size) if reached[a] >> b & 1 and reached[b] >> a & 1))
    return sorted(found, key=min)


Pass = list[tuple[str, set[Edge]]]


def passes(graph: Graph) -> Iterator[Pass]:
    """Yield the three passes (HIS-34): each kind of cycle with the edges that it needs, the strongest first.

    Transactions that left no vertex bring nothing that the first two passes do not have.
    """
    later = graph.process | graph.realtime
    yield [("G1c", graph.wr), ("G1c-process", graph.wr | graph.process), ("G1c-realtime", graph.wr | later)]
    yield [("G0-process", graph.ww_single | graph.process), ("G0-realtime", graph.ww_single | later)]
    if any(vertex.operation.transactional for vertex in graph.vertices):
        yield [("G0", graph.ww), ("G1c-ww", graph.ww | graph.wr | later)]


def all_of(facts: Facts) -> Iterator[Found]:
    """Find each component of each kind that has none of a stronger kind of its pass within."""
    graph = Graph(facts)
    for kinds in passes(graph):
        told: list[frozenset[int]] = []
        for kind, edges in kinds:
            for component in components(edges, len(graph.vertices)):
                if not any(stronger <= component for stronger in told):
                    told.append(component)
                    yield Found(kind, frozenset(name(graph.vertices[each].operation) for each in component))
