"""Histories written by hand, in a notation of a line.

``0 s x=a@3``: process 0 sent a to key x, acknowledged at 3 (``@?``: place unknown), `` from y:5``
made from offset 5 of key y; ``0 p x:a@3,b@4``: it polled;
``[...]`` a transaction, ``(...)`` several micro-operations without one, parted by ``;``. ``0i`` and ``0f``: info and fail,
``0u``: it never completed, else ok. Between operations ``;`` is then, ``∥`` at the same time. Further: ``0 o x:5``
commits offsets; ``0 assign x y``, ``0 subscribe x``; ``0 ends x:0..9``, ``0 final x:9``, ``0 delete x:4``,
``0 committed x:7`` (``x:none``).
A value that is polled and not shown as sent comes from an earlier send of unknown outcome, unless it is an upper-case
letter, which nobody sent.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from tests.histories.history import History, read
from tests.histories.writer import DELETE_RETENTION_MS, Header

HEADER: Final[Header] = {
    "seed": 1,
    "source": "ours",
    "version": "",
    "brokers": 3,
    "client": "",
    "options": {
        "acks": "all",
        "idempotent": True,
        "in_flight": 5,
        "transactional": True,
        "isolation": "read_committed",
        "via": "assign",
        "reset": "earliest",
        "min_isr": 2,
        "unclean": False,
        "cleanup": "delete",
        "delete_retention_ms": DELETE_RETENTION_MS,
        "client": "",
        "faults": False,
    },
}
"""A header for what is written by a HistoryWriter."""
_STEP = 1000  # ns from line to line
_NEVER = ""  # the type of what never completed


def key(name: str) -> int:
    return "xyzuvw".index(name)


def value(name: str) -> int:
    return int(name) if name.lstrip("-").isdigit() else ord(name)


def history(text: str, extras: Mapping[int, Mapping[str, Any]] | None = None, **options: Any) -> History:
    """Read a history in the notation; ``extras``: what else the completion of the nth operation says, from 0 on."""
    return read(lines(text, extras, **options))


def lines(text: str, extras: Mapping[int, Mapping[str, Any]] | None = None, **options: Any) -> list[bytes]:
    header = {"history": 1, "seed": 0, "source": "ours", "version": "", "brokers": 3, "client": "", "options": options}
    entries: list[dict[str, Any]] = []
    steps = [[_operation(one) for one in _split(step, "∥")] for step in _split(text, ";")]
    unsent = _unsent([op for step in steps for op in step])
    steps = [[(900 + n, "info", "send", [["send", k, v]], [["send", k, [None, v], "info"]])
              for n, (k, v) in enumerate(unsent)], *steps]  # fmt: skip
    number = -len(unsent)
    for step in steps:
        for place, (process, kind, f, asked, _) in enumerate(step):
            more = (extras or {}).get(number + place, {}) if kind == _NEVER else {}
            entries.append({"process": process, "type": "invoke", "f": f, "value": asked, **more})
        for process, kind, f, _, told in step:
            more = (extras or {}).get(number, {})
            if kind != _NEVER:
                entries.append({"process": process, "type": kind, "f": f, "value": told, **more})
            number += 1
    for index, entry in enumerate(entries):
        entry |= {"index": index, "time": index * _STEP}
    return [orjson.dumps(entry, option=orjson.OPT_NON_STR_KEYS) + b"\n" for entry in (header, *entries)]


def _split(text: str, at: str) -> list[str]:
    """Split where no bracket is open."""
    pieces, depth = [""], 0
    for letter in text:
        depth += (letter in "[(") - (letter in "])")
        if letter == at and not depth:
            pieces.append("")
        else:
            pieces[-1] += letter
    return [piece.strip() for piece in pieces]


_Written = tuple[int, str, str, Any, Any]  # process, type, f, value asked, value told


def _operation(text: str) -> _Written:
    match = re.fullmatch(r"(\d+)([ifu]?) (.*)", text, re.DOTALL)
    assert match, text
    process, kind, body = int(match[1]), {"": "ok", "i": "info", "f": "fail", "u": _NEVER}[match[2]], match[3].strip()
    word, _, rest = body.partition(" ")
    if word in ("assign", "subscribe"):
        keys = [key(name) for name in rest.split()]
        return process, kind, word, keys, keys
    if word in ("ends", "final", "delete", "committed"):
        facts = {}
        for name, said in (pair.split(":") for pair in rest.split(",")):
            facts[key(name)] = [int(end) for end in said.split("..")] if ".." in said else _number(said)
        return process, kind, word, facts, facts
    several = body[1:-1] if body[0] in "[(" else body
    parts = [_part(one, kind) for one in _split(several, ";")]
    names = {asked[0] for asked, _ in parts}
    f = {frozenset({"send"}): "send", frozenset({"offsets"}): "commit"}.get(frozenset(names))
    f = "txn" if body[0] == "[" else f or ("poll" if "send" not in names else "mixed")
    return process, kind, f, [asked for asked, _ in parts], [told for _, told in parts]


def _number(said: str) -> int | None:
    return None if said in ("none", "?") else int(said)


def _part(text: str, kind: str) -> tuple[list[Any], list[Any]]:
    word, _, rest = text.partition(" ")
    if word == "s":
        rest, _, source = rest.partition(" from ")
        where, what, offset = re.split("[=@]", rest)
        made_from = [[key(source[0]), int(source[2:])]] if source else []
        asked = ["send", key(where), value(what), *made_from]
        return asked, ["send", key(where), [_number(offset), value(what)], kind, *made_from]
    if word == "o":
        offsets = {key(name): int(to) for name, to in (pair.split(":") for pair in rest.split(","))}
        return ["offsets", None], ["offsets", offsets, kind]
    assert word == "p", text
    polled: dict[int, list[list[int | None]]] = {}
    for run in rest.split() if rest else ():
        where, _, pairs = run.partition(":")
        for what, offset in (pair.split("@") for pair in pairs.split(",")):
            polled.setdefault(key(where), []).append([int(offset), None if what == "?" else value(what)])
    return ["poll"], ["poll", polled]


def _unsent(operations: list[_Written]) -> list[tuple[int, int]]:
    sent = {part[2] for _, _, _, asked, _ in operations for part in _micro(asked) if part[0] == "send"}
    polled = {
        (int(k), v)
        for _, _, _, _, told in operations
        for part in _micro(told)
        if part[0] == "poll"
        for k, pairs in part[1].items()
        for _, v in pairs
        if v is not None and not chr(abs(v)).isupper()
    }
    return sorted((k, v) for k, v in polled if v not in sent)


def _micro(value: Any) -> Iterator[list[Any]]:
    for part in value if isinstance(value, list) else ():
        if isinstance(part, list):
            yield part
