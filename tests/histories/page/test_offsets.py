"""What is at odds of a key is told from what only comes with it."""

from collections.abc import Sequence

import pytest

from tests.histories.analyser.notation import history
from tests.histories.analyser.verdict import judge
from tests.histories.history import History
from tests.histories.page.offsets import NAMED, Place, at_odds, chart, named, places

X = 0


def _odds(text: str, kind: str) -> tuple[History, list[Place], list[Place]]:
    """Return a history, the places of the operations at odds in its finding of that kind, and what is at odds."""
    told = history(text)
    finding = next(f for anomaly in judge(told).anomalies if anomaly.kind == kind for f in anomaly.findings)
    seen = places(told, X)
    odd = [place for place in seen if {place.operation.invoked, place.operation.completed} & set(finding.lines)]
    return told, odd, at_odds(seen, odd, finding.text)


def _said(found: Sequence[Place]) -> set[tuple[int | str | None, int]]:
    return {(chr(place.value) if place.value else None, place.offset) for place in found}


@pytest.mark.spec("HIS-48")
@pytest.mark.parametrize(
    ("text", "kind", "found"),
    [
        ("0 s x=a@5 ; 1 p x:c@4,b@5 ; 2 p x:c@4", "inconsistent-offsets", {("a", 5), ("b", 5)}),
        ("0 s x=a@1 ; 1 p x:b@2,a@3", "duplicate", {("a", 1), ("a", 3)}),
        ("0f [s x=a@0] ; 1 p x:a@0,b@1", "G1a", {("a", 0)}),
        ("0 s x=a@0 ; 2 p x:b@1,c@2", "lost-write", {("a", 0)}),
        ("0 p x:a@0 ; 0 p x:c@2 ; 1 p x:b@1", "poll-skip", {("a", 0), ("c", 2)}),
    ],
)
def test_the_values_at_odds_are_found(text: str, kind: str, found: set[tuple[str, int]]) -> None:
    assert found <= _said(_odds(text, kind)[2])
    assert _said(_odds(text, kind)[2]) <= found | ({("b", 1)} if kind == "poll-skip" else set())


@pytest.mark.spec("HIS-48")
def test_who_saw_a_value_elsewhere_is_shown_though_no_line_of_the_finding_is_its() -> None:
    told = history("0 s x=a@1 ; 1 p x:a@2 ; 2 p x:a@2")
    seen = places(told, X)
    (sent,) = (place for place in seen if place.operation.process == 0)
    assert {(place.operation.process, place.offset) for place in at_odds(seen, [sent], "97 lies twice")} == {
        (0, 1),
        (1, 2),
    }


@pytest.mark.spec("HIS-48")
def test_offsets_of_commits_and_answers_are_places_without_a_value() -> None:
    told = history("0 o x:5 ; 1 committed x:4 ; 2 ends x:0..9 ; 3 final x:8 ; 4 delete x:2 ; 5 committed x:none")
    shown = [[(place.kind, place.offset, place.value) for place in named(op, X)] for op in told.operations]
    assert shown == [[(NAMED, n, None) for n in offsets] for offsets in ([5], [4], [0, 9], [8], [2], [])]


@pytest.mark.spec("HIS-48")
def test_a_key_of_which_nothing_was_seen_has_no_picture() -> None:
    told = history("0 s x=a@?")
    assert list(chart(told, X, "", [], {id(told.operations[0]): 0})) == []


@pytest.mark.spec("HIS-48")
def test_what_is_small_beside_all_of_its_key_is_shown_from_near_by() -> None:
    sends = " ; ".join(f"0 s x={1000 + n}@{n}" for n in range(300))
    told = history(f"{sends} ; 1 p x:1005@6")
    colours = {id(op): n for n, op in enumerate(op for op in told.operations if op.completed in (11, 601))}
    text = "".join(chart(told, X, "1005 lies at 5 and 6", [], colours))
    assert text.count('class="picture"') == 2 and "from near by" in text
    _, _, near = text.partition("from near by")
    assert near.count('class="ring"') == 2 and near.count(">1005</text>") == 2
    assert "<text" not in text.partition("from near by")[0], "values are told where there is room"
    few = "".join(chart(history("0 s x=a@1 ; 1 p x:a@2"), X, "", [], {}))
    assert few.count('class="picture"') == 1
