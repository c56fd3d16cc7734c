"""What a consumer must never be given: values out of order, or with others left out."""

import itertools
from collections.abc import Iterator, Sequence

from tests.histories.analyser.versions import Finding, Order, Versions
from tests.histories.history import ASSIGNING, FAIL, OK, Operation, Poll, Process


def polls(versions: Versions) -> Iterator[Finding]:
    """Find skips and repeats, from operation to operation and inside one (HIS-24, HIS-25)."""
    positions: dict[Process, dict[int, tuple[int | None, int]]] = {}  # process -> key -> place of its last value, line
    for operation in versions.history.operations:
        mine = positions.setdefault(operation.process, {})
        if operation.f in ASSIGNING and operation.type != FAIL:
            kept = () if operation.from_start else operation.value or ()
            mine = positions[operation.process] = {key: mine[key] for key in kept if key in mine}
        moved = operation.moved
        for key in moved:
            mine.pop(key, None)
        lasts: dict[int, tuple[int | None, int]] = {}  # what the operation polled last of each key, and by which part
        for number, part in enumerate(operation.parts):
            if type(part) is not Poll:
                continue
            for key, (_, values) in part.runs.items():
                order = versions.orders[key]
                first = order.index.get(values[0])  # type: ignore[arg-type]
                if key in lasts:
                    if key not in moved:
                        yield from _judge(versions, operation, key, lasts[key][0], first, "int-", ())
                elif key in mine and key not in moved:
                    place, line = mine[key]
                    yield from _judge(versions, operation, key, place, first, "", (line,))
                if (
                    len(values) > 1
                    and key not in moved
                    and (first is None or order.values[first : first + len(values)] != values)
                ):
                    yield from _inside(versions, operation, key, values)
                lasts[key] = order.index.get(values[-1]), number  # type: ignore[arg-type]
        if operation.type == OK:
            for key, (place, number) in lasts.items():
                if key not in moved or not _is_moved_behind(operation, key, number):
                    mine[key] = (place, operation.completed)


def _is_moved_behind(operation: Operation, key: int, number: int) -> bool:
    """Tell whether a key changed hands after a part of an operation had polled it."""
    return any(event.part > number for event in operation.rebalance if key in event.keys)


def _inside(versions: Versions, operation: Operation, key: int, values: Sequence[int | None]) -> Iterator[Finding]:
    places = [versions.orders[key].index.get(value) for value in values]  # type: ignore[arg-type]
    for before, here in itertools.pairwise(places):
        yield from _judge(versions, operation, key, before, here, "int-", ())


def _judge(
    versions: Versions,
    operation: Operation,
    key: int,
    before: int | None,
    here: int | None,
    prefix: str,
    lines: tuple[int, ...],
) -> Iterator[Finding]:
    """Compare two places polled one after the other; an unclear one compares with nothing."""
    if before is None or here is None or here == before + 1:
        return
    order = versions.orders[key]
    shown = (*lines, operation.completed)
    if here <= before:
        text = f"process {operation.process} got {order.values[here]} of key {key} after {order.values[before]}"
        yield Finding(f"{prefix}nonmonotonic-poll", key, text, shown)
    elif missing := _missing(versions, order, before, here):
        named = ", ".join(map(str, missing[:5])) + (" ..." if len(missing) > 5 else "")
        text = f"process {operation.process} got {order.values[here]} of key {key} after {order.values[before]}, not {named}"
        yield Finding(f"{prefix}poll-skip", key, text, shown)


def _missing(versions: Versions, order: Order, before: int, here: int) -> list[int]:
    return [
        value
        for place in range(before + 1, here)
        for value in order.all_values(place)
        if not versions.is_removed(order, value, order.offsets[place])
    ]
