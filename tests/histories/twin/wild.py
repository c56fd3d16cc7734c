"""Histories that no run would give: what one analyser says of them, the other has to say, too.

Many changes at once, none of them with a kind that must be found: here the two analysers are compared, and nothing else.
A history stays well formed all the same (HIS-14).
"""

import random
from collections.abc import Callable, Iterator
from typing import Any

from tests.histories.analyser.model import CHANGES, CHANGES_OF_GROUPS, revalue
from tests.histories.history import RECORDS

Entries = list[dict[str, Any]]


def spoil(entries: Entries, chance: random.Random) -> dict[str, Any]:
    """Make one to six changes; return what of the header changes what is found."""
    compacted = chance.random() < 0.4
    if compacted:
        revalue(entries, chance)
    for _ in range(chance.randint(1, 6)):
        chance.choice((*_WILD, *_WILD, *CHANGES, *CHANGES_OF_GROUPS))(entries, chance)
    return {"cleanup": "compact", "delete_retention_ms": chance.choice([0, 86_400_000])} if compacted else {}


def stretch(entries: Entries, chance: random.Random) -> None:
    """Let each line take up to two seconds, with faults of brokers now and then; nothing else of it changes."""
    for _ in range(chance.choice([0, 0, 0, 1, 2, 3])):
        value = {"begins": chance.random() < 0.6, "faults": [chance.choice(["kill 1", "freeze 2"])]}
        told = {"process": "nemesis", "type": "info", "f": "fault", "value": value}
        entries.insert(chance.choice([0, chance.randrange(len(entries))]), told)
    _number(entries)
    factor = chance.choice([10_000, 600_000, 1_200_000, 1_500_000, 2_000_000])
    for entry in entries:
        entry["time"] *= factor
        if "ended_at" in entry:
            entry["ended_at"] *= factor
        for event in entry.get("rebalance", ()):
            event["time"] *= factor


def starve(entries: Entries, chance: random.Random) -> None:
    """Let one more process poll again and again, and seldom get anything."""
    process, keys = 30_000 + len(entries), [key for key in range(3) if chance.random() < 0.7]
    runs = [part[1] for part in _told(entries, "poll")[-1]["value"] if part[0] == "poll"]
    left = {key: list(runs[0].get(key, ())) for key in keys} if runs else {}
    asked: list[tuple[str, Any, Any]] = [(chance.choice(["assign", "assign", "subscribe"]), keys, keys)]
    for _ in range(chance.randint(5, 25)):
        lucky = [key for key in left if left[key] and chance.random() < 0.05]
        asked.append(("poll", [["poll"]], [["poll", {key: [left[key].pop(0)] for key in lucky}]]))
    at = chance.choice([0, len(entries), chance.randrange(len(entries))])
    for f, value, told in asked:
        kind = "ok" if chance.random() < 0.95 else "fail"
        entries.insert(at, {"process": process, "type": "invoke", "f": f, "value": value})
        entries.insert(at + 1, {"process": process, "type": kind, "f": f, "value": told})
        at = min(at + 2 + chance.choice([0, 1, 2]), len(entries))
    _number(entries)


def _told(entries: Entries, f: str = "") -> list[dict[str, Any]]:
    return [each for each in entries if each["type"] != "invoke" and (not f or each["f"] == f)]


def _parts(entries: Entries, kind: str) -> Iterator[list[Any]]:
    for entry in _told(entries):
        if entry["f"] in RECORDS:
            yield from (part for part in entry["value"] if part[0] == kind)


def _runs(entries: Entries) -> list[list[list[Any]]]:
    return [pairs for part in _parts(entries, "poll") for pairs in part[1].values() if pairs]


def turn_round(entries: Entries, chance: random.Random) -> None:
    """Put a key's offsets in the other order."""
    key = chance.randrange(3)
    for part in _parts(entries, "send"):
        if part[1] == key and part[2][0] is not None:
            part[2][0] = 100 - part[2][0]
    for part in _parts(entries, "poll"):
        for pair in part[1].get(key, ()):
            pair[0] = 100 - pair[0]


def shift(entries: Entries, chance: random.Random) -> None:
    """Let a record of a poll lie elsewhere."""
    if runs := _runs(entries):
        chance.choice(chance.choice(runs))[0] += chance.choice([-2, -1, 1, 2])


def shift_sent(entries: Entries, chance: random.Random) -> None:
    """Let a send be acknowledged elsewhere, or nowhere."""
    if sent := [part for part in _parts(entries, "send") if part[2][0] is not None]:
        part = chance.choice(sent)
        part[2][0] = chance.choice([None, part[2][0] - 1, part[2][0] + 1, part[2][0] + 3])


def stray(entries: Entries, chance: random.Random) -> None:
    """Deliver a value of another key, or one that is none."""
    if runs := _runs(entries):
        pair = chance.choice(chance.choice(runs))
        pair[1] = chance.choice([None, chance.choice(chance.choice(runs))[1]])


def reorder(entries: Entries, chance: random.Random) -> None:
    """Deliver the records of a poll in any order."""
    if runs := _runs(entries):
        chance.shuffle(chance.choice(runs))


def again(entries: Entries, chance: random.Random) -> None:
    """Deliver the run of one poll in another's place."""
    runs = [(part[1], key) for part in _parts(entries, "poll") for key in part[1]]
    if runs:
        (one, key), (other, _) = chance.choice(runs), chance.choice(runs)
        one[key] = [list(pair) for pair in other.get(key, one[key])]


def fail(entries: Entries, chance: random.Random) -> None:
    """Let an operation fail that was ok."""
    if done := [each for each in _told(entries) if each["type"] == "ok" and each["f"] in ("txn", "poll", "committed")]:
        chance.choice(done)["type"] = "fail"


def silent(entries: Entries, chance: random.Random) -> None:
    """Let nobody be told what a group had committed."""
    group = chance.choice(["g", "t"])
    for entry in _told(entries, "committed"):
        if entry["group"] == group:
            entry["type"] = "fail"


def outcome(entries: Entries, chance: random.Random) -> None:
    """Let a send or a commit come out another way."""
    if parts := [*_parts(entries, "send"), *_parts(entries, "offsets")]:
        part = chance.choice(parts)
        part[3 if part[0] == "send" else 2] = chance.choice(["ok", "info", "fail"])


def early(entries: Entries, chance: random.Random) -> None:
    """Let a transaction have asked for its end at another time."""
    if done := _told(entries, "txn"):
        chance.choice(done)["ended_at"] = chance.randrange(len(entries)) * 1000


def facts(entries: Entries, chance: random.Random) -> None:
    """Tell another number of a key: its start, its end, how far the last reader came, or what is committed."""
    done = [each for each in _told(entries) if each["f"] in ("ends", "final", "committed") and each["value"]]
    entry = chance.choice(done)
    key = chance.choice(sorted(entry["value"]))
    number = chance.choice([None, *range(8)]) if entry["f"] == "committed" else chance.randrange(12)
    if entry["f"] == "ends":
        entry["value"][key][chance.randrange(2)] = number
    else:
        entry["value"][key] = number


def insert(entries: Entries, chance: random.Random) -> None:
    """Let a process of its own ask or delete, from one line to another."""
    process, f = 20_000 + len(entries), chance.choice(["ends", "delete", "final", "ends", "delete", "batches"])
    key, number = chance.randrange(3), chance.randrange(6)
    value: dict[int, Any] = {key: [number, number + chance.randrange(12)] if f == "ends" else number}
    if f == "batches":
        value = {key: _batches(chance) for key in range(3)}
    first = chance.randrange(len(entries))
    last = chance.randint(first, min(first + 10, len(entries)))
    told = {"process": process, "type": chance.choice(["ok", "ok", "fail"]), "f": f, "value": value}
    if f == "delete" and chance.random() < 0.3:
        told["type"] = "info"
    if f == "ends" and chance.random() < 0.3:
        told["isolation"] = "read_committed"
    entries.insert(last, told)
    entries.insert(first, {"process": process, "type": "invoke", "f": f, "value": value})
    _number(entries)


def _batches(chance: random.Random) -> list[list[Any]]:
    bases = sorted(chance.sample(range(120), chance.randint(0, 12)))
    return [
        [
            base,
            base + chance.randrange(30),
            chance.choice([-1, 7, 7, 8]),
            chance.randrange(3),
            0,
            chance.random() < 0.3,
            False,
        ]
        for base in bases
    ]


def cut(entries: Entries, chance: random.Random) -> None:
    """Let a process's last operation never be completed."""
    process = chance.choice(entries)["process"]
    own = [n for n, entry in enumerate(entries) if entry["process"] == process]
    if entries[own[-1]]["type"] != "invoke":
        told = entries.pop(own[-1])
        if "group" in told:
            entries[own[-2]]["group"] = told["group"]
        _number(entries)


def assign(entries: Entries, chance: random.Random) -> None:
    """Let a consumer be assigned keys between two of its operations, perhaps from the start, perhaps in vain."""
    begins = [n for n, each in enumerate(entries) if each["type"] == "invoke" and each["process"] < 10_000]
    at = chance.choice(begins)
    process, f = entries[at]["process"], chance.choice(["assign", "subscribe"])
    keys = [key for key in range(3) if chance.random() < 0.5]
    told = {"process": process, "type": chance.choice(["ok", "ok", "fail"]), "f": f, "value": keys}
    if chance.random() < 0.3:
        told["from"] = "start"
    if chance.random() < 0.3:
        event = {"what": "revoked", "keys": [chance.randrange(3)], "generation": None, "time": entries[at]["time"]}
        told |= {"group": "g", "member": f"m{process}", "rebalance": [event]}
    entries.insert(at, told)
    entries.insert(at, {"process": process, "type": "invoke", "f": f, "value": keys})
    _number(entries)


def _number(entries: Entries) -> None:
    """Number the lines anew; times of events and of commits asked for move with the lines they fell in."""
    times: dict[int, int] = {}
    for index, entry in enumerate(entries):
        if "time" in entry:
            times[entry["time"]] = index * 1000
        entry |= {"index": index, "time": index * 1000}
    for entry in entries:
        if "ended_at" in entry:
            entry["ended_at"] = times.get(entry["ended_at"], entry["ended_at"])
        for event in entry.get("rebalance", ()):
            line = event["time"] // 1000 * 1000
            event["time"] = times.get(line, line) + event["time"] % 1000


def generation(entries: Entries, chance: random.Random) -> None:
    """Let an operation be of another generation, or an event of a rebalance be another."""
    if of_groups := [each for each in _told(entries) if "generation" in each]:
        entry = chance.choice(of_groups)
        entry["generation"] = chance.choice([None, 1, 2, 3])
        parts = sorted(chance.choices(range(4), k=len(entry["rebalance"])))
        for event, part in zip(entry["rebalance"], parts, strict=True):
            event["part"] = part
            event["what"] = chance.choice(["assigned", "revoked", "lost", event["what"], event["what"]])
            event["generation"] = chance.choice([event["generation"], None, 1, 2])


def commit(entries: Entries, chance: random.Random) -> None:
    """Let a commit be of another offset."""
    if parts := [part for part in _parts(entries, "offsets") if part[1]]:
        part = chance.choice(parts)
        part[1][chance.choice(sorted(part[1]))] = chance.randrange(10)


def source(entries: Entries, chance: random.Random) -> None:
    """Let an output be made of another source."""
    if outputs := [part for part in _parts(entries, "send") if len(part) > 4]:
        chance.choice(outputs)[4] = [chance.randrange(2), chance.randrange(8)]


def future(entries: Entries, chance: random.Random) -> None:
    """Let a poll deliver a value, where it lies, that another poll has; perhaps before it was sent."""
    polls = list(_parts(entries, "poll"))
    found = [(key, pair) for part in polls for key, pairs in part[1].items() for pair in pairs]
    if found:
        key, pair = chance.choice(found)
        runs = chance.choice(polls)[1].setdefault(key, [])
        runs.append(list(pair))
        runs.sort(key=lambda each: each[0])


def own(entries: Entries, chance: random.Random) -> None:
    """Let a transaction poll what it sends."""
    found = [
        (sent, part[1])
        for entry in _told(entries, "txn")
        for part in entry["value"]
        if part[0] == "poll"
        for sent in entry["value"]
        if sent[0] == "send" and sent[2][0] is not None
    ]
    if found:
        (_, key, pair, *_), runs = chance.choice(found)
        runs.setdefault(key, []).append(list(pair))


def mutual(entries: Entries, chance: random.Random) -> None:
    """Let two transactions poll what the other sends."""
    found = []
    for entry in _told(entries, "txn"):
        sends = [part for part in entry["value"] if part[0] == "send" and part[2][0] is not None]
        polls = [part for part in entry["value"] if part[0] == "poll"]
        if sends and polls and entry["type"] == "ok":
            found.append((chance.choice(sends), chance.choice(polls)))
    if len(found) > 1:
        (sent, polled), (other_sent, other_polled) = chance.sample(found, 2)
        for send, poll in ((sent, other_polled), (other_sent, polled)):
            poll[1].setdefault(send[1], []).append(list(send[2]))


def exchange(entries: Entries, chance: random.Random) -> None:
    """Let a transaction's value and another of its key change places, everywhere."""
    sent = [part for entry in _told(entries, "txn") for part in entry["value"] if part[0] == "send" and part[2][0]]
    if not sent:
        return
    _, key, (offset, _), *_ = chance.choice(sent)
    other = offset + chance.choice([-3, -2, -1, 1, 2, 3])
    places = {offset: other, other: offset}
    for part in _parts(entries, "send"):
        if part[1] == key and part[2][0] is not None:
            part[2][0] = places.get(part[2][0], part[2][0])
    for part in _parts(entries, "poll"):
        pairs = part[1].get(key, [])
        for pair in pairs:
            pair[0] = places.get(pair[0], pair[0])
        pairs.sort(key=lambda pair: pair[0])


def leave_out(entries: Entries, chance: random.Random) -> None:
    """Leave a value out of all polls but one's."""
    if runs := _runs(entries):
        kept = chance.choice(runs)
        value = chance.choice(kept)[1]
        for pairs in runs:
            if pairs is not kept:
                pairs[:] = [pair for pair in pairs if pair[1] != value]


_WILD: tuple[Callable[[Entries, random.Random], None], ...] = (
    turn_round, shift, shift, shift_sent, stray, reorder, again, fail, silent, outcome, early, facts, insert, insert, assign,
    generation, commit, source, cut, future, future, own, leave_out, mutual, exchange, starve,
)  # fmt: skip
