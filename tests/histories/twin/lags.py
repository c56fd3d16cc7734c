"""The literal twin's lags (the figures of section 5): each poll looks back over the whole history.

Where the specification is silent both analysers have one rule: what lies below a key's highest start is not waited for; a
key that changed hands is not waited for until it is assigned or polled anew; who fails has got what it polled all the same;
to poll throughout is to leave no more than five seconds between two polls, and to take no longer for one.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from tests.histories.history import ASSIGNING, FAIL, NEVER, OK, Operation, Poll, Process, Send
from tests.histories.twin.facts import Facts

_S = 10**9
_PAUSE_NS, _STALL_NS, _QUIET_NS = 5 * _S, 30 * _S, 60 * _S


class Wait(NamedTuple):
    """What an ok poll was late by on one key: since the next offset was known, and since the process could get it."""

    poll: Operation
    key: int
    lag: int
    stall: int

    @property
    def begun(self) -> int:
        return self.poll.time_invoked - self.stall


def waits(facts: Facts) -> Iterator[Wait]:
    """Yield each wait of each poll."""
    for poll in facts.operations:
        for key in facts.keys if _looks(poll) else ():
            position, since = _position(facts, poll, key)
            if position is not None:
                known = _known_since(facts, key, max(position, facts.starts[key]))
                if known < poll.time_invoked:
                    asked = poll.time_invoked
                    yield Wait(poll, key, asked - known, asked - max(known, since))


def worst(facts: Facts) -> set[tuple[Process, int, int, int]]:
    """Return the longest lag and the longest stall of each process and key that waited."""
    found: dict[tuple[Process, int], tuple[int, int]] = {}
    for wait in waits(facts):
        lag, stall = found.get((wait.poll.process, wait.key), (0, 0))
        found[wait.poll.process, wait.key] = max(lag, wait.lag), max(stall, wait.stall)
    return {(*of, *figures) for of, figures in found.items()}


def stuck(facts: Facts) -> set[int]:
    """Return the keys of which somebody got nothing though it polled throughout, long after all faults (HIS-27)."""
    return {
        wait.key
        for wait in waits(facts)
        if not facts.compacted and wait.stall > _STALL_NS
        if _polled_throughout(facts, wait) and _is_quiet(facts, wait)
    }


def _looks(operation: Operation) -> bool:
    return operation.type == OK and bool(operation.polls)


def _position(facts: Facts, poll: Operation, key: int) -> tuple[int | None, int]:
    """Return the next offset that a process waits for, None if it waits for none, and since when it could get it."""
    position, since = None, -NEVER
    for operation in facts.of_process(poll.process):
        has_moved = any(key in event.keys for event in operation.rebalance)
        if has_moved:
            position = None
        if operation is poll:
            break
        if operation.f in ASSIGNING and operation.type != FAIL:
            if operation.from_start or key not in (operation.value or ()):
                position = None
            if position is None and operation.f == "assign" and key in (operation.value or ()):
                position = 0
            since = operation.time
        for part in operation.parts:
            if isinstance(part, Poll) and key in part.runs and not has_moved:
                position, since = max(part.runs[key][0]) + 1, operation.time
    return position, since


def _known_since(facts: Facts, key: int, offset: int) -> int:
    """Return when somebody was first shown an offset or a higher one."""
    shown = [NEVER]
    for operation in facts.operations:
        for part in operation.parts:
            offsets: tuple[int | None, ...] = ()
            if isinstance(part, Poll) and key in part.runs:
                offsets, _ = part.runs[key]
            elif isinstance(part, Send) and part.key == key and facts.is_acknowledged(operation, part):
                offsets = (part.offset,)
            if any(each is not None and each >= offset for each in offsets):
                shown.append(operation.time)
    return min(shown)


def _polled_throughout(facts: Facts, wait: Wait) -> bool:
    polls = [each for each in facts.of_process(wait.poll.process) if _looks(each) and each.invoked <= wait.poll.invoked]
    pauses = [polls[0].time_invoked]  # when each of its pauses was over
    pauses += [each.time for each in polls[:-1] if each.time - each.time_invoked > _PAUSE_NS]
    pauses += [b.time_invoked for a, b in pairwise(polls) if b.time_invoked - a.time > _PAUSE_NS]
    return max(pauses) <= wait.begun + _PAUSE_NS


def _is_quiet(facts: Facts, wait: Wait) -> bool:
    """Tell whether each fault was over a minute before a stall began, or came after it.

    One whose begin is not told was there when it ended; one whose end is not told goes on.
    """
    lines = [(facts.history.times[line["index"]], line["value"]) for line in facts.history.faults]
    for number, (time, value) in enumerate(lines):
        for fault in value["faults"]:
            ends = [at for at, other in lines[number:] if not other["begins"] and fault in other["faults"]]
            end = ends[0] if ends else NEVER
            if time < wait.poll.time_invoked and end > wait.begun - _QUIET_NS:
                return False
    return True
