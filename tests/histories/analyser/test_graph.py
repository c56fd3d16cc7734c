"""Cycles of any graph, and of histories: suspects alone show what all vertices show."""

import copy as copying
import random
from collections import defaultdict

import pytest

from tests.histories.analyser.graph import _realtime_edges, _Vertices, components, cycles, shortest_cycle
from tests.histories.analyser.model import CHANGES, Model, encode
from tests.histories.analyser.versions import Versions
from tests.histories.history import INFO, RECORDS, read


def _reaches(edges: set[tuple[int, int]], size: int) -> set[tuple[int, int]]:
    reached = set(edges)
    for via in range(size):
        reached |= {(a, b) for a in range(size) for b in range(size) if (a, via) in reached and (via, b) in reached}
    return reached


@pytest.mark.spec("HIS-33")
def test_components_and_shortest_cycles_are_those_of_the_closure() -> None:
    for seed in range(150):
        chance, size = random.Random(seed), 8
        edges = {(a, b) for a in range(size) for b in range(size) if a != b and chance.random() < 0.18}
        graph = defaultdict(list)
        for a, b in sorted(edges):
            graph[a].append((b, "ww"))
        reached = _reaches(edges, size)
        expected = {frozenset(b for b in range(size) if (a, b) in reached and (b, a) in reached) for a in range(size)}
        found = components(graph)
        assert {frozenset(c) for c in found} == expected - {frozenset()}
        for component in found:
            cycle = shortest_cycle(graph, component, set())
            assert cycle is not None
            steps = [vertex for vertex, _ in cycle]
            assert all(pair in edges for pair in zip(steps, [*steps[1:], steps[0]], strict=True))
            assert len(steps) == min(_girth(edges, start, size) for start in component)


def _girth(edges: set[tuple[int, int]], start: int, size: int) -> int:
    at, steps = {start}, 0
    while steps <= size:
        at, steps = {b for a, b in edges if a in at}, steps + 1
        if start in at:
            return steps
    return size + 1


@pytest.mark.spec("HIS-32")
def test_the_chain_of_moments_leads_to_what_came_after_and_to_nothing_else() -> None:
    after = 0
    for seed in range(40):
        vertices = _Vertices(Versions(read(encode(Model(random.Random(seed)).run(30)))))
        operations = vertices.operations
        moments, edges = _realtime_edges(vertices, list(range(len(operations))))
        assert len(edges) <= 3 * len(operations), "linear space"
        graph = defaultdict(list)
        for a, b, why in edges:
            graph[a].append((b, why))
        assert not components(graph)
        for start, one in enumerate(operations):
            reached, left = set[int](), [start]
            while left:
                new = {b for b, _ in graph.get(left.pop(), ())} - reached
                reached |= new
                left += new
            later = {v for v, other in enumerate(operations) if one.completed < other.invoked and one.type != INFO}
            assert reached - moments == later, (seed, start)
            after += len(later)
    assert after > 1000


@pytest.mark.spec("HIS-32", "HIS-33")
def test_suspects_show_the_cycles_that_all_vertices_show() -> None:
    with_cycles = 0
    for seed in range(150):
        chance = random.Random(seed)
        entries = copying.deepcopy(Model(random.Random(seed)).run(40))
        if chance.random() < 0.8:
            CHANGES[seed % len(CHANGES)](entries, chance)
        if chance.random() < 0.7:  # the order of a key turned round: cycles of every kind
            for entry in entries:
                for part in entry["value"] if entry["type"] != "invoke" and entry["f"] in RECORDS else ():
                    if part[0] == "send" and part[1] == 0 and part[2][0] is not None:
                        part[2][0] = 1000 - part[2][0]
                    elif part[0] == "poll" and 0 in part[1]:
                        part[1][0] = [[1000 - o, v] for o, v in part[1][0]]
        history = read(encode(entries))
        some = {finding.kind for finding in cycles(Versions(history))}
        assert some == {finding.kind for finding in cycles(Versions(history), all_suspects=True)}, seed
        with_cycles += bool(some)
    assert with_cycles > 50
