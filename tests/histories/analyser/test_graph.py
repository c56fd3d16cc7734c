"""Cycles of any graph, and of histories: suspects alone show what all vertices show."""

import ast
import copy as copying
import random
import sys
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

import pytest

from tests.histories.analyser.graph import (
    PASSES,
    _process_edges,
    _raised,
    _realtime_edges,
    _suspects,
    _Vertices,
    _Writes,
    _ww_edges,
    components,
    cycles,
    shortest_cycle,
)
from tests.histories.analyser.model import CHANGES, Model, encode
from tests.histories.analyser.notation import history
from tests.histories.analyser.versions import Versions
from tests.histories.history import INFO, NEVER, RECORDS, Operation, read
from tests.paths import ROOT


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


# --- moments --------------------------------------------------------------------------------------------------------


def _runs_of_completions(operations: Iterable[Operation]) -> int:
    """Count the completions, not unknown ones, that no invocation parts from each other, by the lines alone."""
    lines = {operation.invoked: False for operation in operations}
    lines |= {o.completed: True for o in operations if o.type != INFO and o.completed != NEVER}
    completes = [lines[line] for line in sorted(lines)]
    return sum(here and not before for before, here in pairwise([False, *completes]))


@pytest.mark.spec("HIS-32")
@pytest.mark.parametrize(
    ("text", "moments"),
    [
        ("0 s x=a@0 ∥ 1 s x=b@1 ∥ 2 s x=c@2", 1),
        ("0 s x=a@0 ∥ 1 s x=b@1 ; 2 s x=c@2", 2),
        ("0 s x=a@0 ; 1 s x=b@1 ; 2 s x=c@2", 3),
        ("0 s x=a@0 ∥ 1i s x=b@? ∥ 2 s x=c@2", 1),  # what is not known to be over parts no run, and makes none
        ("1i s x=b@?", 0),
    ],
)
def test_a_moment_stands_for_all_completions_that_no_invocation_parts(text: str, moments: int) -> None:
    vertices = _Vertices(Versions(history(text)))
    assert _runs_of_completions(vertices.operations) == moments
    assert len(_realtime_edges(vertices, range(len(vertices.positions)))[0]) == moments


@pytest.mark.spec("HIS-32")
def test_there_are_as_many_moments_as_runs_of_completions_among_suspects() -> None:
    """And each completion of a run leads to the same one."""
    shared = 0
    for seed in range(40):
        chance = random.Random(seed)
        vertices = _Vertices(Versions(read(encode(Model(chance, workers=8).run(40)))))
        everything = range(len(vertices.positions))
        suspects = sorted(chance.sample(everything, len(everything) // 2))
        for chosen in (everything, suspects):
            among = [vertices.operations[v] for v in chosen]
            moments, _ = _realtime_edges(vertices, chosen)
            assert len(moments) == _runs_of_completions(among), seed
            shared += len({o.completed for o in among if o.type != INFO}) - len(moments)
    assert shared > 100


# --- positions, and how few suspects there are ----------------------------------------------------------------------


@pytest.mark.spec("HIS-33")
@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("0 (s x=a@0 ; s y=b@0)", [0, 0]),  # sends: the invocation
        ("0 p x:Z@0", [1]),  # a poll: the completion
        ("0 (s x=a@0 ; p x:Z@1 ; s y=b@0)", [0, 1, 1]),  # a send after a poll: the completion
        ("0 (p x:Z@1 ; s y=b@0) ∥ 1 s x=a@0", [2, 2, 1]),
        ("0 [s x=a@0 ; p x:Z@1]", [0]),  # a transaction: the invocation, where nobody knows more
    ],
)
def test_a_vertex_is_positioned_between_the_lines_of_its_operation(text: str, lines: list[int]) -> None:
    positions = _Vertices(Versions(history(text))).positions
    assert [int(position) for position in positions] == lines
    assert len(set(positions)) == len(lines)


@pytest.mark.spec("HIS-33")
@pytest.mark.parametrize(("ended_at", "position"), [(1500, 1.5), (2000, 2.5), (2999, 2.5), (0, 1), (9000, 3)])
def test_a_transaction_is_positioned_where_its_commit_was_asked_for(ended_at: int, position: float) -> None:
    """It goes from line 1 to line 3, at 1,000 and 3,000 ns; what is told to lie outside cannot be so."""
    vertices = _Vertices(Versions(history("1 p ∥ 0 [s x=a@0]", {1: {"ended_at": ended_at}})))
    (transaction,) = vertices.of_operation[1]
    assert vertices.positions[transaction] == position


@pytest.mark.spec("HIS-33")
@pytest.mark.parametrize(
    ("text", "rises", "suspects"),
    [
        ("0 s x=a@5 ∥ 1 s x=b@3", True, 0),  # the later one in the log was asked for first
        ("1 s x=b@3 ∥ 0 s x=a@5", False, 0),  # it lies higher as it is
        ("0 s x=a@5 ; 1 s x=b@3", False, 2),  # it was over before: no position within its lines is high enough
        ("0 s x=c@9 ∥ 1 s x=b@8 ∥ 2 s x=a@7", True, 0),  # one after the other
    ],
)
def test_in_the_second_pass_a_send_is_no_lower_than_the_value_before_it(text: str, rises: bool, suspects: int) -> None:
    versions = Versions(history(text))
    vertices, second = _Vertices(versions), PASSES[1]
    writes = _Writes(_ww_edges(versions, vertices, second.transactions))
    raised = _raised(vertices, writes.edges)
    assert (raised != vertices.positions) == (rises or suspects > 0)
    for vertex, position in enumerate(raised):
        operation = vertices.operations[vertex]
        assert operation.invoked <= vertices.positions[vertex] <= position < operation.completed + 1
    downwards = [edge for edge in writes.edges if raised[edge[0]] > raised[edge[1]]]
    assert bool(downwards) == (suspects > 0)
    assert sum(map(len, _suspects(vertices, second, writes))) == suspects


def _vertices_and_suspects(versions: Versions) -> tuple[_Vertices, list[int]]:
    """Return the vertices, and how many of them are suspects in each pass."""
    vertices, counts = _Vertices(versions), []
    for each in PASSES:
        writes = _Writes(_ww_edges(versions, vertices, each.transactions) if each.writes else ())
        counts.append(sum(map(len, _suspects(vertices, each, writes))))
    return vertices, counts


@pytest.mark.spec("HIS-33")
def test_a_right_history_of_sends_and_of_polls_has_no_suspects_and_its_edges_lead_upwards() -> None:
    """Without transactions, and without operations that do both, of which nobody knows when they sent."""
    edges = 0
    for seed in range(100):
        model = Model(random.Random(seed), transactions=False, mixed=False)
        versions = Versions(read(encode(model.run(60))))
        vertices, suspects = _vertices_and_suspects(versions)
        assert suspects[:2] == [0, 0], seed  # the third pass is of transactions
        rising = [(a, b) for a, b, _ in _process_edges(vertices, set(range(len(vertices.positions))))]
        for reader in range(len(vertices.positions)):
            values = [v for _, _, values in vertices.polled(reader) for v in values if v is not None]
            rising += [(vertices.of_value[v], reader) for v in values if v in vertices.of_value]
        for one, other in rising:
            assert vertices.positions[one] < vertices.positions[other], seed
        edges += len(rising)
    assert edges > 10_000


@pytest.mark.spec("HIS-33")
def test_of_a_right_history_with_transactions_few_vertices_are_suspects() -> None:
    """Told when each commit was asked for, a small part of them; not told, many more."""
    found = dict.fromkeys((True, False), 0)
    of_all = 0
    for seed in range(30):
        entries = Model(random.Random(seed), keys=8).run(100)
        for told in (True, False):
            for entry in entries if not told else ():
                entry.pop("ended_at", None)
            vertices, (first, *_) = _vertices_and_suspects(Versions(read(encode(entries))))
            found[told] += first
            of_all += len(vertices.positions) * told
    assert found[True] * 10 < of_all
    assert found[True] * 2 < found[False] < of_all


# --- what is shown of a cycle ---------------------------------------------------------------------------------------


def _ring(size: int) -> dict[int, list[tuple[int, str]]]:
    return {vertex: [((vertex + 1) % size, "ww")] for vertex in range(size)}


@pytest.mark.spec("HIS-33")
def test_the_shortest_cycle_is_looked_for_from_sixty_four_vertices_of_a_component() -> None:
    for place, steps in ((63, 2), (64, 100)):  # the last that is looked from, the first that is not
        graph = _ring(100)
        graph[place + 1].append((place, "ww"))
        cycle = shortest_cycle(graph, set(range(100)), set())
        assert cycle is not None and len(cycle) == steps


@pytest.mark.spec("HIS-33")
def test_moments_are_not_among_the_vertices_from_which_a_cycle_is_looked_for() -> None:
    graph = _ring(100)
    graph[80].append((79, "ww"))
    moments = set(range(10, 40))
    cycle = shortest_cycle(graph, set(range(100)), moments)
    assert cycle is not None and [vertex for vertex, _ in cycle] == [79, 80]


@pytest.mark.spec("HIS-33", "HIS-32")
def test_moments_are_no_steps_of_a_cycle_and_not_shown() -> None:
    """The shortest is the one that names the fewest vertices, by way of whatever number of moments."""
    longer = 0
    for seed in range(300):
        chance, size = random.Random(seed), 12
        moments = set(range(size - 5, size))
        edges = {(a, b) for a in range(size) for b in range(size) if a != b and chance.random() < 0.16}
        edges -= {(a, b) for a, b in edges if a in moments and b in moments and a > b}  # a chain has no cycle
        graph = defaultdict(list)
        for a, b in sorted(edges):
            graph[a].append((b, "realtime"))
        reached = _reaches({(a, b) for a, b in edges if a in moments and b in moments}, size)
        through = edges | {(a, d) for a, b in edges for c, d in edges if b in moments and (b == c or (b, c) in reached)}
        steps = {(a, b) for a, b in through if a not in moments and b not in moments}
        for component in components(graph):
            inside = {(a, b) for a, b in steps if a in component and b in component}
            cycle = shortest_cycle(graph, component, moments)
            assert cycle is not None
            shown = [vertex for vertex, _ in cycle]
            assert moments.isdisjoint(shown)
            assert set(zip(shown, [*shown[1:], shown[0]], strict=True)) <= inside
            assert len(shown) == min(_girth(inside, start, size) for start in component - moments), seed
            counted = min(_girth(edges, start, size) for start in component - moments)
            longer += counted > len(shown)
    assert longer > 50, "else nothing told moments from other vertices"


@pytest.mark.spec("HIS-33")
@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        (
            "G1c",
            "0 [p y:b@4 ; s x=a@7] ∥ 1 [p x:a@7 ; s y=b@4]",
            "0 sent 97 to key 0, 1 polled it at 7; 1 sent 98 to key 1, 0 polled it at 4",
        ),
        ("G1c-process", "0 [p x:a@0] ; 0 [s x=a@0]", "0 went on; 0 sent 97 to key 0, 0 polled it at 0"),
        (
            "G1c-realtime",
            "0 p x:a@0 ; 1 s x=a@0",
            "0's line 1 was before 1's 2; 1 sent 97 to key 0, 0 polled it at 0",
        ),
        (
            "G0-realtime",
            "0 s x=a@5 ; 1 s x=b@3",
            "0's line 1 was before 1's 2; 1's 98 lies before 0's 97 in key 0",
        ),
        (
            "G0",
            "0 [s x=a@0 ; s y=c@1] ∥ 1 [s x=b@1 ; s y=d@0]",
            "0's 97 lies before 1's 98 in key 0; 1's 100 lies before 0's 99 in key 1",
        ),
    ],
)
def test_each_step_of_a_cycle_is_said_in_words(kind: str, text: str, words: str) -> None:
    (found,) = [finding for finding in cycles(Versions(history(text))) if finding.kind == kind]
    assert found.text == words


# --- no recursion ---------------------------------------------------------------------------------------------------


@pytest.mark.spec("HIS-33", "HIS-2")
def test_a_component_of_many_vertices_needs_no_deep_stack() -> None:
    size = 5 * sys.getrecursionlimit()
    graph = _ring(size)
    assert components(graph) == [set(range(size))]
    graph[1].append((0, "ww"))
    assert shortest_cycle(graph, set(range(size)), set()) == [(0, "ww"), (1, "ww")]


ANALYSER = ("allowed", "atomic", "graph", "groups", "lags", "logs", "reads", "sends", "verdict", "versions")


@pytest.mark.spec("HIS-2", "HIS-33")
def test_no_function_of_the_analyser_calls_itself() -> None:
    """Neither by itself nor by way of others, as far as their names tell."""
    defined: dict[str, set[str]] = defaultdict(set)  # function -> names that it calls
    folder = ROOT / "tests" / "histories" / "analyser"
    for path in [ROOT / "tests" / "histories" / "history.py", *(folder / f"{name}.py" for name in ANALYSER)]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name | ast.Attribute):
                        called = inner.func.id if isinstance(inner.func, ast.Name) else inner.func.attr
                        defined[node.name].add(called)
    defined["lines"].remove("lines")  # of a verdict it calls that of its lags
    graph = {name: [(called, "") for called in sorted(calls & defined.keys())] for name, calls in defined.items()}
    numbers = {name: number for number, name in enumerate(sorted(graph))}
    by_number = {numbers[a]: [(numbers[b], "") for b, _ in calls] for a, calls in graph.items()}
    assert not [sorted(graph)[n] for component in components(by_number) for n in component]
    assert not [name for name, calls in graph.items() if (name, "") in calls]
