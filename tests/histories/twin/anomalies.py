"""The literal twin's anomalies of logs, polls and sends (section 4)."""

from collections.abc import Iterator
from itertools import pairwise

from tests.histories.history import FAIL, OK, RECORD_KEYS, Operation, Process
from tests.histories.twin.facts import Facts, Found, Polled, before

_A_DAY_MS = 86_400_000  # delete.retention.ms by default


def all_of(facts: Facts) -> Iterator[Found]:
    for check in (
        phantoms, inconsistent_offsets, duplicates, lost_writes, aborted_reads, early_reads, polls, sends, last_phase,
        backwards, compacted_lost, tombstone_skips,
    ):  # fmt: skip
        yield from check(facts)


def phantoms(facts: Facts) -> Iterator[Found]:
    """Find what nobody sent to its key (HIS-18)."""
    for each in facts.polled:
        if each.value is None:
            yield Found("phantom", (each.key, None, each.operation.completed))
        elif each.value not in facts.writers or facts.writers[each.value][1].key != each.key:
            yield Found("phantom", (each.key, each.value))


def inconsistent_offsets(facts: Facts) -> Iterator[Found]:
    """Find offsets of several values (HIS-19)."""
    for key, log in facts.log.items():
        for offset, values in log.items():
            if len(values) > 1:
                yield Found("inconsistent-offsets", (key, offset, frozenset(values)))


def duplicates(facts: Facts) -> Iterator[Found]:
    """Find values at several offsets, and what the batches say of them (HIS-20)."""
    for key, log in facts.log.items():
        for value in {value for values in log.values() for value in values}:
            offsets = facts.offsets(key, value)
            if len(offsets) > 1:
                yield Found("duplicate", (key, value, tuple(offsets), _label(facts, key, offsets)))


def _label(facts: Facts, key: int, offsets: list[int]) -> str:
    told = facts.last_told("batches", key)
    copies, in_transaction, gone = [], False, []
    for offset in offsets:
        for base, last, producer, epoch, sequence, transactional, _ in told.value[key] if told else ():
            if base <= offset <= last:
                copies.append((producer, epoch, sequence))
                in_transaction |= transactional
                break
        else:
            gone.append(offset)
    if gone:
        if not (facts.compacted and len(offsets) == 2 and gone == offsets[:1]):
            return "unlabelled"
        ((_, epoch, sequence),) = copies
        if epoch == 0 or sequence != 0:  # else it begins what its producer sent anew
            return "unlabelled"
    if any(producer == -1 for producer, _, _ in copies):
        return "no producer id"
    if len({producer for producer, _, _ in copies}) > 1:
        return "another producer"
    if not all(one < other for (_, one, _), (_, other, _) in pairwise(copies)):
        return "same epoch"
    return "renumbered in a transaction" if in_transaction else "renumbered"


def lost_writes(facts: Facts) -> Iterator[Found]:
    """Find proven values that nobody read, though somebody read beyond them (HIS-21).

    A value that was sent to another key is a phantom here, and not lost.
    """
    for key, log in facts.log.items():
        values = {value for each in log.values() for value in each}
        read = [facts.place(key, facts.offsets(key, value)[0]) for value in values if (key, value) in facts.seen]
        for value in values:
            last = facts.offsets(key, value)[-1]
            is_lost = (
                _is_proven(facts, key, value)
                and (key, value) not in facts.seen
                and any(facts.place(key, last) <= place for place in read)
                and not facts.may_be_gone(key, value, last)
            )
            if is_lost:
                yield Found("lost-write", (key, value))


def _is_proven(facts: Facts, key: int, value: int) -> bool:
    writer = facts.writers.get(value)
    return writer is not None and writer[1].key == key and facts.is_proven(*writer)


def aborted_reads(facts: Facts) -> Iterator[Found]:
    """Find values of failed operations in ok polls (HIS-22).

    Without a transaction a send has an outcome of its own: one that failed certainly did not happen either (HIS-7).
    """
    for each in facts.polled:
        if each.value in facts.writers and each.operation.type == OK:
            writer, send = facts.writers[each.value]
            failed = writer.type == FAIL or (not writer.transactional and send.outcome == FAIL)
            if failed and send.key == each.key:
                yield Found("G1a", (each.key, each.value))


def early_reads(facts: Facts) -> Iterator[Found]:
    """Find what was polled before its transaction's commit was asked for (HIS-23).

    Where that was never asked for, or nobody knows when, the read is none too early: G1a judges it. What is polled of
    another key than it was sent to is a phantom, and not that transaction's value.
    """
    for each in facts.polled:
        if each.value not in facts.writers:
            continue
        writer, send = facts.writers[each.value]
        if not writer.transactional or send.key != each.key:
            continue
        if writer is each.operation:
            yield Found("precommitted-read", (each.key, each.operation.completed))
        elif writer.type != FAIL and writer.ended_at is not None and each.operation.time < writer.ended_at:
            yield Found("early-read", (each.key, each.operation.completed))


# --- HIS-24, HIS-25 -------------------------------------------------------------------------------------------------


def polls(facts: Facts) -> Iterator[Found]:
    """Find skips and repeats, from operation to operation and inside one (HIS-24, HIS-25)."""
    for process in {operation.process for operation in facts.operations}:
        for key in facts.log:
            position: Polled | None = None
            for operation in facts.of_process(process):
                if facts.forgets(operation, key):
                    position = None
                values = facts.values(operation, key)
                if values and position is not None:
                    yield from _step(facts, position, values[0], "")
                if not any(key in event.keys for event in operation.rebalance):
                    for one, other in pairwise(values):
                        yield from _step(facts, one, other, "int-")
                if values and operation.type == OK:
                    last = values[-1]
                    moved_since = any(key in event.keys and event.part > last.part for event in operation.rebalance)
                    position = None if moved_since else last


def _step(facts: Facts, one: Polled, other: Polled, prefix: str) -> Iterator[Found]:
    """Judge a value by the one before it. Values that were removed on purpose are not skipped."""
    key = one.key
    index, following = facts.index.get((key, one.value)), facts.index.get((key, other.value))
    if index is None or following is None:
        return
    what = (key, one.value, other.value, other.operation.completed)
    if following <= index:
        yield Found(f"{prefix}nonmonotonic-poll", what)
    skipped = [each for each in facts.between(key, index, following) if not facts.may_be_gone(key, *each)]
    if skipped:
        yield Found(f"{prefix}poll-skip", (*what, tuple(value for value, _ in sorted(skipped, key=_by_offset))))


def _by_offset(entry: tuple[int, int]) -> tuple[int, int]:
    value, offset = entry
    return offset, value


# --- HIS-26 ---------------------------------------------------------------------------------------------------------


def sends(facts: Facts) -> Iterator[Found]:
    """Find sends out of order, and values of others between a transaction's (HIS-26).

    From operation to operation any two are compared, since the requirement says so; inside one direct neighbours alone.
    """
    for operation in facts.operations:
        if operation.type == FAIL:
            continue
        for key in {send.key for send in operation.sends}:
            own = [send.value for send in operation.sends if send.key == key]
            earlier = [
                facts.index.get((key, send.value))
                for other in facts.of_process(operation.process)
                if before(other, operation) and other.type != FAIL
                for send in other.sends
                if send.key == key
            ]
            for value in own:
                index = facts.index.get((key, value))
                if index is not None and any(other is not None and index < other for other in earlier):
                    yield Found("nonmonotonic-send", (key, operation.completed))
            for one, other in pairwise(own):
                yield from _sent(facts, operation, key, one, other)


def _sent(facts: Facts, operation: Operation, key: int, one: int, other: int) -> Iterator[Found]:
    index, following = facts.index.get((key, one)), facts.index.get((key, other))
    if index is None or following is None:
        return
    if following < index:
        yield Found("int-nonmonotonic-send", (key, one, other, operation.completed))
    own = {send.value for send in operation.sends}
    if operation.transactional and {value for value, _ in facts.between(key, index, following)} - own:
        yield Found("int-send-skip", (key, one, other, operation.completed))


# --- HIS-27, HIS-28 -------------------------------------------------------------------------------------------------


def last_phase(facts: Facts) -> Iterator[Found]:
    """Find keys that were not read to their ends, and values missing from those that were (HIS-27)."""
    for key in facts.keys:
        if facts.readings[key] == "stuck":
            yield Found("stuck", key)
    for operation, send in facts.writers.values():
        if facts.is_acknowledged(operation, send) and facts.readings[send.key] == "read":
            gone = facts.may_be_gone(send.key, send.value, facts.last_offset(send))
            if (send.key, send.value) not in facts.seen and not gone:
                yield Found("unseen", (send.key, send.value))


# --- HIS-29, HIS-30 -------------------------------------------------------------------------------------------------


def backwards(facts: Facts) -> Iterator[Found]:
    """Find ends that fell and starts that came back (HIS-29), by the later of the two."""
    told = [operation for operation in facts.operations if operation.type == OK]
    for one in told:
        for other in told:
            if one.f == other.f == "ends" and one.isolation == other.isolation and before(one, other):
                for key in one.value:
                    if key in other.value and other.value[key][1] < one.value[key][1]:
                        yield Found("end-backwards", (key, other.completed))
    for one in told:
        for key, to in one.value.items() if one.f == "delete" else ():
            for other in told:
                if other.f == "ends" and before(one, other) and key in other.value and other.value[key][0] < to:
                    yield Found("start-backwards", (key, other.completed))
            for each in facts.polled:
                if each.key == key and each.offset < to and before(one, each.operation):
                    yield Found("start-backwards", (key, each.operation.completed))


def compacted_lost(facts: Facts) -> Iterator[Found]:
    """Find newest values of their record key that the reader of the last phase did not get (HIS-30).

    The final read is what the process polled that told how far it came. A value whose writer is not proven may never
    have been there, and a tombstone may go. At an offset of several values nobody can say which is the newest: that is
    told as inconsistent-offsets.
    """
    for key in facts.log if facts.compacted else ():
        final = facts.last_told("final", key)
        if final is None or facts.readings[key] != "read":
            continue
        got = {each.value for each in facts.polled if each.operation.process == final.process and each.key == key}
        for value in {value for values in facts.log[key].values() for value in values}:
            last = facts.offsets(key, value)[-1]
            is_newest = len(facts.log[key][last]) == 1 and not facts.may_be_gone(key, value, last)
            if is_newest and value >= 0 and value not in got and _is_proven(facts, key, value):
                yield Found("compacted-lost", (key, value))


def tombstone_skips(facts: Facts) -> Iterator[Found]:
    """Find readers that had a value and passed its tombstone by while it had to be there (HIS-30).

    The value they had may be an older tombstone. Of a tombstone at two offsets, or one of several values at its offset,
    nobody knows where it lies. One that was replaced itself before the reader's poll was over may be gone.
    """
    for writer, send in facts.writers.values() if facts.compacted else ():
        if send.value >= 0 or not facts.is_acknowledged(writer, send) or (send.key, send.value) not in facts.index:
            continue
        (offset,) = facts.offsets(send.key, send.value)
        for process in {each.process for each in facts.operations}:
            for operation in _passes(facts, process, send.key, send.value, offset):
                in_time = operation.time < writer.time + _retention_ns(facts)
                if in_time and not _is_replaced(facts, send.key, send.value, offset, operation):
                    yield Found("tombstone-skip", (send.key, send.value, operation.completed))


def _retention_ns(facts: Facts) -> int:
    retention: int = facts.history.options.get("delete_retention_ms", _A_DAY_MS)
    return retention * 1_000_000


def _passes(facts: Facts, process: Process, key: int, tombstone: int, offset: int) -> Iterator[Operation]:
    """Yield the operations in which a process that had a value got beyond its tombstone without ever polling that.

    It got beyond from a position below; where the position was forgotten, another may have read on meanwhile (HIS-24).
    """
    had, position = False, None
    for operation in facts.of_process(process):
        if facts.forgets(operation, key):
            position = None
        values = facts.values(operation, key)
        if any(each.value == tombstone for each in values):
            return
        at = position
        for each in values:
            if had and at is not None and at < offset < each.offset:
                yield operation
                break
            at = each.offset
            if each.value is not None and each.offset < offset:
                had = had or abs(each.value) % RECORD_KEYS == abs(tombstone) % RECORD_KEYS
        if values and operation.type == OK:
            position = values[-1].offset


def _is_replaced(facts: Facts, key: int, tombstone: int, offset: int, reader: Operation) -> bool:
    return any(
        other > offset
        and abs(value) % RECORD_KEYS == abs(tombstone) % RECORD_KEYS
        and (value not in facts.writers or facts.writers[value][0].invoked < reader.completed)
        for other, values in facts.log[key].items()
        for value in values
    )
