"""What ends and starts of logs must never do: go back (HIS-29).

A consumer may give out deleted records all the same, which it had fetched before: that is found, and labelled.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tests.histories.analyser.versions import Finding, Versions
from tests.histories.history import NEVER, OK, Operation, Poll, Process

UNDER_WAY_NS: Final = 30_000_000_000
"""An answer that was fetched before cannot come later than that: clients wait 8 s for one. So it may when one comes."""


class _Deletion(NamedTuple):
    """``line`` and ``time`` of the answer; ``start``: the highest that any answer has told of the key by then."""

    line: int
    time: int
    start: int


def ends_backwards(versions: Versions) -> Iterator[Finding]:
    """Find ends and starts that went back."""
    highest: dict[
        tuple[int, str | None], list[tuple[int, int]]
    ] = {}  # of each key: line of completion, highest end yet
    deleted: dict[int, list[_Deletion]] = {}
    fetched = _Fetched()
    for operation in versions.history.operations:  # by completion
        if operation.type == OK and operation.f == "ends":
            for key, (start, end) in operation.value.items():
                told = highest.setdefault((key, operation.isolation), [])
                before = next((each for each in reversed(told) if each[0] < operation.invoked), None)
                if before is not None and end < before[1]:
                    text = f"the end of key {key} went back from {before[1]} to {end}"
                    yield Finding("end-backwards", key, text, (before[0], operation.completed))
                told.append((operation.completed, max(end, told[-1][1] if told else -1)))
                if deletion := _passed(deleted.get(key, ()), operation, start):
                    yield _start_backwards(operation, key, start, deletion)
        elif operation.type == OK and operation.f == "delete":
            for key, start in operation.value.items():
                of_key = deleted.setdefault(key, [])
                if not of_key or start > of_key[-1].start:
                    of_key.append(_Deletion(operation.completed, operation.time, start))
        if deleted and operation.completed != NEVER:
            yield from _deleted_and_polled(operation, deleted, fetched)
        fetched.take_keys(operation)


def _deleted_and_polled(
    operation: Operation, deleted: dict[int, list[_Deletion]], fetched: "_Fetched"
) -> Iterator[Finding]:
    for number, part in enumerate(operation.parts):
        if type(part) is not Poll:
            continue
        fetched.hear(operation, number)
        for key, (offsets, _) in part.runs.items():
            if deletion := _passed(deleted.get(key, ()), operation, min(offsets)):
                label = "fetched ahead" if fetched.may_be_from_before(deletion, operation.process, key) else ""
                yield _start_backwards(operation, key, min(offsets), deletion, label)
        fetched.give_out(operation, part, deleted)


def _passed(deletions: Sequence[_Deletion], operation: Operation, start: int) -> _Deletion | None:
    """Return the deletion that was answered last before an operation, if this is below: seldom far from the end."""
    newest = next((each for each in reversed(deletions) if each.line < operation.invoked), None)
    return newest if newest is not None and start < newest.start else None


def _start_backwards(operation: Operation, key: int, start: int, deletion: _Deletion, label: str = "") -> Finding:
    text = f"key {key} was there from {start} on after its records below {deletion.start} had been deleted"
    return Finding("start-backwards", key, text, (deletion.line, operation.completed), label)


class _Fetched:
    """What consumers may have fetched and not given out yet: nothing from before these times."""

    def __init__(self) -> None:
        self._begun: dict[tuple[Process, int], int] = {}  # when it asked for the key, or was assigned it
        self._beyond: dict[tuple[Process, int], int] = {}  # when it asked for what lay beyond all that was deleted
        self._empty: dict[Process, int] = {}  # when it asked and had nothing

    def take_keys(self, operation: Operation) -> None:
        """Note who begins anew; who subscribes does so only when its group tells it."""
        if operation.f == "assign":
            self._begun.update({(operation.process, key): operation.time_invoked for key in operation.value or ()})
        elif operation.rebalance:
            self.hear(operation, NEVER)

    def hear(self, operation: Operation, part: int) -> None:
        """Note what was assigned to it by the time of that part."""
        for event in operation.rebalance:
            if event.what == "assigned" and event.part <= part:
                self._begun.update({(operation.process, key): event.time for key in event.keys})

    def give_out(self, operation: Operation, poll: Poll, deleted: dict[int, list[_Deletion]]) -> None:
        """Note what a poll shows of what is left: it comes in order."""
        if not poll.runs and operation.type == OK:
            self._empty[operation.process] = operation.time_invoked
        for key, (offsets, _) in poll.runs.items():
            if key in deleted and max(offsets) >= deleted[key][-1].start:
                self._beyond[operation.process, key] = operation.time_invoked

    def may_be_from_before(self, deletion: _Deletion, process: Process, key: int) -> bool:
        """Tell whether what a process is given of a key may have been fetched before that."""
        of = (process, key)
        return (
            self._begun.get(of, -1) < deletion.time
            and self._beyond.get(of, -1) < deletion.time
            and self._empty.get(process, -1) < deletion.time + UNDER_WAY_NS
        )
