"""What logs must never show: garbled, contradicting, repeated and lost values, stuck keys."""

import itertools
from collections import defaultdict
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from tests.histories.analyser.versions import Finding, Versions
from tests.histories.history import ASSIGNING, FAIL, NEVER, OK, RECORD_KEYS, Poll, Send

Reading = Literal["unread", "stuck", "read"]
_MOST_POINTS: Final = 100  # of a series


class Unread(NamedTuple):
    """A key that was not read to its end: at which times how many acknowledged values had been in no ok poll."""

    key: int
    reading: Reading
    unseen: tuple[tuple[int, int], ...]


def phantoms(versions: Versions) -> Iterator[Finding]:
    """Find what was polled and never sent to that key (HIS-18)."""
    sent: dict[int, set[int]] = defaultdict(set)
    for value, (_, send) in versions.writers.items():
        sent[send.key].add(value)
    for key, order in sorted(versions.orders.items()):
        polled = set(order.log.values()).union(*order.conflicts.values())
        for value in sorted(polled - sent[key]):
            lines = versions.witnesses(key, value)
            yield Finding("phantom", key, f"{value} was polled of key {key}, to which nobody sent it", lines)
    for operation in versions.history.operations:
        for poll in operation.polls:
            for key, (offsets, values) in poll.runs.items():
                if None in values:
                    offset = offsets[values.index(None)]
                    text = f"the record at {offset} of key {key} is none that was ever sent"
                    yield Finding("phantom", key, text, (operation.completed,))


def inconsistent_offsets(versions: Versions) -> Iterator[Finding]:
    """Find offsets at which different values were seen (HIS-19)."""
    for key, order in sorted(versions.orders.items()):
        for offset, values in sorted(order.conflicts.items()):
            both = sorted(values)
            text = f"offset {offset} of key {key} held {' and '.join(map(str, both))}"
            yield Finding("inconsistent-offsets", key, text, versions.witnesses(key, *both))


def duplicates(versions: Versions) -> Iterator[Finding]:
    """Find values that lie at several offsets; the batches tell whose fault it is (HIS-20)."""
    batches: dict[int, list[list[int]]] = {}
    for operation in versions.history.operations:
        if operation.f == "batches" and operation.type == OK:
            batches.update(operation.value)
    for key, order in sorted(versions.orders.items()):
        for value, offsets in sorted(order.repeated.items()):
            label = _label(batches.get(key), offsets, compacted=versions.compacted)
            text = f"{value} lies at {' and '.join(map(str, offsets))} of key {key} ({label})"
            yield Finding("duplicate", key, text, versions.witnesses(key, value), label)


def _label(batches: list[list[int]] | None, offsets: list[int], *, compacted: bool) -> str:
    found = [next((b for b in batches or () if b[0] <= offset <= b[1]), None) for offset in offsets]
    held = [batch for batch in found if batch is not None]
    if len(held) < len(found) and not (compacted and len(found) == 2 and found[0] is None and _begins_anew(held)):
        return "unlabelled"
    copies = [(batch[2], batch[3]) for batch in held]
    if any(producer == -1 for producer, _ in copies):
        return "no producer id"
    if len({producer for producer, _ in copies}) > 1:
        return "another producer"
    epochs = [epoch for _, epoch in copies]
    if not all(a < b for a, b in itertools.pairwise(epochs)):
        return "same epoch"
    return "renumbered in a transaction" if any(batch[5] for batch in held) else "renumbered"


def _begins_anew(held: list[list[int]]) -> bool:
    """Tell whether a producer's later epoch begins with the only batch of a copy that is left.

    The other copy has the same record key, so that compaction takes it. What the client had sent in an epoch before, and was
    not told of, comes first in the next one; a broker that took a batch twice would rarely have taken that one.
    """
    return any(epoch > 0 and sequence == 0 for _, _, _, epoch, sequence, *_ in held)


def lost_writes(versions: Versions) -> Iterator[Finding]:
    """Find proven values that nobody read though somebody read beyond them (HIS-21)."""
    for key, order in sorted(versions.orders.items()):
        read = [offset for value in order.seen if (offset := order.first_offset(value)) is not None]
        furthest = max(read, default=-1)
        for place, offset in enumerate(order.offsets):
            if offset > furthest:
                break
            for value in order.all_values(place):
                if value in order.seen or order.last_offset(value) != offset or not _is_proven(versions, key, value):
                    continue
                if not versions.is_removed(order, value, offset):
                    text = f"{value} at {offset} of key {key} was never read, but {furthest} was"
                    yield Finding("lost-write", key, text, versions.witnesses(key, value))


def _is_proven(versions: Versions, key: int, value: int) -> bool:
    """Tell whether a value certainly was written to this key; to another it is a phantom here, and told as that."""
    writer = versions.writers.get(value)
    return writer is not None and writer[1].key == key and versions.is_proven(*writer)


def readings(versions: Versions) -> dict[int, Reading]:
    """Tell of each key how far the final phase came (HIS-27)."""
    ends: dict[int, int] = {}
    first: dict[int, int] = {}  # key -> the line of the first end told
    finals: dict[int, tuple[int, bool]] = {}  # key -> position, whether an end had been told before
    for operation in versions.history.operations:
        if operation.type == OK and operation.f == "ends":
            for key, (_, end) in operation.value.items():
                ends[key] = end
                first.setdefault(key, operation.completed)
        elif operation.type == OK and operation.f == "final":
            for key, position in operation.value.items():
                finals[key] = (position, first.get(key, NEVER) < operation.invoked)
    found: dict[int, Reading] = {}
    for key in versions.orders:
        position, asked = finals.get(key, (0, False))
        if not asked:
            found[key] = "unread"
        else:
            found[key] = "stuck" if position < ends[key] else "read"
    return found


def unseen(versions: Versions) -> Iterator[Finding]:
    """Find keys that could not be read to their ends, and acknowledged values that nobody ever read (HIS-27)."""
    reading = readings(versions)
    facts = [operation for operation in versions.history.operations if operation.f in ("final", "ends")]
    for key, how in sorted(reading.items()):
        if how == "stuck":
            lines = tuple(operation.completed for operation in facts if key in operation.value)[-2:]
            yield Finding("stuck", key, f"key {key} could not be read to the end it was told to have", lines)
    for value, (operation, send) in sorted(versions.writers.items()):
        if reading[send.key] != "read":
            continue
        if operation.outcome(send) != OK or value in versions.orders[send.key].seen or versions.is_gone(send):
            continue
        text = f"{value} was acknowledged for key {send.key}, which was read to its end without it"
        yield Finding("unseen", send.key, text, versions.witnesses(send.key, value))


def unread(versions: Versions) -> tuple[Unread, ...]:
    """Tell of each stuck or unread key how many of its values were missing when (HIS-27): figures, and no findings."""
    reading = {key: how for key, how in readings(versions).items() if how != "read"}
    seen: dict[int, set[int | None]] = defaultdict(set)
    missing: dict[int, set[int]] = defaultdict(set)
    points: dict[int, dict[int, int]] = defaultdict(dict)  # key -> time -> how many
    for operation in versions.history.operations if reading else ():
        for part in operation.parts:
            if type(part) is Poll and operation.type == OK:
                for key, (_, values) in part.runs.items():
                    if key in reading:
                        seen[key].update(values)
                        if not missing[key].isdisjoint(values):
                            missing[key].difference_update(values)
                            points[key][operation.time] = len(missing[key])
            elif type(part) is Send and part.key in reading and operation.outcome(part) == OK:
                if part.value in seen[part.key] or versions.is_gone(part):
                    continue
                missing[part.key].add(part.value)
                points[part.key][operation.time] = len(missing[part.key])
    return tuple(Unread(key, how, _thinned(sorted(points[key].items()))) for key, how in sorted(reading.items()))


def _thinned(points: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Keep so many that a long run can still be drawn, the first and the last among them."""
    if len(points) <= _MOST_POINTS:
        return tuple(points)
    return tuple(points[n * (len(points) - 1) // (_MOST_POINTS - 1)] for n in range(_MOST_POINTS))


def compaction(versions: Versions) -> Iterator[Finding]:
    """Find what compaction must not remove: the newest value of a key, and a tombstone too early (HIS-30)."""
    if not versions.compacted:
        return
    reading = readings(versions)
    finals = _final_polls(versions)
    for key, order in sorted(versions.orders.items()):
        if reading[key] == "read":
            for offset in sorted(set(order.newest.values()) - order.conflicts.keys()):
                value = order.log[offset]
                there = offset >= order.start and value >= 0 and _is_proven(versions, key, value)
                if there and value not in finals[key]:
                    text = f"{value}, the newest of its record key, is missing from the last read of key {key}"
                    yield Finding("compacted-lost", key, text, versions.witnesses(key, value))
    yield from _skipped_tombstones(versions)


def _final_polls(versions: Versions) -> dict[int, set[int | None]]:
    """Return what each key's last reader from the start saw: the polls of the process that said final of it last."""
    finals = [o for o in versions.history.operations if o.f == "final" and o.type == OK]
    finishers = {key: operation.process for operation in finals for key in operation.value}
    processes = set(finishers.values())
    found: dict[int, set[int | None]] = defaultdict(set)
    for operation in versions.history.operations:
        if operation.process in processes:
            for poll in operation.polls:
                for key, (_, values) in poll.runs.items():
                    if finishers.get(key) == operation.process:
                        found[key].update(values)
    return found


def _skipped_tombstones(versions: Versions) -> Iterator[Finding]:
    """A reader that had a key's value, and got past its tombstone while that had to be kept, must have got that."""
    retention_ns = int(versions.history.options.get("delete_retention_ms", 86_400_000)) * 1_000_000
    tombstones: dict[int, list[tuple[int, int, int]]] = defaultdict(list)  # key -> offset, value, acknowledged at
    for value, (operation, send) in versions.writers.items():
        if value < 0 and operation.outcome(send) == OK and value in versions.orders[send.key].index:
            offset = versions.orders[send.key].first_offset(value)
            assert offset is not None, "a clear value lies at an offset"
            tombstones[send.key].append((offset, value, operation.time))
    replaced = _replacements(versions) if tombstones else {}
    polled: dict[tuple[object, int], dict[int, int]] = defaultdict(dict)  # process, key -> record key -> least offset
    met: dict[tuple[object, int], set[int | None]] = defaultdict(set)  # process, key -> values polled
    positions: dict[tuple[object, int], int] = {}
    for operation in versions.history.operations if tombstones else ():
        if operation.f in ASSIGNING and operation.type != FAIL:
            kept = () if operation.from_start else operation.value or ()
            positions = {of: at for of, at in positions.items() if of[0] != operation.process or of[1] in kept}
        for key in operation.moved:
            positions.pop((operation.process, key), None)  # another may have read on meanwhile
        runs = [(key, run) for poll in operation.polls for key, run in poll.runs.items() if key in tombstones]
        for key, (_, values) in runs:
            met[operation.process, key].update(values)
        reached = dict[int, int]()
        for key, (offsets, values) in runs:
            of = (operation.process, key)
            before = reached.get(key, positions.get(of, NEVER))
            reached[key] = offsets[-1]
            for offset, value, at in tombstones[key]:
                due = operation.completed < replaced[value] and operation.time < at + retention_ns
                if due and value not in met[of] and _is_passed(offset, value, before, offsets, values, polled[of]):
                    text = f"a reader of key {key} got past the tombstone {value} at {offset} without it"
                    yield Finding("tombstone-skip", key, text, (*versions.witnesses(key, value), operation.completed))
            for offset, each in zip(offsets, values, strict=True):
                if each is not None:
                    of_key = abs(each) % RECORD_KEYS
                    polled[of][of_key] = min(offset, polled[of].get(of_key, offset))
        if operation.type == OK:
            positions.update({(operation.process, key): at for key, at in reached.items()})


def _is_passed(
    tombstone: int,
    value: int,
    before: int,
    offsets: tuple[int, ...],
    values: tuple[int | None, ...],
    had: dict[int, int],
) -> bool:
    """Tell whether a run leads from below a tombstone to beyond it, a value of its record key having been polled."""
    if max(offsets) <= tombstone:
        return False
    of_key = abs(value) % RECORD_KEYS
    least = had.get(of_key, tombstone)
    for offset, each in zip(offsets, values, strict=True):
        if least < tombstone and before < tombstone < offset:
            return True
        before = offset
        if each is not None and abs(each) % RECORD_KEYS == of_key:
            least = min(least, offset)
    return False


def _replacements(versions: Versions) -> dict[int, int]:
    """Return of each tombstone the line at which a newer record of its key was first asked for: it may be gone then."""
    found: dict[int, int] = {}
    for order in versions.orders.values():
        first: dict[int, int] = {}  # record key -> first such line, of the records behind
        for offset in reversed(order.offsets):
            values = order.values_at(offset)
            for value in values:
                found[value] = first.get(abs(value) % RECORD_KEYS, NEVER)
            for value in values:
                of = abs(value) % RECORD_KEYS
                asked = versions.writers[value][0].invoked if value in versions.writers else -1  # nobody knows when
                first[of] = min(first.get(of, NEVER), asked)
    return found
