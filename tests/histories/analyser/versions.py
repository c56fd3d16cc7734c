"""The order of each key's values, from every poll and every send whose place is known."""

from bisect import bisect_left
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from tests.histories.history import FAIL, INFO, NEVER, OK, RECORD_KEYS, History, Operation, Poll, Send


class Finding(NamedTuple):
    """One instance of an anomaly. ``lines`` of the file that show it; ``label`` tells kinds of one kind apart."""

    kind: str
    key: int | None
    text: str
    lines: tuple[int, ...]
    label: str = ""


class Order:
    """One key's log: what lies at which offset, and the values in their order.

    ``values`` has one entry for each offset with any value, None where it is unclear: of several at an offset, or at
    several offsets. An unclear value has no ``index``, so that one fault is told once.
    """

    def __init__(self) -> None:
        self.log: dict[int, int] = {}
        self.conflicts: dict[int, set[int]] = {}  # offset -> all its values, where there are several
        self.seen: set[int] = set()  # values of ok polls
        self.start = 0  # what lies below may have been removed
        self.offsets: tuple[int, ...] = ()
        self.values: tuple[int | None, ...] = ()
        self.index: dict[int, int] = {}
        self.repeated: dict[int, list[int]] = {}  # value -> all its offsets, where there are several
        self.newest: dict[int, int] = {}  # record key -> offset of its last value

    def witness(self, offset: int, value: int) -> None:
        if (known := self.log.setdefault(offset, value)) != value:
            self.conflicts.setdefault(offset, {known}).add(value)

    def settle(self) -> None:
        """Fix the order, all witnesses having been heard."""
        offset_of: dict[int, int] = {}
        for offset in sorted(self.log):
            for value in self.conflicts.get(offset) or (self.log[offset],):
                if value in offset_of:
                    self.repeated.setdefault(value, [offset_of[value]]).append(offset)
                else:
                    offset_of[value] = offset
                self.newest[abs(value) % RECORD_KEYS] = offset
        self.offsets = tuple(sorted(self.log))
        self.values = tuple(
            None if offset in self.conflicts or self.log[offset] in self.repeated else self.log[offset]
            for offset in self.offsets
        )
        self.index = {value: place for place, value in enumerate(self.values) if value is not None}
        self._offset_of = offset_of

    def first_offset(self, value: int) -> int | None:
        return self._offset_of.get(value)

    def last_offset(self, value: int) -> int | None:
        return self.repeated[value][-1] if value in self.repeated else self._offset_of.get(value)

    def rising(self, numbers: Mapping[int, float]) -> dict[int | None, float]:
        """Return for each clear value the highest number of the values up to it: one look-up judges a whole poll."""
        highest, found = -1.0, dict[int | None, float]()
        for place, value in enumerate(self.values):
            for each in (value,) if value is not None else self.all_values(place):
                highest = max(highest, numbers.get(each, -1.0))
            if value is not None:
                found[value] = highest
        return found

    def all_values(self, place: int) -> list[int]:
        """Return what lies at a place, clear or not."""
        return sorted(self.values_at(self.offsets[place]))

    def values_at(self, offset: int) -> set[int]:
        """Return what lies at an offset, clear or not, if anything does."""
        return self.conflicts.get(offset) or ({self.log[offset]} if offset in self.log else set())

    def place_from(self, offset: int) -> int:
        """Return the first place at or above an offset."""
        return bisect_left(self.offsets, offset)


def highest_of(offsets: tuple[int, ...], values: tuple[int | None, ...]) -> int | None:
    """Return the value that lies highest of a run: its last one if the run is in its order, and that decides for all."""
    highest = max(offsets)
    return values[-1] if offsets[-1] == highest else values[offsets.index(highest)]


class Versions:
    """What a history shows of every key, and who wrote what."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.compacted = history.options.get("cleanup") == "compact"
        self.orders: dict[int, Order] = {}
        self.writers: dict[int, tuple[Operation, Send]] = {}
        self._hear_polls()
        self._hear_sends()
        self._hear_starts()
        for order in self.orders.values():
            order.settle()

    def order(self, key: int) -> Order:
        order = self.orders.get(key)
        if order is None:
            order = self.orders[key] = Order()
        return order

    def _hear_polls(self) -> None:
        for operation in self.history.operations:
            for part in operation.parts:
                if type(part) is Send:
                    self.writers[part.value] = (operation, part)
                elif type(part) is Poll:
                    for key, (offsets, values) in part.runs.items():
                        order = self.order(key)
                        if tuple(map(order.log.get, offsets)) != values:
                            for offset, value in zip(offsets, values, strict=True):
                                if value is not None:
                                    order.witness(offset, value)
                        if operation.type == OK:
                            order.seen.update(values)  # type: ignore[arg-type]  # None goes below
        for order in self.orders.values():
            order.seen.discard(None)

    def _hear_sends(self) -> None:
        for operation in self.history.operations:
            proven = operation.transactional and self._happened(operation)
            for part in operation.parts:
                if type(part) is Send:
                    order = self.order(part.key)
                    if part.offset is not None and (proven or self.is_proven(operation, part)):
                        order.witness(part.offset, part.value)

    def _hear_starts(self) -> None:
        for operation in self.history.operations:
            if operation.f == "ends" and operation.type == OK:
                for key, (start, _) in operation.value.items():
                    self.order(key).start = max(self.order(key).start, start)
            elif operation.f == "delete" and operation.type != FAIL:
                for key, start in operation.value.items():
                    self.order(key).start = max(self.order(key).start, start)

    def _happened(self, transaction: Operation) -> bool:
        """Tell whether a transaction is known to have been committed."""
        if transaction.type == INFO:
            return any(part.value in self.order(part.key).seen for part in transaction.sends)
        return transaction.type == OK

    def is_proven(self, operation: Operation, send: Send) -> bool:
        """Tell whether a value is known to have been written for good."""
        if operation.transactional:
            return self._happened(operation)
        return send.outcome == OK or (send.outcome == INFO and send.value in self.order(send.key).seen)

    def is_failed(self, value: int) -> bool:
        """Tell whether a value certainly was not, and never will be, written."""
        operation, send = self.writers[value]
        return operation.type == FAIL or (not operation.transactional and send.outcome == FAIL)

    def is_replaced(self, order: Order, value: int, offset: int) -> bool:
        """Tell whether compaction may have removed a value."""
        return self.compacted and order.newest.get(abs(value) % RECORD_KEYS, -1) > offset

    def is_removed(self, order: Order, value: int, offset: int) -> bool:
        """Tell whether a value may be gone rightly: deleted, or compacted."""
        return offset < order.start or self.is_replaced(order, value, offset)

    def is_gone(self, send: Send) -> bool:
        """Tell whether a value may be gone rightly from the last place it is known to have had, or from an unknown one."""
        order = self.orders[send.key]
        offset = order.last_offset(send.value)
        if offset is None:
            offset = send.offset
        if offset is None:
            return order.start > 0 or self.compacted  # it may have lain below the start
        return self.is_removed(order, send.value, offset)

    # --- for the telling of findings: built when there are any

    @cached_property
    def first_polls(self) -> dict[tuple[int, int | None], int]:
        """Key and value -> the line of the first poll that had it."""
        found: dict[tuple[int, int | None], int] = {}
        for operation in self.history.operations:
            for poll in operation.polls:
                for key, (_, values) in poll.runs.items():
                    for value in values:
                        found.setdefault((key, value), operation.completed)
        return found

    def witnesses(self, key: int, *values: int | None) -> tuple[int, ...]:
        """Return the lines that tell of values: of their sends, and of the first poll that had them."""
        lines = set()
        for value in values:
            if value in self.writers:
                writer = self.writers[value][0]
                lines.add(writer.completed if writer.completed != NEVER else writer.invoked)
            if (key, value) in self.first_polls:
                lines.add(self.first_polls[key, value])
        return tuple(sorted(lines))
