"""Each anomaly of the checker, in the smallest history that has it, and in one that nearly has it."""

from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from tests.histories.analyser.ends import UNDER_WAY_NS
from tests.histories.analyser.graph import PASSES
from tests.histories.analyser.logs import _label
from tests.histories.analyser.notation import history, lines
from tests.histories.analyser.verdict import judge
from tests.histories.history import read

G = {"group": "g"}


def assigned(generation: int | None, *keys: int, time: int = 0, member: str = "m1") -> dict[str, Any]:
    event = {"what": "assigned", "keys": list(keys), "generation": generation, "time": time}
    return {"group": "g", "member": member, "rebalance": [event]}


def told(what: str, generation: int | None, *keys: int, member: str = "m1", group: str = "g") -> dict[str, Any]:
    event = {"what": what, "keys": list(keys), "generation": generation, "time": 0}
    return {"group": group, "member": member, "rebalance": [event]}


def revoked(*keys: int) -> dict[str, Any]:
    event = {"what": "revoked", "keys": list(keys), "generation": 5, "time": 0}
    return {"group": "g", "member": "m1", "rebalance": [event]}


def kinds(text: str, extras: Mapping[int, Mapping[str, Any]] | None = None, **options: Any) -> set[str]:
    return judge(history(text, extras, **options)).kinds()


# Two values of x to be made into others; and the last phase, that read both keys to their ends.
_SOURCE = "0 (s x=a@0 ; s x=b@1) ; 2 p x:a@0,b@1"
_READ = "; 3 ends x:0..2,y:0..2 ; 3 final x:2,y:2"

# A transaction of unknown outcome whose values nobody read but operations of unknown outcome.
_UNPROVEN = "0i [p y:b@0 ; s x=a@0] ∥ 1i (p x:a@0 ; s y=b@0)"
_UNPROVEN_WRITES = "0i [s x=a@0 ; s y=c@1] ∥ 1 [s x=b@1 ; s y=d@0] ∥ 3i p x:a@0 y:c@1"

HAS: list[tuple[str, Any]] = [
    ("phantom", "1 p x:Z@0"),
    ("phantom", "0 s y=a@0 ; 1 p x:a@0"),
    ("phantom", "1 p x:?@0"),
    ("inconsistent-offsets", "0 s x=a@5 ; 1 p x:b@5"),
    ("inconsistent-offsets", "0i [s x=a@5 ; s y=c@?] ; 1 s x=b@5 ; 2 p y:c@0"),
    ("duplicate", "0 s x=a@1 ; 1 p x:b@2,a@3"),
    ("lost-write", "0 s x=a@0 ; 2 p x:c@2"),
    ("lost-write", "0 s x=a@0 ; 1 s x=b@0 ; 2 p x:b@0"),
    ("G1a", "0f [s x=a@0] ; 1 p x:a@0"),
    ("precommitted-read", "0 [s x=a@0 ; p x:a@0]"),
    ("poll-skip", "0 p x:a@1,b@2 ; 1 p x:c@3 ; 0 p x:d@4"),
    ("nonmonotonic-poll", "0 p x:a@1,b@2 ; 0 p x:b@2"),
    ("int-poll-skip", "1 p x:b@2 ; 0 [p x:a@1 ; p x:c@3]"),
    ("int-poll-skip", "1 p x:b@2 ; 0 p x:a@1,c@3"),
    ("int-nonmonotonic-poll", "0 p x:c@3,a@1"),
    ("int-nonmonotonic-poll", "0 [p x:a@1 ; p x:a@1]"),
    ("nonmonotonic-send", "0 s x=a@4 ; 0 s x=b@2"),
    ("int-nonmonotonic-send", "0 [s x=a@3 ; s x=b@1]"),
    ("int-send-skip", "0 [s x=a@1 ; s x=c@3] ∥ 1 s x=b@2"),
    ("unseen", "0 s x=a@9 ; 1 ends x:0..9 ; 1 final x:9"),
    ("stuck", "0 s x=a@9 ; 1 ends x:0..12 ; 1 final x:9"),
    ("torn-transaction", "0 [s x=a@0 ; s y=b@0] ; 1 p x:a@0 ; 1 ends x:0..2,y:0..2 ; 1 final x:2,y:2"),
    ("torn-transaction", "0f [s x=a@0 ; s y=b@0] ; 1 p x:a@0 ; 1 ends x:0..2,y:0..2 ; 1 final x:2,y:2"),
    ("end-backwards", "0 ends x:0..9 ; 1 ends x:0..7"),
    ("start-backwards", "0 delete x:5 ; 1 ends x:3..9"),
    ("start-backwards", "0 delete x:5 ; 1 p x:a@4"),
    ("G1c", "0 [p y:b@0 ; s x=a@0] ∥ 1 [p x:a@0 ; s y=b@0]"),
    ("G1c-process", "0 [p x:a@0] ; 0 [s x=a@0]"),
    ("G1c-process", "0 (p x:a@0 ; s x=a@0)"),
    ("G1c-realtime", "0 p x:a@0 ; 1 s x=a@0"),
    ("G0-process", "0 s x=a@5 ; 0 s x=b@3"),
    ("G0-realtime", "0 s x=a@5 ; 1 s x=b@3"),
    ("G0", "0 [s x=a@0 ; s y=c@1] ∥ 1 [s x=b@1 ; s y=d@0]"),
    ("G1c-ww", "0 [s x=a@0 ; p y:d@0] ∥ 1 [s x=b@1 ; s y=d@0]"),
    ("duplicate", "0i s x=a@5 ; 1 p x:a@7"),
    ("G1c", "0i [p y:b@0 ; s x=a@0] ∥ 1 [p x:a@0 ; s y=b@0]"),
    ("G0-realtime", "0 s x=a@5 ; 1i s x=b@3 ; 2 p x:b@3,a@5"),
    ("G0-process", "0 (s x=a@5 ; p z:d@0 ; s y=b@0) ; 1 s y=c@1 ; 1 s x=e@4"),
    ("G0-realtime", "0 s x=a@5 ; 1 (s y=c@0 ; s x=b@3)"),
    ("G1c-process", "0 (p x:b@0 ; s y=a@0 ; s x=b@0)"),
    ("inconsistent-offsets", "0 s x=a@5 ; 1f [p x:b@5]"),
    ("inconsistent-offsets", "0 s x=a@5 ; 1i p x:b@5"),
    ("phantom", "1 p x:a@5 ; 2 p x:Z@5"),
    ("phantom", "1i p x:?@0"),
    ("phantom", "1i p x:Z@0"),
    ("lost-write", "0 s x=a@0 ; 1i p x:a@0 ; 2 p x:c@2"),
    ("lost-write", "0 s x=a@3 ; 2 p x:b@1,c@5"),
    ("G1a", "0f s x=a@0 ; 1 p x:a@0"),
    ("nonmonotonic-poll", "0 p x:a@1,b@2 ; 0f assign y ; 0 p x:b@2"),
    ("nonmonotonic-poll", "0 p x:a@1,b@2 ; 0 assign x y ; 0 p x:b@2"),
    ("nonmonotonic-poll", "0 p x:a@1,b@2 ; 0f [p x:b@2]"),
    ("nonmonotonic-poll", "0 p x:a@1,b@2 ; 0i p x:b@2"),
    ("nonmonotonic-send", "0 s x=a@4 ; 0i s x=b@2 ; 1 p x:b@2"),
    ("nonmonotonic-send", "0 (s x=a@5 ; s x=b@1) ; 0 s x=c@3"),
    ("nonmonotonic-send", "0 s x=a@4 ; 0 assign x ; 0 s x=b@2"),  # a producer starts nowhere anew
    ("stuck", "0 s x=a@9 ; 1 ends x:0..9 ; 1 final x:9 ; 1 ends x:0..12"),
    ("nonmonotonic-poll", "0 p x:a@1,b@2 ; 0 p x:a@1"),
    ("nonmonotonic-poll", "0 p x:a@1,b@2 ; 0 subscribe x y ; 0 p x:b@2"),
    ("nonmonotonic-poll", "0 p x:a@1,b@2 ; 0f subscribe y ; 0 p x:b@2"),
    ("unseen", "0 [s x=a@9] ; 1 ends x:0..10 ; 1 final x:10"),
    ("unseen", "0 s x=a@9 ; 2i p x:a@9 ; 1 ends x:0..10 ; 1 final x:10"),
    ("torn-transaction", "0i [s x=a@0 ; s y=b@0] ; 1 p x:a@0 ; 1 ends x:0..2,y:0..2 ; 1 final x:2,y:2"),
    ("end-backwards", "0 ends x:0..9 ; 1 ends x:0..8 ; 2 ends x:0..12 ; 1 ends x:0..11"),
    ("end-backwards", "0 ends x:0..12 ; 1 ends x:0..12 ; 2 ends x:0..13 ∥ 1 ends x:0..11"),
    ("start-backwards", "0 delete x:5 ; 1 p x:a@4,b@6"),
    ("start-backwards", "0 delete x:5 ; 1 p x:b@6,a@4"),
    ("lost-write", "0 s x=a@0 ; 1 p x:d@2,d@9"),  # at the first of its places it is beyond
    ("lost-write", "0 s x=a@0 ; 1i p x:a@3 ; 2 p x:c@5"),  # at the last of its places, too
    ("phantom", "0 s y=a@0 ; 1i p x:a@0"),
    ("phantom", "0 s y=a@0 ; 1f [p x:a@0]"),
    ("phantom", "1f [p x:Z@0]"),
    ("phantom", "1f [p x:?@0]"),
    ("poll-skip", "0 p x:a@1,b@2 ; 1 p x:c@3 ; 0f [p x:d@4]"),
    ("poll-skip", "0 p x:a@1,b@2 ; 1 p x:c@3 ; 0i p x:d@4"),
    ("int-poll-skip", "1 p x:b@2 ; 0f [p x:a@1 ; p x:c@3]"),
    ("int-poll-skip", "1 p x:b@2 ; 0i p x:a@1,c@3"),
    ("int-nonmonotonic-poll", "0f [p x:a@1 ; p x:a@1]"),
    ("int-nonmonotonic-poll", "0i p x:c@3,a@1"),
    ("int-nonmonotonic-send", "0 (s x=a@3 ; s x=b@1)"),
    ("int-nonmonotonic-send", "0i (s x=a@3 ; s x=b@1) ; 1 p x:b@1,a@3"),
    # An unclear value lies at a place of its own; once a clear one is polled, the position is known again.
    ("int-poll-skip", "1 p x:b@2 ; 2 p x:c@2 ; 0 p x:a@1,d@3"),
    ("nonmonotonic-poll", "1 p x:c@2 ; 0 p x:d@4,b@2 ; 0 p x:a@1 ; 0 p x:a@1"),
    ("G1c", "0 [p y:b@0 ; s x=a@0] ∥ 2 p x:a@0 ∥ 1 [p x:a@0 ; s y=b@0]"),
    ("G1c", "0 [p y:b@0 ; s x=a@0] ∥ 1 [p x:a@0 ; s y=b@0] ∥ 2 p x:a@0"),
    # Each of several sends is before the poll behind them.
    ("G1c-ww", "0 (s x=a@1 ; s y=b@0 ; p z:c@0 ; s w=d@0) ∥ 1 [p w:d@0 ; s x=e@0]"),
    (
        "G1c-ww",
        "4 [s u=g@1] ∥ 0 (s y=b@0 ; s x=a@1 ; p z:c@0 ; s w=d@0) ∥ 1 [p w:d@0 ; s x=e@0] ∥ 3 [s u=f@0]",
    ),
]

HAS += [
    # Of a value without a place that was told, the place where it was polled counts.
    ("unseen", "0 s x=a@? ; 2i p x:a@5 ; 1 ends x:2..6 ; 1 final x:6"),
    # What was read before it was deleted could be seen.
    ("torn-transaction", "0 [s x=a@0 ; s y=b@0] ; 1 p x:a@0 ; 1 ends x:1..2,y:0..2 ; 1 final x:2,y:2"),
    # Of two deletions the one that was over counts, be it the lower.
    ("start-backwards", "0 delete x:3 ; 0 delete x:5 ∥ 1 p x:a@2"),
    # Pass 2 passes over what nobody sent, and over transactions that failed or of which nobody knows.
    ("G0-realtime", "0 s x=a@5 ; 1 s x=b@3 ; 2 p x:Z@4"),
    ("G0-realtime", "0 s x=a@5 ; 1 s x=b@3 ; 2f [s x=c@4] ; 3 p x:c@4"),
    ("G0-realtime", "0 s x=a@5 ; 1 s x=b@3 ; 2i [s x=c@?] ; 3i p x:c@4"),
    # A value of the future may lie anywhere in a run.
    ("G1c-realtime", "0 p x:a@1,b@0 ; 1 s x=a@1"),
    # A transaction of unknown outcome is a vertex as soon as anybody has read of it.
    ("G1c-process", f"{_UNPROVEN} ; 2 p x:a@0"),
    ("G0", f"{_UNPROVEN_WRITES} ; 2 p x:a@0"),
]

NEARLY: list[tuple[str, Any]] = [
    # A transaction of unknown outcome of which nobody has read is no vertex.
    ("G1c-process", _UNPROVEN),
    ("G0", _UNPROVEN_WRITES),
    ("G1c-ww", _UNPROVEN_WRITES),
    # What was sent to another key is a phantom, and nothing else.
    ("lost-write", "0 s y=a@0 ; 1i p x:a@0 ; 2 p x:c@2"),
    ("precommitted-read", "0 [s y=a@0 ; p x:a@0]"),
    # The end has to be told before the reader asks itself how far it came.
    ("unseen", "0 s x=a@9 ; 1 ends x:0..10 ∥ 2 final x:10"),
    # Nothing is compared across a send whose place nobody knows, and its own values are not others'.
    ("int-nonmonotonic-send", "0 [s x=a@5 ; s x=b@3 ; s x=c@1] ; 1 p x:d@3"),
    ("int-nonmonotonic-send", "0 [s x=a@5 ; s x=b@? ; s x=c@1]"),
    ("int-send-skip", "0 [s x=a@1 ; s x=c@3 ; s x=b@2]"),
    ("phantom", "0i s x=z@? ; 1 p x:z@0"),
    ("inconsistent-offsets", "0i [s x=a@5 ; s y=c@?] ; 1 s x=b@5"),
    ("duplicate", "1 p x:a@1 ; 1 p x:a@1"),
    ("lost-write", "0i s x=a@0 ; 2 p x:c@2"),
    ("lost-write", "0 s x=a@0 ; 2 p x:c@2 ; 3 ends x:1..3"),
    ("G1a", "0i [s x=a@0] ; 1 p x:a@0"),
    ("precommitted-read", "0 [s x=a@0] ; 0 [p x:a@0]"),
    ("poll-skip", "0 p x:a@1,b@2 ; 1 p x:c@3 ; 0 assign y ; 0 assign x ; 0 p x:d@4"),
    ("poll-skip", "0 p x:a@1,b@2 ; 0 p x:d@4"),
    ("nonmonotonic-poll", "0f [p x:a@1] ; 0 p x:a@1"),
    ("int-poll-skip", "0 [p x:a@1 ; p x:c@3]"),
    ("int-nonmonotonic-poll", "0 [p x:a@1 ; p x:b@2]"),
    ("nonmonotonic-send", "0 s x=a@4 ∥ 1 s x=b@2"),
    ("int-nonmonotonic-send", "0 [s x=a@1 ; s x=b@3]"),
    ("int-send-skip", "0 [s x=a@1 ; s x=c@3]"),
    ("unseen", "0 s x=a@9 ; 1 ends x:0..10 ; 1 final x:9"),
    ("unseen", "0 s x=a@9 ; 2 p x:a@9 ; 1 ends x:0..10 ; 1 final x:10"),
    ("stuck", "0 s x=a@9 ; 1 ends x:0..10 ; 1 final x:10"),
    ("torn-transaction", "0 [s x=a@0 ; s y=b@0] ; 1 p x:a@0 ; 1 ends x:0..2 ; 1 final x:2"),
    ("torn-transaction", "0 [s x=a@0 ; s y=b@0] ; 1 p x:a@0 ; 1 ends x:0..2,y:0..2 ; 1 final x:2,y:0"),
    ("end-backwards", "0 ends x:0..9 ∥ 1 ends x:0..7"),
    ("start-backwards", "0 delete x:5 ∥ 1 ends x:3..9"),
    ("G1c", "0 (s x=a@0 ; p y:b@0) ∥ 1 (s y=b@0 ; p x:a@0)"),
    ("G1c-realtime", "0 p x:a@0 ∥ 1 s x=a@0"),
    ("G1c-process", "0 (s x=a@0 ; p x:a@0)"),
    ("G0-realtime", "0 s x=a@5 ∥ 1 s x=b@3"),
    ("G0-process", "0 s x=a@5 ; 1 s x=b@3"),
    ("G0", "0 (s x=a@0 ; s y=c@1) ∥ 1 (s x=b@1 ; s y=d@0)"),
    ("G1c-ww", "0 (s x=a@5 ; s x=b@3) ; 1 [s y=c@0]"),
    ("G0-realtime", "0i s x=a@5 ; 1 s x=b@3 ; 2 p x:b@3,a@5"),
    ("G0-process", "0i (s x=a@5 ; p z:d@0 ; s y=b@0) ; 1 s y=c@1 ; 1 s x=e@4 ; 2 p x:e@4,a@5 ; 2 p y:b@0,c@1"),
    ("G1c", "0f [p y:b@0 ; s x=a@0] ∥ 1 [p x:a@0 ; s y=b@0]"),
    ("G1c-process", "0f p x:a@0 ; 0 s x=a@0"),
    ("inconsistent-offsets", "0i (s x=a@5 ; s y=c@?) ; 1 s x=b@5 ; 2 p y:c@0"),
    ("inconsistent-offsets", "0i [s x=a@5 ; s y=c@?] ; 1 s x=b@5 ; 2i p y:c@0"),
    ("inconsistent-offsets", "0f s x=a@5 ; 1 s x=b@5 ; 2 p x:a@6"),
    ("inconsistent-offsets", "0f [s x=a@5] ; 1 s x=b@5 ; 2 p x:a@6"),
    ("int-nonmonotonic-poll", "0 p x:a@1,b@2,a@3"),
    ("nonmonotonic-poll", "1 s x=a@5 ; 0 p x:c@6 ; 0 p x:b@5"),
    ("poll-skip", "1 s x=a@5 ; 0 p x:b@5 ; 0 p x:c@6"),
    ("G0-realtime", "0 s x=a@5 ; 1 s x=b@3 ; 2 p x:c@4 ; 3 s x=d@4"),
    ("lost-write", "0 s x=a@5 ; 1 p x:d@0,d@9"),
    ("lost-write", "0 s x=a@0 ; 2i p x:c@2"),
    ("lost-write", "0 s x=a@0 ; 1i p x:a@9 ; 2 p x:c@5"),
    ("lost-write", "0 s x=a@0 ; 2 p x:c@2 ; 3 delete x:1"),
    ("lost-write", "0 s x=a@0 ; 2 p x:c@2 ; 3 ends x:1..3 ; 3 ends x:0..3"),
    ("G1a", "0f [s x=a@0] ; 1i p x:a@0"),
    ("precommitted-read", "0 (s x=a@0 ; p x:a@0)"),
    ("nonmonotonic-poll", "0f p x:a@1 ; 0 p x:a@1"),
    ("poll-skip", "0 p x:a@1,b@2 ; 1 p x:c@3 ; 0 subscribe y ; 0 subscribe x ; 0 p x:d@4"),
    ("nonmonotonic-send", "0f s x=a@4 ; 0 s x=b@2 ; 1 p x:a@4"),
    ("int-send-skip", "0 (s x=a@1 ; s x=c@3) ∥ 1 s x=b@2"),
    ("unseen", "0 s x=a@9 ; 1 final x:10 ; 1 ends x:0..10"),
    ("unseen", "0i s x=a@9 ; 1 ends x:0..10 ; 1 final x:10"),
    ("unseen", "0 s x=a@9 ; 1 ends x:0..10"),
    ("unseen", "0i [s x=a@9] ; 1 ends x:0..10 ; 1 final x:10"),
    ("torn-transaction", "0 [s x=a@0 ; s y=b@0] ; 1 p x:a@0 ; 1 ends x:0..2,y:1..2 ; 1 final x:2,y:2"),
    ("torn-transaction", "0 [s x=a@0 ; s y=b@0] ; 1 p x:a@0 ; 2 delete y:1 ; 1 ends x:0..2,y:0..2 ; 1 final x:2,y:2"),
    ("end-backwards", "0 ends x:0..9 ; 1 ends x:0..9"),
    ("end-backwards", "0 ends x:0..9 ; 1 ends y:0..7"),
    ("end-backwards", "0 ends x:0..9 ; 1f ends x:0..7"),
    ("start-backwards", "0f delete x:5 ; 1 ends x:3..9"),
    ("start-backwards", "0 delete x:5 ; 1 ends x:5..9 ; 1 p x:a@5"),
    ("start-backwards", "0 delete x:5 ∥ 1 p x:a@4"),
    ("start-backwards", "0 delete x:5 ; 1 ends y:3..9"),
    ("start-backwards", "0i delete x:5 ; 1 ends x:3..9"),
    ("start-backwards", "0i delete x:5 ; 1 p x:a@4"),
    ("start-backwards", "0f delete x:5 ; 1 p x:a@4"),
    ("start-backwards", "0 delete x:5 ; 1 p y:a@4"),
    ("nonmonotonic-poll", "0 p x:a@1,b@2 ; 0 p x:a@3"),
    ("nonmonotonic-poll", "1 p x:a@3 ; 0 p x:a@1 ; 0 p x:b@2"),
    ("int-nonmonotonic-poll", "1 s x=a@5 ; 0 p x:c@6,b@5"),
    ("int-nonmonotonic-poll", "1 s x=a@5 ; 0 [p x:c@6 ; p x:b@5]"),
    ("nonmonotonic-poll", "0 p x:a@1,b@2 ; 1 p x:a@1"),  # another process
    ("nonmonotonic-poll", "0 p x:b@2 ; 0 p x:a@1 ; 1 p x:a@9"),  # a repeated value has no place among others
    ("poll-skip", "1 p x:d@2 ; 0 p x:b@1 ; 0 p x:a@3 ; 1 p x:a@9"),
    ("G0-realtime", "0 s x=a@5 ; 1 s x=b@3 ; 2 p x:c@4 ; 3 p x:c@2"),
    ("G0-process", "0 (s x=a@5 ; s x=b@3)"),  # side by side
    ("nonmonotonic-send", "0 s x=a@5 ; 0 s x=b@3 ; 1 p x:b@3,b@9"),
    ("nonmonotonic-send", "0 s x=a@5 ; 0 s x=b@3 ; 1 p x:c@3"),
    ("int-nonmonotonic-send", "0 [s x=a@3 ; s x=b@1] ; 1 p x:c@1"),
    ("int-nonmonotonic-send", "0 [s x=a@3 ; s x=b@1] ; 1 p x:b@1,b@2"),
    ("int-nonmonotonic-poll", "1 p x:c@2 ; 0 p x:d@4,b@2,a@1"),
    ("int-nonmonotonic-poll", "0 p x:d@4,b@2,a@1 ; 1 p x:b@9"),
    ("nonmonotonic-poll", "1 p x:c@2 ; 0 p x:d@4,b@2 ; 0 p x:a@1"),
    ("G1c-ww", "0 (s x=a@1 ; s y=b@0 ; p z:c@0 ; s w=d@0) ∥ 1 (p w:d@0 ; s x=e@0)"),  # there are no transactions
    ("G0-process", "0 [s x=a@5] ; 0 [s x=b@3]"),  # of values sent without one alone
    ("G0-realtime", "0 [s x=a@5] ; 1 [s x=b@3]"),
    ("G0-realtime", "0 s x=a@5 ; 1 [s x=b@3]"),
    ("G1c", "0 [s x=a@0 ; p x:a@0]"),  # no edge leads to where it comes from
    ("G0", "0 [s x=a@0 ; s x=b@1]"),
    ("G1c-ww", "0 [p x:a@0 ; s y=d@1] ∥ 1 [p y:c@0 ; s x=b@1]"),  # each read what the other wrote over
]

GROUPS_HAVE = [
    ("owner-overlap", "0 p x:a@0 ; 1 p x:a@0", {0: assigned(4, 0), 1: assigned(4, 0, member="m2")}),
    (
        "zombie-commit",
        "1 p x:a@0 ; 0 o x:1",
        {0: assigned(5, 0, member="m2"), 1: {**G, "member": "m1", "generation": 4}},
    ),
    ("commit-lost", "0 o x:10 ; 1 committed x:7", {0: G, 1: G}),
    ("commit-lost", "0 o x:10 ; 1 committed x:none", {0: G, 1: G}),
    ("commit-lost", "0 o x:10 ; 1 p x:a@7", {0: G, 1: assigned(5, 0, time=4000)}),
    ("commit-backwards", "0 committed x:7 ; 1 committed x:5", {0: G, 1: G}),
    ("resume-skip", "2 p x:b@11 ; 0 o x:10 ; 1 p x:c@12", {1: G, 2: assigned(5, 0, time=5000)}),
    (
        "group-skip",
        "2 p x:b@1 ; 0 (p x:a@0 ; p x:c@2 ; o x:3) ; 1 committed x:3",
        {1: G, 2: G},
    ),
    ("eos-duplicate", "0 [s y=a@0 from x:7 ; s y=b@1 from x:7] ; 1 p y:a@0,b@1", {0: G}),
    ("eos-loss", f"{_SOURCE} ; 1 [s y=c@0 from x:0 ; o x:2] ; 1 p y:c@0 ; 1 committed x:2 {_READ}", {2: G, 4: G}),
    (
        "torn-transaction",
        f"{_SOURCE} ; 1 [s y=c@0 from x:0 ; o x:2] ; 1 p y:c@0 ; 1 committed x:1 {_READ}",
        {2: G, 4: G},
    ),
]

_PASSED = "2 p x:b@1 ; 0 (p x:a@0 ; p x:c@2 ; o x:3)"
H = {"group": "h"}
_OLD = {**G, "member": "m1", "generation": 4}  # who commits
_NEW = assigned(5, 0, member="m2")

_UNTOLD_TORN = f"1f [s y=c@0 ; o x:2] ; 3 o x:2 ; 3 committed x:2 {_READ}"  # by its own commit, or another group's

GROUPS_HAVE += [
    # What never completed is of another group, did not poll, did not commit, or was asked for afterwards.
    ("group-skip", f"5u (p ; o x:1) ; {_PASSED} ; 1 committed x:3", {0: H, 2: G, 3: G}),
    ("group-skip", f"5u (s y=e@? ; o x:1) ; {_PASSED} ; 1 committed x:3", {0: G, 2: G, 3: G}),
    ("group-skip", f"{_PASSED} ; 5u (p ; o x:1) ; 1 committed x:3", {1: G, 2: G, 3: G}),
    ("resume-skip", "5u (p ; o x:1) ; 2 p x:b@11 ; 0 o x:10 ; 1 p x:c@12", {0: H, 2: G, 3: assigned(5, 0, time=5000)}),
    ("resume-skip", "5u p ; 2 p x:b@11 ; 0 o x:10 ; 1 p x:c@12", {0: G, 2: G, 3: assigned(5, 0, time=5000)}),
    ("resume-skip", "2 p x:b@11 ; 0 o x:10 ; 1 p x:c@12 ; 5u (p ; o x:1)", {1: G, 2: assigned(5, 0, time=5000), 3: G}),
    ("torn-transaction", f"{_SOURCE} ; 6u (p ; o x:1) ; {_UNTOLD_TORN}", {2: H, 3: G, 4: H, 5: G}),
    ("torn-transaction", f"{_SOURCE} ; 6u p ; {_UNTOLD_TORN}", {2: G, 3: G, 4: H, 5: G}),
    # An owner's loss counts by its own member and generation alone.
    (
        "owner-overlap",
        "0 p x:a@0 ; 0 p x:b@1 ; 1 p x:a@0",
        {0: told("assigned", 4, 0), 1: told("revoked", 5, 0), 2: told("assigned", 4, 0, member="m2")},
    ),
    (
        "owner-overlap",
        "0 p x:a@0 ; 2 p x:b@1 ; 1 p x:a@0",
        {0: told("assigned", 4, 0), 1: told("revoked", 4, 0, member="m3"), 2: told("assigned", 4, 0, member="m2")},
    ),
    ("zombie-commit", "1 p x:a@0 ; 0 [s y=b@0 ; o x:1]", {0: _NEW, 1: _OLD}),
    ("commit-lost", "0 o x:10 ; 2 o x:8 ; 1 committed x:9", {0: G, 1: G, 2: G}),
    ("commit-lost", "0 [s y=a@0 ; o x:10] ; 1 committed x:7", {0: G, 1: G}),
    ("commit-lost", "0 (p x:a@9 ; o x:10) ; 1 committed x:7", {0: G, 1: G}),
    ("commit-backwards", "0 committed x:7 ; 1 committed x:none", {0: G, 1: G}),
    ("commit-backwards", "0 committed x:7 ; 1 committed x:6 ; 2 committed x:6", {0: G, 1: G, 2: G}),
    ("resume-skip", "2 p x:b@11 ; 1 p x:c@12", {1: assigned(5, 0)}),  # without a commit: from the start
    ("resume-skip", "2 p x:b@11 ; 0f o x:12 ; 1 p x:c@12", {1: G, 2: assigned(5, 0)}),
    ("resume-skip", "2 p x:b@11 ; 0 o x:12 ; 1 p x:c@12", {1: H, 2: assigned(5, 0)}),
    ("group-skip", f"{_PASSED} ; 3 p x:b@1 ; 1 committed x:3", {1: G, 2: G, 3: G}),  # polled too late
    (
        "group-skip",
        "2 p x:b@1 ; 0 (p x:a@0 ; p x:c@2) ; 3 p x:b@1 ∥ 0 o x:3 ; 1 committed x:3",
        {1: G, 2: G, 3: G, 4: G},
    ),
    ("group-skip", f"{_PASSED} ; 1 committed x:3", {0: H, 1: G, 2: G}),
    ("group-skip", f"{_PASSED} ; 1 committed x:1 ; 1 committed x:3", {1: G, 2: G, 3: G}),
    (
        "eos-loss",
        f"{_SOURCE} ; 1 [s y=c@0 from x:0 ; s y=d@1 from x:1 ; o x:2] ; 1 p y:c@0 ; 1 committed x:2 {_READ}",
        {2: G, 4: G},
    ),
    (
        "eos-loss",
        f"{_SOURCE} ; 1 [s y=c@0 from x:0 ; o x:2] ; 1 p y:c@0 ; 1 committed x:1 ; 1 committed x:2 {_READ}",
        {2: G, 4: G, 5: G},
    ),
    (
        "eos-loss",
        f"{_SOURCE} ; 1 [s y=c@0 from x:0 ; o x:2] ; 4 [s y=d@1 from x:1] ; 1 p y:c@0,d@1 ; 1 committed x:2 {_READ}",
        {2: G, 3: H, 5: G},
    ),
]


def anew(part: int, time: int = 4000) -> dict[str, Any]:
    """Have x revoked and assigned at once, told during a micro-operation."""
    return {
        "group": "g",
        "member": "m1",
        "rebalance": [
            {"what": "revoked", "keys": [0], "generation": 4, "time": time, "part": part},
            {"what": "assigned", "keys": [0], "generation": 5, "time": time, "part": part},
        ],
    }


_ANEW = anew(0)

GROUPS_HAVE += [
    # Revoked and assigned at once, and polled only afterwards.
    ("commit-lost", "0 o x:10 ; 1 p ; 1 p x:a@7", {0: G, 1: _ANEW, 2: G}),
    ("commit-lost", "0 o x:10 ; 1 (p ; p x:a@7)", {0: G, 1: _ANEW}),
    ("commit-lost", "0 o x:10 ; 1 (p x:a@6 ; p x:b@7)", {0: G, 1: anew(1, 6000)}),
    ("commit-lost", "0 o x:10 ; 1 (p x:a@6 ; p) ; 1 p x:b@7", {0: G, 1: anew(1, 6000), 2: G}),
    ("resume-skip", "2 p x:b@11 ; 0 o x:10 ; 1 (p x:a@9 ; p x:c@12)", {1: G, 2: anew(1, 6000)}),
    # Assigned before, polled, and only then revoked.
    (
        "commit-lost",
        "0 o x:10 ; 1 p ; 1 (p x:a@7 ; p)",
        {0: G, 1: assigned(5, 0, time=4000), 2: anew(1, 6000)},
    ),
    # The commit behind a poll was asked for when that was over.
    ("resume-skip", "2 p x:b@11 ; 0 o x:10 ; 1 (p x:c@12 ; o x:13)", {1: G, 2: assigned(5, 0, time=5000)}),
    ("group-skip", "2 p x:b@1 ; 0 (p x:a@0 ; p x:c@2 ; o x:3 ; p x:b@1) ; 1 committed x:3", {1: G, 2: G}),
    # Offsets may be shown by who resumed there, and be missing where somebody resumed below.
    ("torn-transaction", f"{_SOURCE} ; 1 [s y=c@0 ; o x:1] ; 4 p x:b@1 {_READ}", {2: G, 3: assigned(5, 0, time=9000)}),
    (
        "torn-transaction",
        f"{_SOURCE} ; 1 [s y=c@0 ; o x:1] ; 1 p y:c@0 ; 4 p x:a@0 {_READ}",
        {2: G, 4: assigned(5, 0, time=9000)},
    ),
    # Offsets count as a send: those of a transaction that failed, or of unknown outcome, beside sends that nobody saw.
    *(
        (
            "torn-transaction",
            f"{_SOURCE} ; 1{how} [s y=c@0 ; o x:1] ; 4 committed x:{told} {_READ}",
            {2: G, 3: G},
        )
        for how in ("f", "i", "")
        for told in (1, 2)  # they or more
    ),
    ("torn-transaction", f"{_SOURCE} ; 1f [s y=c@0 ; o x:1] ; 4 p x:b@1 {_READ}", {2: G, 3: assigned(5, 0, time=9000)}),
    # Sends that were seen beside offsets that are not there.
    ("torn-transaction", f"{_SOURCE} ; 1f [s y=c@0 ; o x:2] ; 1 p y:c@0 ; 1 committed x:1 {_READ}", {2: G, 4: G}),
    ("torn-transaction", f"{_SOURCE} ; 1i [s y=c@0 ; o x:2] ; 4 p y:c@0 ; 4 committed x:none {_READ}", {2: G, 4: G}),
    # Where the next owner resumed beyond them.
    ("torn-transaction", f"{_SOURCE} ; 1f [s y=c@0 ; o x:1] ; 4 p x:Z@3 {_READ}", {2: G, 3: assigned(5, 0, time=9000)}),
    # Of one key they are there, of another they are not.
    ("torn-transaction", f"{_SOURCE} ; 1 [o x:1,y:1] ; 1 committed x:1,y:0 {_READ}", {2: G, 3: G}),
    # What another committed below explains nothing, nor what another group did.
    ("torn-transaction", f"{_SOURCE} ; 3 o x:1 ; 1f [s y=c@0 ; o x:2] ; 3 committed x:2 {_READ}", {2: G, 3: G, 4: G}),
    ("torn-transaction", f"{_SOURCE} ; 1f [s y=c@0 ; o x:2] ; 3 o x:2 ; 3 committed x:2 {_READ}", {2: G, 3: H, 4: G}),
    # A commit that failed explains no offsets.
    (
        "torn-transaction",
        f"{_SOURCE} ; 1 [s y=c@0 ; o x:2] ; 3f o x:2 ; 1 committed x:2 {_READ}",
        {2: G, 3: G, 4: G},
    ),
]

GROUPS_NEARLY = [
    # What was polled before it was revoked shows no resume, and only the first afterwards is one.
    ("commit-lost", "0 o x:10 ; 1 (p x:a@7 ; p x:b@10)", {0: G, 1: anew(1, 6000)}),
    ("commit-lost", "0 o x:10 ; 1 (p x:b@10 ; p x:a@7)", {0: G, 1: anew(0, 6000)}),
    ("commit-lost", "0 o x:10 ; 1 (p x:a@7 ; p)", {0: G, 1: anew(1)}),
    ("resume-skip", "2 p x:b@11 ; 0 o x:10 ; 1 (p x:c@12 ; p)", {1: G, 2: anew(1, 6000)}),
    (
        "commit-lost",
        "0 o x:10 ; 1 p ; 1 subscribe x ; 1 p x:a@7",
        {0: G, 1: assigned(5, 0, time=4000), 2: {"from": "start"}, 3: G},
    ),
    # Nothing is asked for a commit of nothing.
    ("zombie-commit", "1 p x:a@0 ; 0 o x:1", {0: _NEW, 1: _OLD | {"value": [["offsets", {}, "ok"]]}}),
    # A commit of unknown outcome may never have passed it; one that certainly did came later.
    (
        "group-skip",
        "2 p x:b@1 ; 0 (p x:a@0 ; p x:c@2) ; 0i o x:3 ; 4 p x:b@1 ; 5 o x:3 ; 1 committed x:3",
        dict.fromkeys(range(1, 6), G),
    ),
    ("group-skip", f"{_PASSED} ; 1 committed x:3 ; 1 committed x:none", {1: G, 2: G, 3: G}),
    (
        "eos-loss",
        f"{_SOURCE} ; 1 [s y=c@0 from x:0 ; o x:2] ; 1 p y:c@0 ; 1 committed x:2 ; 1 committed x:none {_READ}",
        {2: G, 4: G, 5: G},
    ),
    # Who resumes beyond a record that was deleted shows no offsets.
    (
        "torn-transaction",
        f"{_SOURCE} ; 0 delete x:1 ; 1f [s y=c@0 ; o x:1] ; 4 p x:b@1 {_READ}",
        {3: G, 4: assigned(5, 0, time=9000)},
    ),
    # Offsets may be there by another's commit of as many or more, be its outcome unknown.
    *(
        (
            "torn-transaction",
            f"{_SOURCE} ; 1f [s y=c@0 ; o x:1] ; {other} ; 4 committed x:{told} {_READ}",
            {2: G, 3: G, 4: G},
        )
        for other, told in (("5 o x:1", 1), ("5 o x:2", 2), ("5i o x:1", 1), ("5i [s u=d@? ; o x:1]", 1))
    ),
    (
        "torn-transaction",
        f"{_SOURCE} ; 1f [s y=c@0 ; o x:1] ; 3 o x:1 ; 4 p x:b@1 {_READ}",
        {2: G, 3: G, 4: assigned(5, 0, time=9000)},
    ),
    ("torn-transaction", f"{_SOURCE} ; 1f [s y=c@0 ; o x:2] ; 1 committed x:1 {_READ}", {2: G, 3: G}),
    ("torn-transaction", f"{_SOURCE} ; 1f [s y=c@0 ; o x:1] ; 4 p x:a@0 {_READ}", {2: G, 3: assigned(5, 0, time=9000)}),
    ("torn-transaction", f"{_SOURCE} ; 1i [s y=c@0 ; o x:1] ; 4 p y:c@0 ; 4 committed x:1 {_READ}", {2: G, 4: G}),
    # What never completed may have polled and committed anything, by the time that it was asked for.
    ("group-skip", f"5u (p ; o x:1) ; {_PASSED} ; 1 committed x:3", {0: G, 2: G, 3: G}),
    ("group-skip", f"5u p ; {_PASSED} ; 1 committed x:3", {0: G, 2: G, 3: G}),
    ("group-skip", "2 p x:b@1 ; 1 committed x:3 ; 5u p", {1: G, 2: G}),
    ("resume-skip", "5u (p ; o x:1) ; 2 p x:b@11 ; 0 o x:10 ; 1 p x:c@12", {0: G, 2: G, 3: assigned(5, 0, time=5000)}),
    ("torn-transaction", f"{_SOURCE} ; 6u (p ; o x:1) ; {_UNTOLD_TORN}", {2: G, 3: G, 4: H, 5: G}),
    ("torn-transaction", f"{_SOURCE} ; {_UNTOLD_TORN} ; 6u (p ; o x:1)", {2: G, 3: H, 4: G, 7: G}),
    # Of another group's offsets nothing follows.
    ("torn-transaction", f"{_SOURCE} ; 1f [s y=c@0 ; o x:1] ; 1 committed x:1 {_READ}", {2: G, 3: H}),
    # What was told before the transaction says nothing of it.
    (
        "torn-transaction",
        f"{_SOURCE} ; 1 committed x:1 ; 1 [s y=c@0 from x:0 ; o x:2] ; 1 p y:c@0 {_READ}",
        {2: G, 3: G},
    ),
    ("owner-overlap", "0 p x:a@0 ; 1 p x:a@0", {0: assigned(None, 0), 1: assigned(None, 0, member="m2")}),
    (
        "owner-overlap",
        "0 p x:a@0 ; 0 p x:b@1 ; 1 p x:a@0",
        {0: told("assigned", 4, 0), 1: told("revoked", 4, 0), 2: told("assigned", 4, 0, member="m2")},
    ),
    (
        "owner-overlap",
        "0 p x:a@0 ; 0 p x:b@1 ; 1 p x:a@0",
        {0: told("assigned", 4, 0), 1: told("lost", 4, 0), 2: told("assigned", 4, 0, member="m2")},
    ),
    (
        "owner-overlap",
        "0 p x:a@0 ; 1 p x:a@0",
        {0: told("assigned", 4, 0), 1: told("assigned", 4, 0, member="m2", group="h")},
    ),
    ("owner-overlap", "0 p x:a@0 ; 1 p y:b@0", {0: told("assigned", 4, 0), 1: told("assigned", 4, 1, member="m2")}),
    ("owner-overlap", "0 p x:a@0 ; 0 p x:b@1", {0: told("assigned", 4, 0), 1: told("assigned", 4, 0)}),
    ("zombie-commit", "1 p x:a@0 ; 0 o x:1", {0: _NEW, 1: _OLD | {"generation": 5}}),
    ("zombie-commit", "1 p x:a@0 ; 0 o x:1", {0: assigned(3, 0, member="m2"), 1: _OLD}),
    ("zombie-commit", "1 p x:a@0 ; 0 o x:1", {0: _NEW, 1: _OLD | {"member": "m2"}}),
    ("zombie-commit", "1 p x:a@0 ; 0 o x:1", {0: _NEW, 1: _OLD | {"generation": None}}),
    ("zombie-commit", "1 p x:a@0 ; 0 o x:1", {0: _NEW, 1: _OLD | {"group": "h"}}),
    ("zombie-commit", "1 p x:a@0 ; 0 o x:1", {0: told("revoked", 5, 0, member="m2"), 1: _OLD}),
    ("zombie-commit", "1 p x:a@0 ; 0i o x:1", {0: _NEW, 1: _OLD}),
    ("zombie-commit", "1 p x:a@0 ; 0f o x:1", {0: _NEW, 1: _OLD}),
    ("zombie-commit", "1 p x:a@0 ; 0i [s y=b@0 ; o x:1]", {0: _NEW, 1: _OLD}),
    ("commit-lost", "0 o x:10 ; 1 committed x:7", {0: H, 1: G}),
    ("commit-lost", "0 o y:10 ; 1 committed x:7", {0: G, 1: G}),
    ("commit-lost", "0 o x:10 ∥ 1 committed x:7", {0: G, 1: G}),
    ("commit-lost", "0i [s y=a@0 ; o x:10] ; 1 committed x:7", {0: G, 1: G}),
    ("commit-backwards", "0 committed x:7 ; 1 committed x:5", {0: G, 1: H}),
    ("commit-backwards", "0 committed y:7 ; 1 committed x:5", {0: G, 1: G}),
    ("commit-backwards", "0 committed x:7 ; 1 committed x:7", {0: G, 1: G}),
    ("commit-lost", "0 (p x:a@9 ; o x:10) ∥ 1 committed x:7", {0: G, 1: G}),
    ("commit-lost", "0 o x:10 ; 1 p x:b@10 ; 1 p x:a@7", {0: G, 1: assigned(5, 0, time=6000), 2: G}),
    ("resume-skip", "2 p x:b@11 ; 3 p x:d@11 ; 0 o x:10 ; 1 p x:c@12", {2: G, 3: assigned(5, 0)}),
    ("group-skip", f"{_PASSED} ; 1 committed x:3 ; 1 committed x:1", {1: G, 2: G, 3: G}),
    ("eos-duplicate", "0 [s y=a@0 from x:7 ; s y=b@1 from x:7] ; 1 p y:a@0", {0: G}),
    ("resume-skip", "2 p x:b@11 ; 0i o x:12 ; 1 p x:c@12", {1: G, 2: assigned(5, 0)}),
    ("resume-skip", "2 p x:b@11 ; 0 o x:10 ; 1 p x:c@12 ∥ 0 o x:12", {1: G, 2: assigned(5, 0), 3: G}),
    ("resume-skip", "2 p x:b@11 ; 3 ends x:12..13 ; 1 p x:c@12", {2: assigned(5, 0)}),
    ("group-skip", "2i p x:b@1 ; 0 (p x:a@0 ; p x:c@2 ; o x:3) ; 1 committed x:3", {1: G, 2: G}),
    ("group-skip", "2 p x:b@1 ; 0 (p x:a@0 ; p x:c@2 ; o x:1) ; 1 committed x:1", {1: G, 2: G}),
    ("eos-duplicate", "0 [s y=a@0 from x:7] ; 3 [s y=b@1 from x:7] ; 1 p y:a@0,b@1", {0: G, 1: H}),
    (
        "eos-loss",
        "0 (s x=a@0 ; s x=b@1) ; 2 p x:a@0 ; 5i p x:b@1 ; 1 [s y=c@0 from x:0 ; o x:2] ; 1 p y:c@0 ; 1 committed x:2"
        + _READ,
        {3: G, 5: G},
    ),
    ("eos-loss", f"{_SOURCE} ; 1 [s y=c@0 from x:0 ; o x:2] ; 1 p y:c@0 ; 1 committed x:2", {2: G, 4: G}),
    (
        "eos-loss",
        f"{_SOURCE} ; 1 [s y=c@0 from x:0 ; o x:2] ; 1 p y:c@0 ; 1 committed x:2 ; 3 ends x:0..2,y:0..9 ; 3 final x:2,y:2",
        {2: G, 4: G},
    ),
    (
        "eos-loss",
        f"{_SOURCE} ; 1 [s y=c@0 from x:0 ; o x:2] ; 1 p y:c@0 ; 1 committed x:2 ; 1 committed x:1 {_READ}",
        {2: G, 4: G, 5: G},
    ),
    ("eos-loss", f"{_SOURCE} ; 1 [s y=c@0 from x:0 ; o x:1] ; 1 p y:c@0 ; 1 committed x:2 {_READ}", {2: G, 4: H}),
    ("owner-overlap", "0 p x:a@0 ; 1 p x:a@0", {0: assigned(4, 0), 1: assigned(5, 0, member="m2")}),
    (
        "zombie-commit",
        "1 p x:a@0 ∥ 0 o x:1",
        {0: assigned(5, 0, member="m2", time=3500), 1: {**G, "member": "m1", "generation": 4}},
    ),
    ("commit-lost", "0i o x:10 ; 1 committed x:7", {0: G, 1: G}),
    ("commit-lost", "0 o x:10 ; 1 p x:a@10", {0: G, 1: assigned(5, 0, time=4000)}),
    ("commit-lost", "0 o x:10 ; 1 p x:a@7", {0: G, 1: assigned(5, 0, time=0)}),
    ("commit-backwards", "0 committed x:7 ∥ 1 committed x:5", {0: G, 1: G}),
    ("resume-skip", "0 o x:12 ; 2 p x:b@11 ; 1 p x:c@12", {0: G, 2: assigned(5, 0, time=5000)}),
    (
        "group-skip",
        "2 p x:b@1 ; 0 (p x:a@0 ; p x:c@2 ; o x:3) ; 1 committed x:3",
        {0: G, 1: G, 2: G},
    ),
    ("eos-duplicate", "0f [s y=a@0 from x:7] ; 0 [s y=b@1 from x:7] ; 1 p y:b@1", {0: G, 1: G}),
    ("eos-loss", f"{_SOURCE} ; 1 [s y=c@0 from x:0 ; o x:1] ; 1 p y:c@0 ; 1 committed x:1 {_READ}", {2: G, 4: G}),
    (
        "torn-transaction",
        f"{_SOURCE} ; 1 [s y=c@0 from x:0 ; o x:1] ; 1 p y:c@0 ; 1 committed x:1 {_READ}",
        {2: G, 4: G},
    ),
]


@pytest.mark.spec(
    "HIS-18", "HIS-19", "HIS-20", "HIS-21", "HIS-22", "HIS-23", "HIS-24", "HIS-25", "HIS-26", "HIS-27", "HIS-28",
    "HIS-29", "HIS-31", "HIS-34", "HIS-15", "HIS-16", "HIS-17",
)  # fmt: skip
@pytest.mark.parametrize(("kind", "text"), HAS)
@pytest.mark.spec("HIS-11")
def test_an_anomaly_is_found(kind: str, text: str) -> None:
    assert kind in kinds(text)


@pytest.mark.spec(
    "HIS-18", "HIS-19", "HIS-20", "HIS-21", "HIS-22", "HIS-23", "HIS-24", "HIS-25", "HIS-26", "HIS-27", "HIS-28",
    "HIS-29", "HIS-31", "HIS-34", "HIS-15", "HIS-16", "HIS-17",
)  # fmt: skip
@pytest.mark.parametrize(("kind", "text"), NEARLY)
@pytest.mark.spec("HIS-11")
def test_what_is_nearly_an_anomaly_is_none(kind: str, text: str) -> None:
    assert kind not in kinds(text)


@pytest.mark.spec("HIS-18", "HIS-14")
def test_what_was_sent_by_an_operation_that_never_completed_is_no_phantom() -> None:
    header, *entries = map(orjson.loads, lines("0i s x=z@? ; 1 p x:z@0"))
    (completed,) = [e for e in entries if (e["process"], e["type"]) == (0, "info")]
    entries.remove(completed)
    for index, entry in enumerate(entries):
        entry["index"] = index
    verdict = judge(read(map(orjson.dumps, (header, *entries))))
    assert verdict.kinds() == set()


@pytest.mark.spec("HIS-15")
def test_of_several_witnesses_of_a_value_the_first_is_told() -> None:
    for text, line in (("0 p x:Z@0 ; 1 p x:Z@0 ; 2 p x:Z@0", 1), ("0f [p x:Z@0] ; 1 p x:Z@0", 1)):
        (found,) = [anomaly for anomaly in judge(history(text)).anomalies if anomaly.kind == "phantom"]
        assert [finding.lines for finding in found.findings] == [(line,)]


@pytest.mark.spec("HIS-17")
def test_a_value_at_two_offsets_is_told_once_and_breaks_no_order() -> None:
    assert kinds("1 p x:a@1,b@2,a@3 ; 1 p x:c@4 ; 2 p x:c@4") == {"duplicate"}


COMPACTED: dict[str, Any] = {"cleanup": "compact"}  # 1, 17, 33 and -33 have one record key; 2 another

_READ_THREE = "; 3 ends x:0..3,y:0..3 ; 3 final x:3,y:3"

COMPACTION = [
    ("lost-write", "0 s x=1@0 ; 0 s x=17@1 ; 1 p x:17@1", False),
    ("lost-write", "0 s x=1@0 ; 0 s x=2@1 ; 1 p x:2@1", True),
    ("poll-skip", "0 p x:1@0 ; 1 p x:1@0,2@1,18@2 ; 0 p x:18@2", False),
    ("poll-skip", "0 p x:1@0 ; 1 p x:1@0,3@1,18@2 ; 0 p x:18@2", True),
    ("unseen", "0 s x=1@0 ; 0 s x=17@1 ; 1 p x:17@1 ; 1 ends x:0..2 ; 1 final x:2", False),
    ("compacted-lost", "0 s x=1@0 ; 0 s x=2@1 ; 2 p x:1@0,2@1 ; 1 p x:2@1 ; 1 ends x:0..2 ; 1 final x:2", True),
    ("compacted-lost", "0 s x=1@0 ; 0 s x=17@1 ; 2 p x:1@0 ; 1 p x:17@1 ; 1 ends x:0..2 ; 1 final x:2", False),
    ("tombstone-skip", "0 s x=1@0 ; 1 p x:1@0 ; 0 s x=-17@1 ; 0 s x=2@2 ; 1 p x:2@2", True),
    ("tombstone-skip", "0 s x=1@0 ; 1 p x:1@0 ; 0 s x=-17@1 ; 0 s x=2@2 ; 1 p x:-17@1,2@2", False),
    ("tombstone-skip", "0 s x=1@0 ; 0 s x=-17@1 ; 0 s x=2@2 ; 1 p x:2@2", False),  # it had no value of it
    ("tombstone-skip", "0 s x=1@0 ; 2 p x:1@0 ; 0 s x=-17@1 ; 0 s x=2@2 ; 1 p x:2@2", False),  # another had
    (
        "tombstone-skip",
        "0 s x=1@0 ; 1 p x:1@0 ; 2 p x:1@0 ; 0 s x=-17@1 ; 0 s x=2@2 ; 2 p x:-17@1 ; 1 p x:2@2",
        True,
    ),
    ("tombstone-skip", "0 s x=2@0 ; 1 p x:2@0 ; 0 s x=-17@1 ; 0 s x=18@2 ; 1 p x:18@2", False),
    ("tombstone-skip", "0 s x=1@0 ; 1 p x:1@0 ; 0 s x=2@1 ; 0 s x=-17@2 ; 1 p x:2@1", False),  # not beyond it
    ("tombstone-skip", "0 s x=1@0 ; 1 p x:1@0 ; 0 s x=-17@1 ; 0 s x=33@2 ; 1 p x:33@2", False),  # replaced itself
    ("tombstone-skip", "0 s x=1@0 ; 1 p x:1@0 ; 0 s x=-17@1 ; 0 s x=33@2 ; 0 s x=2@3 ; 1 p x:2@3", False),
    ("tombstone-skip", "0 s x=1@0 ; 1 p x:1@0 ; 0 s x=-17@1 ; 0 s x=2@2 ; 1 p x:2@2 ; 0 s x=33@3", True),  # later
    ("tombstone-skip", "0 s x=1@0 ; 1 p x:1@0 ; 0i s x=-17@1 ; 2 s x=2@2 ; 1 p x:2@2", False),
    ("unseen", "0 s x=1@0 ; 0 s x=2@1 ; 1 p x:2@1 ; 1 ends x:0..2 ; 1 final x:2", True),
    ("unseen", "0 s x=1@0 ; 0 s x=-17@1 ; 1 p x:-17@1 ; 1 ends x:0..2 ; 1 final x:2", False),
    ("lost-write", "0 s x=1@0 ; 0 s x=-17@1 ; 1 p x:-17@1", False),
    ("lost-write", "0 s x=-17@0 ; 0 s x=1@1 ; 1 p x:1@1", False),
    ("poll-skip", "0 p x:1@0 ; 1 p x:1@0,2@1,-18@2 ; 0 p x:-18@2", False),
    ("compacted-lost", "0 s x=1@0 ; 0 s x=-17@1 ; 0 s x=2@2 ; 1 p x:2@2 ; 1 ends x:0..3 ; 1 final x:3", False),
    ("compacted-lost", "0 s x=1@0 ; 0 s x=2@1 ; 2 p x:1@0,2@1 ; 1 p x:2@1 ; 1 final x:2", False),
    ("compacted-lost", "0 s x=1@0 ; 0 s x=2@1 ; 2 p x:1@0,2@1 ; 1 p x:2@1 ; 1 ends x:0..9 ; 1 final x:2", False),
    ("compacted-lost", "0 s x=1@0 ; 0 s x=2@1 ; 2 p x:1@0,2@1 ; 1 p x:2@1 ; 1 ends x:1..2 ; 1 final x:2", False),
    (
        "compacted-lost",
        "0f [s x=1@0] ; 2i p x:1@0 ; 3 s x=2@1 ; 1 p x:2@1 ; 1 ends x:0..2 ; 1 final x:2",
        False,
    ),
    # A copy of its own replaces no value.
    ("unseen", "0 s x=1@0 ; 2i p x:1@1 ; 1 ends x:0..2 ; 1 final x:2", True),
    # What was missed is missing from the read of who said final of that key, whoever read it and another key's end.
    (
        "compacted-lost",
        "0 s x=1@0 ; 0 s x=2@1 ; 2 p x:1@0,2@1 ; 2 final y:0 ; 1 p x:2@1 ; 1 ends x:0..2 ; 1 final x:2",
        True,
    ),
    ("compacted-lost", "0 s x=0@0 ; 0 s x=2@1 ; 2 p x:0@0,2@1 ; 1 p x:2@1 ; 1 ends x:0..2 ; 1 final x:2", True),
    ("compacted-lost", "0 s x=1@0 ; 3 s x=18@0 ; 2 p x:1@0 ; 1 p x:18@0 ; 1 ends x:0..1 ; 1 final x:1", False),
    ("compacted-lost", "0 s y=1@0 ; 2i p x:1@0 ; 0 s x=2@1 ; 1 p x:2@1 ; 1 ends x:0..2 ; 1 final x:2", False),
    ("tombstone-skip", "0 s x=1@0 ; 0 s x=-17@1 ; 0 s x=2@2 ; 1 p x:1@0,2@2", True),  # in one poll, too
    # A part of a transaction may have been compacted away.
    ("torn-transaction", f"0 [s x=1@0 ; s y=2@0] ; 0 s x=17@2 ; 1 p y:2@0 x:17@2 {_READ_THREE}", False),
    ("torn-transaction", f"0 [s x=1@0 ; s y=2@0] ; 0 s x=-17@2 ; 1 p y:2@0 x:-17@2 {_READ_THREE}", False),
    ("torn-transaction", f"0 [s x=1@0 ; s y=2@0] ; 0 s x=18@2 ; 1 p y:2@0 x:18@2 {_READ_THREE}", True),
    ("torn-transaction", f"0 [s x=1@2 ; s y=2@0] ; 0 s x=17@0 ; 1 p y:2@0 x:17@0 {_READ_THREE}", True),
    # And of one whose place nobody was told nothing is known.
    ("torn-transaction", f"0 [s x=1@? ; s y=2@0] ; 1 p y:2@0 {_READ_THREE}", False),
    ("tombstone-skip", "0 s x=1@0 ; 1 p x:1@0 ; 0 s x=-17@1 ; 0 s x=2@2 ; 1 assign x ; 1 p x:2@2", True),
    ("tombstone-skip", "0 s x=1@0 ; 1 p x:1@0 ; 0 s x=-17@1 ; 0 s x=2@2 ; 1f assign y ; 1 p x:2@2", True),
    ("tombstone-skip", "0 s x=1@0 ; 1 p x:1@0 ; 0 s x=-17@1 ; 0 s x=2@2 ; 1 assign y ; 1 assign x ; 1 p x:2@2", False),
    ("tombstone-skip", "0 s x=1@0 ; 1 p x:1@0 ; 0 s x=-17@1 ; 0 s x=2@2 ; 1f [p x:2@2] ; 1 p x:-17@1", True),
    ("tombstone-skip", "0 s x=1@0 ; 1 p x:1@0 ; 0 s x=-17@1 ; 0 s x=2@2 ; 1 p x:2@2 ; 2 p x:Q@3", False),  # Q is 81
]


@pytest.mark.spec("HIS-30", "HIS-21", "HIS-27")
@pytest.mark.parametrize(("kind", "text", "found"), COMPACTION)
def test_compaction_removes_what_is_replaced_and_nothing_else(kind: str, text: str, found: bool) -> None:
    assert (kind in kinds(text, **COMPACTED)) == found


@pytest.mark.spec("HIS-30")
def test_of_a_topic_that_is_not_compacted_nothing_is_forgiven_and_nothing_more_is_found() -> None:
    for kind, text in (
        ("lost-write", "0 s x=1@0 ; 0 s x=17@1 ; 1 p x:17@1"),
        ("poll-skip", "0 p x:1@0 ; 1 p x:1@0,2@1,18@2 ; 0 p x:18@2"),
        ("unseen", "0 s x=1@0 ; 0 s x=17@1 ; 1 p x:17@1 ; 1 ends x:0..2 ; 1 final x:2"),
    ):
        assert kind in kinds(text) and kind not in kinds(text, **COMPACTED)
    for kind, text in (
        ("compacted-lost", "0 s x=1@0 ; 0 s x=2@1 ; 2 p x:1@0,2@1 ; 1 p x:2@1 ; 1 ends x:0..2 ; 1 final x:2"),
        ("tombstone-skip", "0 s x=1@0 ; 1 p x:1@0 ; 0 s x=-17@1 ; 0 s x=2@2 ; 1 p x:2@2"),
    ):
        assert kind not in kinds(text) and kind in kinds(text, **COMPACTED)


@pytest.mark.spec("HIS-30")
@pytest.mark.parametrize(("keys", "found"), [((), True), ((0,), False), ((1,), True)])
def test_what_another_member_may_have_read_meanwhile_is_not_skipped(keys: tuple[int, ...], found: bool) -> None:
    text = "0 s x=1@0 ; 1 p x:1@0 ; 0 s x=-17@1 ; 0 s x=2@2 ; 1 p x:2@2"
    extras = {4: assigned(5, *keys)} if keys else {}
    assert ("tombstone-skip" in kinds(text, extras, **COMPACTED)) == found


@pytest.mark.spec("HIS-39", "HIS-40")
@pytest.mark.parametrize(("newer", "found"), [("17", False), ("18", True)])
def test_a_source_that_compaction_has_removed_needs_no_output(newer: str, found: bool) -> None:
    text = f"0 s x=1@0 ; 0 s x={newer}@1 ; 3 p x:1@0 ; 1 [s y=3@0 from x:1 ; o x:2] ; 1 p x:{newer}@1 ; 1 p y:3@0"
    text += " ; 1 committed x:2 ; 3 ends x:0..2,y:0..1 ; 3 final x:2,y:1"
    assert ("eos-loss" in kinds(text, {3: G, 6: G}, **COMPACTED)) == found


@pytest.mark.spec("HIS-39", "HIS-40")
@pytest.mark.parametrize(("newer", "found"), [("19", False), ("20", True)])
def test_an_output_that_compaction_has_removed_may_have_been_there(newer: str, found: bool) -> None:
    text = f"0 s x=1@0 ; 3 p x:1@0 ; 1 [s y=3@0 from x:0 ; o x:1] ; 0 s y={newer}@1 ; 1 p y:{newer}@1"
    text += " ; 1 committed x:1 ; 3 ends x:0..1,y:0..2 ; 3 final x:1,y:2"
    assert ("eos-loss" in kinds(text, {2: G, 5: G}, **COMPACTED)) == found


@pytest.mark.spec("HIS-30", "HIS-8")
def test_a_tombstone_is_acknowledged_by_its_own_outcome() -> None:
    text = "0 s x=1@0 ; 1 p x:1@0 ; 0i (s x=-17@1 ; s y=3@?) ; 2 s x=2@2 ; 1 p x:2@2"
    for outcome, found in (("ok", True), ("info", False)):
        told = [["send", 0, [1, -17], outcome], ["send", 1, [None, 3], "info"]]
        assert ("tombstone-skip" in kinds(text, {2: {"value": told}}, **COMPACTED)) == found


@pytest.mark.spec("HIS-30")
def test_a_tombstone_may_be_gone_when_its_time_is_over() -> None:
    text = "0 s x=1@0 ; 1 p x:1@0 ; 0 s x=-17@1 ; 0 s x=2@2 ; 1 p x:2@2"
    assert "tombstone-skip" not in kinds(text, **COMPACTED, delete_retention_ms=0)
    day_ns = 86_400_000 * 1_000_000  # the default, from the tombstone's acknowledgement to the answer of the poll
    header, *entries = map(orjson.loads, lines(text, **COMPACTED))
    acknowledged = next(e["time"] for e in entries if e["type"] == "ok" and e["value"][0][1:] == [0, [1, -17], "ok"])
    for past, found in ((-1, True), (0, False)):
        entries[-1]["time"] = acknowledged + day_ns + past
        assert ("tombstone-skip" in judge(read(map(orjson.dumps, (header, *entries)))).kinds()) == found


@pytest.mark.spec("HIS-11", "HIS-35")
@pytest.mark.parametrize(
    ("client", "between", "overlaps"),
    [
        ("confluent-kafka", (), False),
        ("confluent-kafka", ("revoked",), True),
        ("confluent-kafka", ("lost",), True),
        ("simulated", (), True),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_an_assignment_that_librdkafka_replaced_by_itself_is_of_no_known_generation(
    client: str, between: tuple[str, ...], overlaps: bool, at_once: bool
) -> None:
    """Its application is told of it when it has joined again, and of no loss; ``at_once``: of both in one operation."""
    heard = [(0, "assigned", 0), *((0, what, 1) for what in between), (0 if at_once else 1, "assigned", 1)]
    extras: dict[int, dict[str, Any]] = {0: {**G, "member": "m1"}, 1: {**G, "member": "m1"}}
    for time, (place, what, key) in enumerate(heard):
        event = {"what": what, "keys": [key], "generation": 4, "time": 1000 + time}
        extras[place].setdefault("rebalance", []).append(event)
    extras[2] = told("assigned", 4, 0, member="m2")
    found = judge(history("0 p x:a@0 ; 0 p y:b@0 ; 1 p x:a@0", extras, client=client)).kinds()
    assert ("owner-overlap" in found) == overlaps


@pytest.mark.spec("HIS-28", "HIS-37")
@pytest.mark.parametrize(
    ("client", "between", "again", "found"),
    [
        ("confluent-kafka", (), True, False),
        ("confluent-kafka", (), False, True),
        ("confluent-kafka", ("revoked",), True, True),
        ("simulated", (), True, True),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_what_was_committed_when_librdkafka_had_joined_again_by_itself_may_lie_beyond_its_owner(
    client: str, between: tuple[str, ...], again: bool, found: bool, at_once: bool
) -> None:
    """Its new generation has given the key to m2, who commits less; ``at_once``: it hears so in that operation."""
    extras: dict[int, dict[str, Any]] = {place: {**G, "member": "m1"} for place in (0, 1, 2)}
    heard = [(0, "assigned", 0), *((1 if at_once else 2, what, 0) for what in between)]
    heard += [(1 if at_once else 2, "assigned", 2)] if again else []
    for time, (place, what, key) in enumerate(heard):
        event = {"what": what, "keys": [key], "generation": 4, "time": 1000 + time, "part": 2 if at_once else 0}
        extras[place].setdefault("rebalance", []).append(event)
    extras |= {3: told("assigned", 4, 0, member="m2"), 4: {**G, "member": "m2"}, 5: {**G}, 6: {**G}}
    text = "0 p x:a@7 ; 0 [s y=c@0 ; o x:8] ; 0 p y:c@0 ; 1 p x:a@7 ; 1 o x:5 ; 3 committed x:5 ; 3 committed x:5"
    kinds_ = judge(history(f"{text} {_READ}", extras, client=client)).kinds()
    assert ("commit-lost" in kinds_) == found
    assert ("torn-transaction" in kinds_) == found


@pytest.mark.spec("HIS-20")
@pytest.mark.parametrize(
    ("batches", "label"),
    [
        ([[1, 1, -1, -1, -1, False, False], [3, 3, -1, -1, -1, False, False]], "no producer id"),
        ([[1, 1, 7, 0, 4, False, False], [3, 3, -1, -1, -1, False, False]], "no producer id"),
        ([[1, 1, 7, 0, 4, False, False], [3, 3, 8, 0, 0, False, False]], "another producer"),
        ([[0, 1, 7, 0, 4, False, False], [2, 3, 7, 1, 0, False, False]], "renumbered"),
        ([[0, 1, 7, 0, 4, True, False], [2, 3, 7, 1, 0, True, False]], "renumbered in a transaction"),
        ([[0, 1, 7, 0, 4, False, False], [2, 3, 7, 1, 0, True, False]], "renumbered in a transaction"),
        ([[1, 1, 7, 0, 4, True, False], [3, 3, 7, 0, 4, True, False]], "same epoch"),
        ([[1, 1, 7, 0, 4, False, False], [3, 3, 7, 0, 4, False, False]], "same epoch"),
        ([[1, 1, 7, 1, 4, False, False], [3, 3, 7, 0, 4, False, False]], "same epoch"),
        ([[1, 1, 7, 0, 4, False, False]], "unlabelled"),
    ],
)
def test_the_batches_tell_whose_fault_a_duplicate_is(batches: list[list[Any]], label: str) -> None:
    text = "0 s x=a@1 ; 1 p x:b@2,a@3 ; 1 ends x:0..4"
    written = lines(text, {2: {"f": "batches", "value": {1: [], 0: batches}}})
    written[-2] = written[-2].replace(b'"f":"ends"', b'"f":"batches"')
    (found,) = [a for a in judge(read(written)).anomalies if a.kind == "duplicate"]
    assert [finding.label for finding in found.findings] == [label]


@pytest.mark.spec("HIS-20", "HIS-30")
@pytest.mark.parametrize(
    ("polled", "batches", "cleanup", "label"),
    [
        ("x:b@2,a@3", [[3, 3, 7, 1, 0, False, False]], "compact", "renumbered"),
        ("x:b@2,a@3", [[3, 3, 7, 1, 0, True, False]], "compact", "renumbered in a transaction"),
        ("x:b@2,a@3", [[3, 3, 7, 1, 0, False, False]], "delete", "unlabelled"),
        ("x:b@2,a@3", [[3, 3, 7, 0, 0, False, False]], "compact", "unlabelled"),
        ("x:b@2,a@3", [[3, 3, 7, 1, 1, False, False]], "compact", "unlabelled"),
        ("x:b@2,a@3", [[3, 3, -1, -1, -1, False, False]], "compact", "unlabelled"),
        ("x:b@2,a@3", [[1, 1, 7, 1, 0, False, False]], "compact", "unlabelled"),
        ("x:b@2,a@3", [], "compact", "unlabelled"),
        ("x:a@2,a@3", [[3, 3, 7, 1, 0, False, False]], "compact", "unlabelled"),  # two are gone
    ],
)
def test_of_a_copy_that_was_compacted_away_the_other_one_tells_if_it_begins_an_epoch(
    polled: str, batches: list[list[Any]], cleanup: str, label: str
) -> None:
    text = f"0 s x=a@1 ; 1 p {polled} ; 1 ends x:0..4"
    written = lines(text, {2: {"f": "batches", "value": {0: batches}}}, cleanup=cleanup)
    written[-2] = written[-2].replace(b'"f":"ends"', b'"f":"batches"')
    (found,) = [a for a in judge(read(written)).anomalies if a.kind == "duplicate"]
    assert [finding.label for finding in found.findings] == [label]


@pytest.mark.spec("HIS-20", "HIS-40")
@pytest.mark.parametrize(("told", "allowed"), [("ok", True), ("fail", False)])
def test_batches_that_were_not_told_excuse_no_duplicate(told: str, allowed: bool) -> None:
    """Of an idempotent run: nobody knows whose fault it was."""
    renumbered = [[1, 1, 7, 0, 4, False, False], [3, 3, 7, 1, 4, False, False]]
    batches = {2: {"type": told, "f": "batches", "value": {0: renumbered}}}
    written = lines("0 s x=a@1 ; 1 p x:b@2,a@3 ; 1 ends x:0..4", batches, idempotent=True, client="confluent-kafka")
    written[-2] = written[-2].replace(b'"f":"ends"', b'"f":"batches"')
    assert ({anomaly.kind for anomaly in judge(read(written)).unallowed} == set()) == allowed


@pytest.mark.spec("HIS-29", "HIS-40")
@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("1 assign x ; 0 delete x:5 ; 1 p x:a@4", "fetched ahead"),
        ("1 assign x ; 0 delete x:5 ∥ 1 p x:a@2 ; 1 p x:b@4", "fetched ahead"),
        ("0 delete x:5 ; 1 assign x ; 1 p x:a@4", ""),
        ("1 assign x ; 0 delete x:5 ; 1 assign x y ; 1 p x:a@4", ""),
        ("1 assign x ; 0 delete x:5 ; 2 assign x ; 1 p x:a@4", "fetched ahead"),
        ("1 assign x ; 0 delete x:5 ; 1 ends x:3..9", ""),
        ("1 assign x ; 0 delete x:5 ; 1 assign y ; 1 p x:a@4", "fetched ahead"),
        ("1 subscribe x ; 0 delete x:5 ; 1 subscribe x ; 1 p x:a@4", "fetched ahead"),  # its group has not told it yet
        ("1 assign x ; 0 delete x:5 ; 1 p x:b@6 ; 1 p x:a@4", ""),
        ("1 assign x ; 0 delete x:5 ; 1 (p x:b@6 ; p x:a@4)", ""),
        ("1 assign x ; 0 delete x:5 ∥ 1 p x:b@6 ; 1 p x:a@4", "fetched ahead"),
        ("1 assign x ; 0 delete x:5 ; 2 p x:b@6 ; 1 p x:a@4", "fetched ahead"),
        ("1 assign x ; 0 delete x:5 ; 1 p y:b@6 ; 1 p x:a@4", "fetched ahead"),
    ],
)
def test_who_had_its_keys_before_records_were_deleted_may_have_fetched_them_ahead(text: str, label: str) -> None:
    (found,) = [a for a in judge(history(text)).anomalies if a.kind == "start-backwards"]
    assert [finding.label for finding in found.findings] == [label]


@pytest.mark.spec("HIS-29", "HIS-40")
@pytest.mark.parametrize(
    ("poll", "longer_ns", "label"),
    [("1 p", 0, "fetched ahead"), ("1 p", 1, ""), ("2 p", 1, "fetched ahead"), ("1f p", 1, "fetched ahead")],
)
def test_who_was_given_nothing_long_after_records_were_deleted_has_nothing_of_before(
    poll: str, longer_ns: int, label: str
) -> None:
    """A record that was on its way when the answer came is given out later: so an empty poll at once proves nothing."""
    seen = history(f"1 assign x ; 0 delete x:5 ; {poll} ; 1 p x:a@4")
    delete, empty = (o for o in seen.operations if o.f == "delete" or (o.f == "poll" and not o.polls[0].runs))
    empty.time_invoked = delete.time + UNDER_WAY_NS - 1 + longer_ns
    (found,) = [a for a in judge(seen).anomalies if a.kind == "start-backwards"]
    assert [finding.label for finding in found.findings] == [label]


@pytest.mark.spec("HIS-29", "HIS-40", "HIS-11")
@pytest.mark.parametrize(
    ("keys", "time", "part", "label"),
    [
        ([0], 4500, 0, "fetched ahead"),  # before the answer, though told in an operation that was invoked after it
        ([0], 5500, 0, ""),
        ([1], 5500, 0, "fetched ahead"),
        ([0], 5500, 1, "fetched ahead"),  # when it had been given it
    ],
)
def test_a_member_begins_with_a_key_when_it_is_assigned_it(keys: list[int], time: int, part: int, label: str) -> None:
    event = {"what": "assigned", "keys": keys, "generation": 2, "time": time, "part": part}
    told = {2: {"rebalance": [event], "group": "g", "member": "m"}}
    seen = history("1 subscribe x ; 0 delete x:5 ; 1 (p x:a@4 ; p)", told)
    (found,) = [a for a in judge(seen).anomalies if a.kind == "start-backwards"]
    assert [finding.label for finding in found.findings] == [label]


@pytest.mark.spec("HIS-20")
def test_one_copy_in_an_epoch_that_was_there_before_is_the_brokers_fault() -> None:
    batches = [[1, 1, 7, 0, 4, False, False], [3, 3, 7, 1, 4, False, False], [5, 5, 7, 1, 4, False, False]]
    assert _label(batches, [1, 3, 5], compacted=False) == "same epoch"


@pytest.mark.spec("HIS-23")
@pytest.mark.parametrize(("ended_at", "found"), [(2500, True), (1500, False), (500, False)])
def test_a_value_polled_before_its_commit_was_asked_for_is_an_early_read(ended_at: int, found: bool) -> None:
    written = lines("0 [s x=a@0] ∥ 1 p x:a@0")  # invoked at 0 and 1000; the poll ends first
    first, *operations = map(orjson.loads, written)
    operations[2], operations[3] = operations[3], operations[2] | {"ended_at": ended_at}
    for index, entry in enumerate(operations):
        entry |= {"index": index, "time": index * 1000}
    assert ("early-read" in judge(read(map(orjson.dumps, (first, *operations)))).kinds()) == found


@pytest.mark.spec("HIS-33", "HIS-34")
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("G1c", "0 [p y:b@0 ; s x=a@0] ∥ 1 [p x:a@0 ; s y=b@0]"),
        ("G0", "0 [s x=a@0 ; s y=c@1] ∥ 1 [s x=b@1 ; s y=d@0]"),
        ("G1c-ww", "0 [s x=a@0 ; p y:d@0] ∥ 1 [s x=b@1 ; s y=d@0]"),
    ],
)
def test_transactions_that_ask_for_their_commits_at_once_may_be_on_a_cycle(kind: str, text: str) -> None:
    assert kind in kinds(text, {0: {"ended_at": 1500}, 1: {"ended_at": 1500}})


@pytest.mark.spec("HIS-23")
@pytest.mark.parametrize("run", ["x:a@1,b@0", "x:b@0,a@1"])
def test_an_early_read_is_found_wherever_it_lies_in_a_run(run: str) -> None:
    text = f"0 s x=b@0 ; 1 p {run} ∥ 0 [s x=a@1]"
    assert "early-read" in kinds(text, {2: {"ended_at": 4500}})


@pytest.mark.spec("HIS-23")
def test_a_transaction_that_polls_its_own_value_may_read_anothers_too_early_as_well() -> None:
    text = "0 [s x=a@0 ; p x:a@0,b@1] ∥ 1 [s x=b@1]"
    assert kinds(text, {1: {"ended_at": 2500}}) >= {"precommitted-read", "early-read"}


@pytest.mark.spec("HIS-24", "HIS-25")
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("nonmonotonic-poll", "0 p x:a@1,b@2 ; 0 p x:b@2"),
        ("int-nonmonotonic-poll", "0 p y:c@0 ; 0 [p x:a@1 ; p x:a@1]"),
        ("int-poll-skip", "1 p x:b@2 ; 0 [p x:a@1 ; p x:c@3]"),
    ],
)
def test_a_rebalance_of_another_key_forgets_and_exempts_nothing(kind: str, text: str) -> None:
    assert kind in kinds(text, {1: assigned(5, 1)})


@pytest.mark.spec("HIS-24", "HIS-11")
@pytest.mark.parametrize("part", [0, 1])
def test_what_is_polled_after_a_rebalance_in_its_operation_is_a_position(part: int) -> None:
    assert "nonmonotonic-poll" in kinds("0 [p ; p x:a@1,b@2] ; 0 p x:a@1", {0: anew(part)})


@pytest.mark.spec("HIS-29")
def test_ends_of_other_isolations_are_compared_with_their_own_alone() -> None:
    asked = {0: {"isolation": "read_uncommitted"}, 1: {"isolation": "read_committed"}}
    text = "0 ends x:0..9 ; 1 ends x:0..7"
    assert "end-backwards" not in kinds(text, asked)
    assert "end-backwards" in kinds(f"{text} ; 2 ends x:0..8", {**asked, 2: asked[0]})


@pytest.mark.spec("HIS-27")
@pytest.mark.parametrize("outcome", ["ok", "info"])
def test_a_transactions_sends_are_acknowledged_by_its_outcome_alone(outcome: str) -> None:
    for transaction, found in (("ok", True), ("info", False)):
        text = f"0{'i' if transaction == 'info' else ''} [s x=a@9] ; 1 ends x:0..10 ; 1 final x:10"
        assert ("unseen" in kinds(text, {0: {"value": [["send", 0, [9, 97], outcome]]}})) == found


CYCLES = {kind for each in PASSES[:2] for kind, _ in each.kinds}


@pytest.mark.spec("HIS-34")
@pytest.mark.parametrize(("kind", "text"), [one for one in HAS if one[0] in CYCLES])
def test_a_cycle_is_told_by_its_strongest_name_alone(kind: str, text: str) -> None:
    (of_its_pass,) = [{name for name, _ in each.kinds} for each in PASSES if kind in dict(each.kinds)]
    assert kinds(text) & of_its_pass == {kind}


@pytest.mark.spec("HIS-24", "HIS-25", "HIS-11")
@pytest.mark.parametrize(
    ("kind", "text", "extras"),
    [
        ("nonmonotonic-poll", "0 p x:a@1,b@2 ; 0 subscribe x ; 0 p x:a@1", {1: {"from": "start"}}),
        ("nonmonotonic-poll", "0 p x:a@1,b@2 ; 0 assign x ; 0 p x:a@1", {1: {"from": "start"}}),
        ("nonmonotonic-poll", "0 p x:a@1,b@2 ; 0 p x:b@2", {1: assigned(5, 0)}),
        ("nonmonotonic-poll", "0 p x:a@1,b@2 ; 0 p y:c@0 ; 0 p x:b@2", {1: assigned(5, 0)}),
        ("int-nonmonotonic-poll", "0 [p x:a@1 ; p x:a@1]", {0: assigned(5, 0)}),
        ("int-nonmonotonic-poll", "0 p x:c@3,a@1", {0: assigned(5, 0)}),
        ("int-poll-skip", "1 p x:b@2 ; 0 [p x:a@1 ; p x:c@3]", {1: revoked(0)}),
        ("poll-skip", "0 p x:a@1,b@2 ; 1 p x:c@3 ; 0 p x:d@4", {2: revoked(0)}),
        ("poll-skip", "0 p x:a@1,b@2 ; 1 p x:c@3 ; 0 p x:d@4", {2: told("lost", 5, 0)}),
        ("nonmonotonic-poll", "0 p x:a@1,b@2 ; 0 p x:b@2", {1: told("lost", 5, 0)}),
        ("int-nonmonotonic-poll", "0 [p x:a@1 ; p x:a@1]", {0: told("lost", 5, 0)}),
        ("int-nonmonotonic-poll", "0 p x:c@3,a@1", {0: revoked(0)}),
        ("int-poll-skip", "1 p x:b@2 ; 0 [p x:a@1 ; p x:c@3]", {1: told("lost", 5, 0)}),
        ("int-poll-skip", "1 p x:b@2 ; 0 p x:a@1,c@3", {1: told("lost", 5, 0)}),
        ("nonmonotonic-poll", "0 p x:a@1,b@2 ; 0 assign x ; 0 p x:b@2", {1: revoked(0)}),  # told by what came next
        ("nonmonotonic-poll", "0 [p x:a@1,b@2 ; p] ; 0 p x:a@1", {0: anew(1)}),  # told behind what was polled
        ("poll-skip", "1 p x:b@2 ; 0 [p x:a@1 ; p] ; 0 p x:c@3", {1: anew(1)}),
    ],
)
def test_a_start_anew_and_a_rebalance_forget_the_position(
    kind: str, text: str, extras: Mapping[int, Mapping[str, Any]]
) -> None:
    assert kind not in kinds(text, extras)


@pytest.mark.spec("HIS-16")
def test_without_a_transaction_each_send_is_proven_by_its_own_outcome() -> None:
    told = [["send", 0, [0, 97], "ok"], ["send", 1, [None, 98], "info"]]
    assert "lost-write" in kinds("0i (s x=a@0 ; s y=b@?) ; 2 p x:c@2", {0: {"value": told}})


@pytest.mark.spec("HIS-24", "HIS-26")
@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("poll-skip", "0 p x:a@1 ; 1 p x:b@2,c@3 ; 0 p x:d@4", ["process 0 got 100 of key 0 after 97, not 98, 99"]),
        (
            "nonmonotonic-send",
            "0 s x=a@4 ; 0 s x=b@2 ; 0 s x=c@3",
            [f"process 0 sent {value} to key 0 after 97, but it lies before" for value in (98, 99)],
        ),
    ],
)
def test_a_finding_names_the_values_at_odds(kind: str, text: str, said: list[str]) -> None:
    (found,) = [anomaly for anomaly in judge(history(text)).anomalies if anomaly.kind == kind]
    assert [finding.text for finding in found.findings] == said


@pytest.mark.spec("HIS-35", "HIS-36", "HIS-37", "HIS-38", "HIS-39", "HIS-28", "HIS-11")
@pytest.mark.parametrize(("kind", "text", "extras"), GROUPS_HAVE)
def test_an_anomaly_of_a_group_is_found(kind: str, text: str, extras: Mapping[int, Mapping[str, Any]]) -> None:
    assert kind in kinds(text, extras)


@pytest.mark.spec("HIS-35", "HIS-36", "HIS-37", "HIS-38", "HIS-39", "HIS-28", "HIS-11")
@pytest.mark.parametrize(("kind", "text", "extras"), GROUPS_NEARLY)
def test_what_is_nearly_an_anomaly_of_a_group_is_none(
    kind: str, text: str, extras: Mapping[int, Mapping[str, Any]]
) -> None:
    assert kind not in kinds(text, extras)
