"""What a producer must never see: its values in another order than it sent them."""

from collections.abc import Iterator

from tests.histories.analyser.versions import Finding, Versions
from tests.histories.history import FAIL, Operation, Process


def sends(versions: Versions) -> Iterator[Finding]:
    """Find reordered sends, and values of others between those of a transaction (HIS-26)."""
    highest: dict[tuple[Process, int], tuple[int, int, int]] = {}  # process and key -> place, value, line
    for operation in versions.history.operations:
        if operation.type == FAIL:
            continue
        mine: dict[int, list[tuple[int, int]]] = {}
        last: dict[int, tuple[int, int] | None] = {}  # key -> the send before; None: nobody knows its place
        for send in operation.sends:
            place = versions.orders[send.key].index.get(send.value)
            if place is None:
                last[send.key] = None
                continue
            mine.setdefault(send.key, []).append((place, send.value))
            if (before := last.get(send.key)) is not None:
                yield from _inside(versions, operation, send.key, before, (place, send.value))
            last[send.key] = (place, send.value)
        for key, places in mine.items():
            at = (operation.process, key)
            lowest, most = min(places), max(places)
            if at in highest and lowest[0] < highest[at][0]:
                _, value, line = highest[at]
                text = f"process {operation.process} sent {lowest[1]} to key {key} after {value}, but it lies before"
                yield Finding("nonmonotonic-send", key, text, (line, operation.completed))
            if at not in highest or most[0] > highest[at][0]:
                highest[at] = (*most, operation.completed)


def _inside(
    versions: Versions, operation: Operation, key: int, one: tuple[int, int], other: tuple[int, int]
) -> Iterator[Finding]:
    (before, earlier), (here, value) = one, other
    if here < before:
        text = f"process {operation.process} sent {value} to key {key} after {earlier}, but it lies before"
        yield Finding("int-nonmonotonic-send", key, text, (operation.completed,))
    elif here > before + 1 and operation.transactional:
        order, own = versions.orders[key], {send.value for send in operation.sends}
        if any(own.isdisjoint({each}) for place in range(before + 1, here) for each in order.all_values(place)):
            text = f"others' values lie between {earlier} and {value} of one transaction in key {key}"
            yield Finding("int-send-skip", key, text, (operation.completed,))
