"""An operation in words: when it was, in which lines it stands, what it did and what came of it."""

from typing import Final

from tests.histories.history import NEVER, Commit, Operation, Part, Poll, Send

SHORT: Final = 6  # records of a poll that are told one by one
LONG: Final = 40


def told(operation: Operation, origin: int, most: int = SHORT) -> str:
    """Return all of it; times count from ``origin``. Of a poll no more than so many records of each key are told."""
    parts = [_part(part, most) for part in operation.parts]
    said = "; ".join(parts) if parts else "" if operation.value is None else str(operation.value)[: most * 20]
    return f"{operation.f} {operation.type}, {where(operation)}, {when(operation, origin)}: {said}"


def where(operation: Operation) -> str:
    if operation.completed == NEVER:
        return f"line {operation.invoked}"
    return f"lines {operation.invoked} to {operation.completed}"


def when(operation: Operation, origin: int) -> str:
    begun = (operation.time_invoked - origin) / 1e9
    if operation.time == NEVER:
        return f"from {begun:,.3f} s on, never answered"
    return f"{begun:,.3f} to {(operation.time - origin) / 1e9:,.3f} s"


def _part(part: Part, most: int) -> str:
    if isinstance(part, Send):
        place = "without a place" if part.offset is None else f"at {part.offset}"
        source = f", made from key {part.source[0]} at {part.source[1]}" if part.source else ""
        return f"sent {part.value} to key {part.key} {place} ({part.outcome}{source})"
    if isinstance(part, Poll):
        return "polled " + (", ".join(_run(part, key, most) for key in part.runs) or "nothing")
    assert isinstance(part, Commit)
    return f"committed {part.offsets} ({part.outcome})"


def _run(poll: Poll, key: int, most: int) -> str:
    offsets, values = poll.runs[key]
    pairs = [f"{value} at {offset}" for offset, value in zip(offsets, values, strict=True)]
    more = f" and {len(pairs) - most} more" if len(pairs) > most else ""
    return f"of key {key} {', '.join(pairs[:most])}{more}"
