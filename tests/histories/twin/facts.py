"""What the literal twin reads out of a history before it judges (section 3): logs, proven writers, places, readings.

The twin is a second analyser (HIS-3), written from sections 3 to 7 of the specification and not from the first one's
code: slow, one loop within another, for histories of at most sixty operations. It shares the reader of histories with
the first and nothing else, so a mistake has to be made twice to stay unseen. Nothing here is fast, or done in one pass.
Where the specification is silent both have one rule, and the function that has it says which and why; in doubt nobody is
accused.
"""

from collections.abc import Hashable, Mapping
from typing import NamedTuple

from tests.histories.history import (
    ASSIGNING,
    FAIL,
    INFO,
    NEVER,
    OK,
    RECORD_KEYS,
    History,
    Operation,
    Poll,
    Process,
    Send,
)


class Found(NamedTuple):
    """One instance of an anomaly. ``what``: the keys, values, offsets and operations (by last line) that make it one."""

    kind: str
    what: Hashable


class Polled(NamedTuple):
    """One record that a poll delivered; ``part``: the place of the poll among its operation's micro-operations."""

    operation: Operation
    part: int
    key: int
    offset: int
    value: int | None


class Committed(NamedTuple):
    """One key of one commit, with the outcome that counts for it."""

    operation: Operation
    part: int
    key: int
    offset: int
    outcome: str


class Event(NamedTuple):
    """One key of one event of a rebalance; ``number``: its place among those of its operation.

    ``part``: the place of the micro-operation that was under way, and that polled what it did afterwards.
    """

    operation: Operation
    part: int
    number: int
    what: str
    key: int
    generation: int | None
    time: int


def before(one: Operation, other: Operation) -> bool:
    """Tell whether one had completed when the other was invoked."""
    return one.completed < other.invoked


def name(operation: Operation) -> int:
    """Return the line by which a finding names an operation: that of its completion, if it has one."""
    return operation.completed if operation.completed != NEVER else operation.invoked


class Facts:
    """A history's records, commits and events, one by one, and what section 3 says of them."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.operations = history.operations
        self.compacted = history.options.get("cleanup") == "compact"
        self.polled: list[Polled] = []
        self.commits: list[Committed] = []
        self.events: list[Event] = []
        self.writers: dict[int, tuple[Operation, Send]] = {}
        for operation in self.operations:
            self._take_apart(operation)
        self.events.sort(key=lambda event: (event.time, event.operation.completed, event.number))
        self.seen = {(each.key, each.value) for each in self.polled if each.operation.type == OK}
        self.log = self._log()
        self.index = self._indices()
        self.keys = self._keys()
        self.starts = {key: self._start(key) for key in self.keys}
        self.readings = {key: self._reading(key) for key in self.keys}

    def _take_apart(self, operation: Operation) -> None:
        for number, part in enumerate(operation.parts):
            if isinstance(part, Send):
                self.writers[part.value] = operation, part
            elif isinstance(part, Poll):
                for key, (offsets, values) in part.runs.items():
                    for offset, value in zip(offsets, values, strict=True):
                        self.polled.append(Polled(operation, number, key, offset, value))
            else:
                outcome = operation.outcome(part)
                for key, offset in part.offsets.items():
                    self.commits.append(Committed(operation, number, key, offset, outcome))
        for number, event in enumerate(operation.rebalance):
            for key in event.keys:
                self.events.append(Event(operation, event.part, number, event.what, key, event.generation, event.time))

    # --- HIS-15 to HIS-17 -------------------------------------------------------------------------------------------

    def is_acknowledged(self, operation: Operation, send: Send) -> bool:
        """Tell by the transaction, or without one by the send alone."""
        return (operation.type if operation.transactional else send.outcome) == OK

    def is_proven(self, operation: Operation, send: Send) -> bool:
        """Tell whether a send certainly happened (HIS-16).

        A value proves its writer where it was polled of the key it was sent to: of another key it is a phantom, which
        says nothing of who sent it.
        """
        if self.is_acknowledged(operation, send):
            return True
        if operation.transactional:
            return operation.type == INFO and any((each.key, each.value) in self.seen for each in operation.sends)
        return send.outcome == INFO and (send.key, send.value) in self.seen

    def _log(self) -> dict[int, dict[int, set[int]]]:
        """Return the values at each offset of each key (HIS-15). A record that is no value has no place either."""
        log: dict[int, dict[int, set[int]]] = {}
        for each in self.polled:
            if each.value is not None:
                log.setdefault(each.key, {}).setdefault(each.offset, set()).add(each.value)
        for operation, send in self.writers.values():
            if send.offset is not None and self.is_proven(operation, send):
                log.setdefault(send.key, {}).setdefault(send.offset, set()).add(send.value)
        return log

    def offsets(self, key: int, value: int) -> list[int]:
        """Return where a value was witnessed, the lowest first."""
        return sorted(offset for offset, values in self.log.get(key, {}).items() if value in values)

    def place(self, key: int, offset: int) -> int:
        """Return how many offsets with a value are below this one."""
        return sum(other < offset for other in self.log[key])

    def _indices(self) -> Mapping[tuple[int, int | None], int]:
        """Return the place of each value that lies at one offset, alone (HIS-17)."""
        index: dict[tuple[int, int | None], int] = {}
        for key, log in self.log.items():
            for offset, values in log.items():
                for value in values:
                    if len(values) == 1 and self.offsets(key, value) == [offset]:
                        index[key, value] = self.place(key, offset)
        return index

    def between(self, key: int, low: int, high: int) -> set[tuple[int, int]]:
        """Return all values, clear or not, at places above the one and below the other, with their offsets."""
        return {
            (value, offset)
            for offset, values in self.log[key].items()
            for value in values
            if low < self.place(key, offset) < high
        }

    # --- what was removed on purpose --------------------------------------------------------------------------------

    def _start(self, key: int) -> int:
        """Return the highest start known of a key. A delete of unknown outcome may have happened, so it counts."""
        starts = [0]
        for operation in self.operations:
            if operation.type == OK and operation.f == "ends" and key in operation.value:
                starts.append(operation.value[key][0])
            if operation.type != FAIL and operation.f == "delete" and key in operation.value:
                starts.append(operation.value[key])
        return max(starts)

    def may_be_gone(self, key: int, value: int, offset: int | None) -> bool:
        """Tell whether what lay at an offset was removed on purpose (HIS-21, HIS-30, HIS-40).

        It was below the start, or a later value of its record key is in the log. Of an unknown offset nobody can say, so
        whatever may remove something may have removed it.
        """
        if offset is None:
            return self.starts[key] > 0 or self.compacted
        if offset < self.starts[key]:
            return True
        return self.compacted and any(
            other > offset and abs(each) % RECORD_KEYS == abs(value) % RECORD_KEYS
            for other, values in self.log.get(key, {}).items()
            for each in values
        )

    def last_offset(self, send: Send) -> int | None:
        """Return the last offset at which a value is known to lie, or was said to be put."""
        offsets = self.offsets(send.key, send.value)
        return offsets[-1] if offsets else send.offset

    # --- the last phase ---------------------------------------------------------------------------------------------

    def last_told(self, f: str, key: int) -> Operation | None:
        """Return the last answer of this kind that has the key."""
        told = [each for each in self.operations if each.f == f and each.type == OK and key in each.value]
        return max(told, key=lambda operation: operation.completed, default=None)

    def _reading(self, key: int) -> str:
        """Tell what the last phase says of a key (HIS-27): unread, stuck or read."""
        final, end = self.last_told("final", key), self.last_told("ends", key)
        if final is None or end is None:
            return "unread"
        told = [each for each in self.operations if each.f == "ends" and each.type == OK and key in each.value]
        if not any(before(each, final) for each in told):
            return "unread"
        return "stuck" if final.value[key] < end.value[key][1] else "read"

    def _keys(self) -> list[int]:
        """Return every key of which there are records, or whose start or end is known; of others there is no log."""
        keys = {each.key for each in self.polled} | {send.key for _, send in self.writers.values()}
        for operation in self.operations:
            if (operation.f, operation.type) == ("ends", OK) or (operation.f == "delete" and operation.type != FAIL):
                keys |= set(operation.value)
        return sorted(keys)

    # --- positions --------------------------------------------------------------------------------------------------

    def of_process(self, process: Process) -> list[Operation]:
        return [operation for operation in self.operations if operation.process == process]

    def forgets(self, operation: Operation, key: int) -> bool:
        """Tell whether an operation makes its process's position of a key unknown (HIS-24)."""
        if any(key in event.keys for event in operation.rebalance):
            return True  # whatever became of the operation, the group told its member so
        return self.leaves(operation, key)

    def leaves(self, operation: Operation, key: int) -> bool:
        """Tell whether a process leaves a key, or where it is in it, by itself."""
        if operation.f not in ASSIGNING or operation.type == FAIL:
            return False
        return operation.from_start or key not in (operation.value or ())

    def values(self, operation: Operation, key: int) -> list[Polled]:
        """Return what an operation polled of a key, over its polls in order."""
        return [each for each in self.polled if each.operation is operation and each.key == key]
