"""How long consumers waited for what was known to be there, and what was unread when, by histories of some lines."""

import json
import random
from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from tests.histories.analyser.lags import Lag, Wait, lags
from tests.histories.analyser.logs import Unread, unread
from tests.histories.analyser.model import Model, drop, encode
from tests.histories.analyser.notation import history, lines
from tests.histories.analyser.verdict import judge
from tests.histories.analyser.versions import Versions
from tests.histories.history import History, read

X, Y = 0, 1


def revoked(operation: int) -> Mapping[int, Mapping[str, Any]]:
    """Have that operation's completion tell that the key was taken from its process."""
    return {operation: {"rebalance": [{"what": "revoked", "keys": [X], "generation": 1, "time": 0}]}}


@pytest.mark.spec("HIS-34")
@pytest.mark.parametrize(
    ("text", "extras", "lag", "stall"),
    [
        ("0 assign x ; 1 s x=a@0 ; 0 p ; 0 p x:a@0 ; 1 s x=b@1 ; 0 p x:b@1", {}, (3000, 6), (3000, 6)),
        ("1 s x=a@0 ; 0 assign x ; 0 p x:a@0", {}, (3000, 4), (1000, 4)),
        ("0 assign x ; 1 s x=b@7 ; 1 s x=a@0 ; 0 p x:a@0,b@7", {}, (3000, 6), (3000, 6)),
        ("0 assign x ; 1 p x:a@0 ; 0 p", {}, (1000, 6), (1000, 6)),
        ("0 assign x ; 1 s x=a@0 ; 1 s x=b@1 ; 0 p x:a@0 ; 0 p", {}, (3000, 6), (3000, 6)),
        ("0 assign x ; 1 [s x=a@0] ; 0 p", {}, (1000, 4), (1000, 4)),
        ("0 assign x ; 1i s x=a@? ; 0 p ; 0 p x:a@0 ; 0 p", {}, None, None),
        ("0 assign x ; 1f [s x=a@0] ; 0 p", {}, None, None),
        ("0 assign x ; 1 s x=a@0 ; 0 p ; 1 ends x:1..1", {}, None, None),
        ("0 assign x ; 1 s y=a@0 ; 0 p", {}, None, None),
        ("0 subscribe x ; 1 s x=a@0 ; 0 p", {}, None, None),
        ("0 subscribe x ; 1 s x=a@0 ; 0 p x:a@0 ; 1 s x=b@1 ; 0 p", {}, (1000, 8), (1000, 8)),
        ("0 assign x ; 1 s x=a@0 ; 0 p ; 0 p ; 0 p", revoked(3), (1000, 4), (1000, 4)),
        ("0 assign x ; 0 s y=b@0 ; 1 s x=a@0 ; 0 p", revoked(1), None, None),
        ("0 assign x ; 1 s x=a@0 ; 0 (p x:a@0 ; s y=b@0) ; 1 s x=c@1 ; 0 p", revoked(2), None, None),
        ("0 assign x ; 1 s x=a@0 ; 0f p ; 0 s y=b@0 ; 0 [s y=c@1]", {}, None, None),
        ("0 assign x ; 0 p ; 1 s x=a@0", {}, None, None),
    ],
    ids=[
        *("from when it was shown", "newly assigned", "by a higher one", "shown by a poll", "behind what was polled"),
        *(
            "of a transaction",
            "of unknown outcome",
            "aborted",
            "deleted",
            "another key",
            "a group's before it is polled",
        ),
        *("a group's afterwards", "revoked", "revoked amid a send", "revoked amid its poll", "without a poll"),
        "not there yet",
    ],
)
def test_a_poll_lags_by_the_time_that_the_next_offset_has_been_known(
    text: str, extras: Mapping[int, Mapping[str, Any]], lag: tuple[int, int] | None, stall: tuple[int, int] | None
) -> None:
    expected = () if lag is None or stall is None else (Lag(0, X, Wait(*lag), Wait(*stall)),)
    assert [one for one in lags(Versions(history(text, extras))).worst if one.process == 0] == list(expected)


@pytest.mark.spec("HIS-34", "HIS-4")
def test_the_worst_of_all_is_a_line_and_each_process_and_key_a_figure_in_the_document() -> None:
    verdict = judge(history("0 assign x y ; 1 s x=a@0 ; 2 s y=b@0 ; 0 p x:a@0 ; 0 p y:b@0"))
    assert list(verdict.lines())[1] == (
        "realtime-lag: at most 0.0 s, process 0 of key 0 [line 6]; stall: at most 0.0 s, process 0 of key 0 [line 6]"
    )
    assert verdict.document()["lags"] == [
        {"process": 0, "key": X, "lag": {"ns": 3000, "line": 6}, "stall": {"ns": 3000, "line": 6}},
        {"process": 0, "key": Y, "lag": {"ns": 3000, "line": 8}, "stall": {"ns": 3000, "line": 8}},
    ]


POLLS = " ; 0 p"  # 4 s each


def slow(text: str, faults: Mapping[int, bool]) -> History:
    """Read a history of which each line takes 2 s; ``faults``: line before which one begins (or, False, ends)."""
    told: list[dict[str, Any]] = []
    for number, line in enumerate(lines(text)):
        entry = orjson.loads(line)
        if number in faults:
            told.append(
                {"process": "n", "type": "info", "f": "fault", "value": {"begins": faults[number], "faults": ["k"]}}
            )
        told.append(entry)
    for index, entry in enumerate(told[1:]):
        entry |= {"index": index, "time": index * 2 * 10**9}
    return read([orjson.dumps(entry) + b"\n" for entry in told])


@pytest.mark.spec("HIS-34", "HIS-27")
@pytest.mark.parametrize(
    ("text", "faults", "stuck"),
    [
        ("0 assign x ; 1 s x=a@0" + POLLS * 9, {}, True),
        ("0 assign x ; 1 s x=a@0" + POLLS * 8, {}, False),
        ("0 assign x ; 1 s x=a@0" + POLLS * 4 + " ; 0 p x:a@0" + POLLS * 9, {}, False),
        ("0 assign x ; 1 s x=a@0" + POLLS * 6 + " ; 1 s y=b@0 ; 1 s y=c@1" + POLLS * 6, {}, False),
        ("0 assign x ; 1 s x=a@0" + "".join(f" ; 0 [s y={n}@{n}]" for n in range(1, 12)) + POLLS, {}, False),
        ("1 s x=a@0" + " ; 1 p" * 9 + " ; 0 assign x" + POLLS * 6, {}, False),
        ("0 assign x" + POLLS * 20 + " ; 1 s x=a@0" + POLLS * 9, {1: True, 3: False}, True),
        ("0 assign x" + POLLS * 10 + " ; 1 s x=a@0" + POLLS * 9, {1: True, 3: False}, False),
        ("0 assign x" + POLLS * 20 + " ; 1 s x=a@0" + POLLS * 9, {50: True}, False),
        ("0 assign x" + POLLS * 20 + " ; 1 s x=a@0" + POLLS * 9, {1: True}, False),
    ],
    ids=[
        *("stuck", "not for so long", "it went on", "did not poll throughout", "sent and did not poll"),
        *("newly assigned", "long after a fault"),
        *("soon after one", "amid one", "one that has not ended"),
    ],
)
def test_who_polls_for_half_a_minute_long_after_all_faults_and_gets_nothing_is_stuck(
    text: str, faults: Mapping[int, bool], stuck: bool
) -> None:
    found = [f for f in lags(Versions(slow(text, faults))).stuck if f.key == X]
    assert [f.kind for f in found] == ["stuck"] * stuck
    kinds = {anomaly.kind for anomaly in judge(slow(text, faults)).unallowed}
    assert ("stuck" in kinds) == stuck


@pytest.mark.spec("HIS-34", "HIS-30")
def test_of_compacted_keys_nothing_is_said_to_be_stuck() -> None:
    """What was there may have been replaced and removed."""
    polled = slow("0 assign x ; 1 s x=a@0" + POLLS * 9, {})
    assert lags(Versions(polled)).stuck
    polled.header["options"]["cleanup"] = "compact"
    assert not lags(Versions(polled)).stuck and lags(Versions(polled)).worst


# --- what was unread when -------------------------------------------------------------------------------------------


@pytest.mark.spec("HIS-27")
@pytest.mark.parametrize(
    ("text", "reading", "unseen"),
    [
        # Lines are 1,000 ns apart; what was sent is acknowledged in lines 1 and 3, and polled in line 5.
        ("0 s x=a@0 ; 0 s x=b@1 ; 1 p x:a@0", "unread", [(1000, 1), (3000, 2), (5000, 1)]),
        ("0 s x=a@0 ; 1 p x:a@0 ; 0 s x=b@1 ; 1 ends x:0..9 ; 1 final x:2", "stuck", [(1000, 1), (3000, 0), (5000, 1)]),
        ("0 s x=a@0 ; 0 s x=b@1 ; 1i p x:a@0 ; 2f p x:b@1", "unread", [(1000, 1), (3000, 2)]),  # no ok poll
        ("0i s x=a@? ; 1f s x=b@? ; 2 p", "unread", []),  # nobody knows that they are there
        ("0 s x=a@0 ∥ 1 p x:a@0 ; 2 p x:a@0", "unread", [(2000, 1), (3000, 0)]),
        ("1 p x:a@0 ∥ 0 s x=a@0", "unread", []),  # polled before it was acknowledged
        ("0 [s x=a@0] ; 2i [s x=b@1] ; 1 p", "unread", [(1000, 1)]),
        ("0 s x=a@0 ; 0 s x=b@1 ; 2 delete x:1 ; 1 p", "unread", [(3000, 1)]),  # what was removed is not missed
        ("0 s x=a@0 ; 1 p x:a@0 ; 1 p x:a@0", "unread", [(1000, 1), (3000, 0)]),
    ],
)
def test_of_a_key_not_read_to_its_end_it_is_told_how_many_values_were_missing_when(
    text: str, reading: str, unseen: list[tuple[int, int]]
) -> None:
    """That is a figure: of such a key no value is a finding."""
    verdict = judge(history(text))
    assert [one for one in verdict.unread if one.key == X] == [Unread(X, reading, tuple(unseen))]  # type: ignore[arg-type]
    assert "unseen" not in verdict.kinds()
    (told,) = [one for one in json.loads(json.dumps(verdict.document()))["unread"] if one["key"] == X]
    assert told == {"key": X, "reading": reading, "unseen": [list(point) for point in unseen]}


@pytest.mark.spec("HIS-27")
def test_of_a_key_read_to_its_end_there_is_no_series() -> None:
    text = "0 s x=a@0 ; 0 s y=b@0 ; 1 p x:a@0 ; 1 ends x:0..1,y:0..1 ; 1 final x:1"
    assert [one.key for one in judge(history(text)).unread] == [Y]


@pytest.mark.spec("HIS-27")
def test_a_series_ends_with_as_many_values_as_would_be_unseen_had_the_key_been_read() -> None:
    """And goes by one up at most for each send, never below nothing, and onwards in time."""
    missing = 0
    for seed in range(40):
        chance = random.Random(seed)
        entries = Model(chance).run(40)
        for _ in range(chance.randint(0, 3)):
            drop(entries, chance)
        unseen = [f for a in judge(read(encode(entries))).anomalies if a.kind == "unseen" for f in a.findings]
        assert entries[-1]["f"] == "final"
        versions = Versions(read(encode(entries[:-2])))
        series = unread(versions)
        assert {one.key for one in series} == set(versions.orders)
        for one in series:
            times, counts = [at for at, _ in one.unseen], [count for _, count in one.unseen]
            assert times == sorted(set(times)) and min(counts, default=0) >= 0
            assert ([0, *counts])[-1] == sum(f.key == one.key for f in unseen), seed
        missing += len(unseen)
    assert missing > 20


@pytest.mark.spec("HIS-27", "HIS-2")
def test_a_long_series_is_thinned_and_keeps_its_first_and_its_last_point() -> None:
    text = " ; ".join(f"0 s x={n}@{n}" for n in range(1, 251))
    (series,) = judge(history(text)).unread
    assert len(series.unseen) == 100
    assert series.unseen[0] == (1000, 1) and series.unseen[-1] == (499_000, 250)
    assert all(b[0] - a[0] <= 6000 for a, b in zip(series.unseen, series.unseen[1:], strict=False))
