"""How long consumers have not been given what was known to be there (HIS-34): figures, and a key that stays stuck."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from tests.histories.analyser.versions import Finding, Versions
from tests.histories.history import ASSIGNING, FAIL, NEVER, OK, History, Operation, Poll, Process, Send

STALLED_NS: Final = 30 * 10**9
QUIET_NS: Final = 60 * 10**9
"""So long before a stall all faults must have ended. The simulation does not tell that of its own: it has figures alone."""
_POLLING: Final = frozenset({"poll", "mixed", "txn"})
_PAUSE_NS: Final = 5 * 10**9  # who does not poll for so long has not polled throughout


class Wait(NamedTuple):
    """What a poll was late by, and the line of its invocation."""

    ns: int
    line: int


_NONE: Final = Wait(-1, -1)


class Lag(NamedTuple):
    """The worst of a process on a key.

    ``lag``: since the next offset was known to exist. ``stall``: the same, but counted from when the process was assigned
    the key or last polled a value of it, if that was later.
    """

    process: Process
    key: int
    lag: Wait
    stall: Wait


class Lags(NamedTuple):
    """Of each process and key that waited at all; ``stuck``: what is no mere figure any more."""

    worst: tuple[Lag, ...]
    stuck: tuple[Finding, ...]

    def lines(self) -> Iterator[str]:
        """Yield the worst of all, if anybody waited."""
        if self.worst:
            lag, stall = max(self.worst, key=lambda one: one.lag.ns), max(self.worst, key=lambda one: one.stall.ns)
            yield (
                f"realtime-lag: at most {lag.lag.ns / 1e9:.1f} s, process {lag.process} of key {lag.key} "
                f"[line {lag.lag.line}]; stall: at most {stall.stall.ns / 1e9:.1f} s, process {stall.process} of key "
                f"{stall.key} [line {stall.stall.line}]"
            )


class _Known:
    """From when on the offsets of a key are known to exist: from the first operation that shows one or a higher one."""

    def __init__(self, shown: Mapping[int, int], start: int) -> None:
        self._start = start
        self._offsets = sorted(shown)
        self._times = [shown[offset] for offset in self._offsets]
        for place in range(len(self._times) - 2, -1, -1):
            self._times[place] = min(self._times[place], self._times[place + 1])

    def since(self, offset: int) -> int:
        """Return from when on an offset is known; one below the log's start may have been deleted: the start, then."""
        place = bisect_left(self._offsets, max(offset, self._start))
        return self._times[place] if place < len(self._times) else NEVER


class _Reader:
    """One process: from when on the next offset of each key is known, and since when it has had a chance to get it."""

    def __init__(self, known: Mapping[int, _Known]) -> None:
        self._known = known
        self._there: dict[int, int] = {}
        self._since: dict[int, int] = {}
        self._polls_since = self._polled = -NEVER
        self._lags: dict[int, Wait] = {}
        self._stalls: dict[int, Wait] = {}

    def assign(self, operation: Operation) -> None:
        """Begin the keys at their starts; one that it goes on with stays where it is. A group's begin when first polled."""
        kept = {} if operation.from_start else self._there
        keys = [key for key in operation.value or () if operation.f == "assign" or key in kept]
        self._there = {key: kept[key] if key in kept else self._when(key, 0) for key in keys}
        self._since = dict.fromkeys(keys, operation.time)

    def _when(self, key: int, offset: int) -> int:
        return self._known[key].since(offset) if key in self._known else NEVER

    def look(self, operation: Operation) -> list[tuple[int, int]]:
        """Note what was there already when a poll was asked for; return key and begin of each long stall."""
        asked = operation.time_invoked
        if asked - self._polled > _PAUSE_NS:
            self._polls_since = asked
        stalled = []
        for key, there in self._there.items():
            if there >= asked:
                continue
            begun = max(there, self._since[key])
            if asked - there > self._lags.get(key, _NONE).ns:
                self._lags[key] = Wait(asked - there, operation.invoked)
            if asked - begun > self._stalls.get(key, _NONE).ns:
                self._stalls[key] = Wait(asked - begun, operation.invoked)
            if asked - begun > STALLED_NS and self._polls_since <= begun + _PAUSE_NS:
                stalled.append((key, begun))
        self._polled = operation.time
        if operation.time - asked > _PAUSE_NS:  # who knows what it did beside its poll
            self._polls_since = operation.time
        return stalled

    def take(self, operation: Operation) -> None:
        """Move on behind what was polled, of keys that did not change hands meanwhile."""
        moved = operation.moved
        for poll in operation.polls:
            for key, (offsets, _) in poll.runs.items():
                if key not in moved:
                    self._there[key] = self._when(key, max(offsets) + 1)
                    self._since[key] = operation.time

    def worst(self) -> Iterator[tuple[int, Wait, Wait]]:
        """Yield each key that it waited for, with its longest lag and stall."""
        yield from ((key, self._lags[key], self._stalls[key]) for key in sorted(self._lags))

    def lose(self, keys: Collection[int]) -> None:
        """Forget where it was: they were taken from it, or given to it anew."""
        for key in keys:
            self._there.pop(key, None)


def lags(versions: Versions) -> Lags:
    """Measure each poll against what was known when it was asked for.

    Of compacted keys there are figures alone: what a reader waits for may have been compacted away.
    """
    known = {key: _Known(shown, versions.order(key).start) for key, shown in _shown(versions).items()}
    quiet = _Quiet(versions.history)
    readers: dict[Process, _Reader] = {}
    stuck: dict[int, tuple[Wait, Process]] = {}
    for operation in versions.history.operations:
        reader = readers.get(operation.process)
        if reader is None:
            reader = readers[operation.process] = _Reader(known)
        reader.lose(operation.moved)
        if operation.f in ASSIGNING and operation.type != FAIL:
            reader.assign(operation)
        elif operation.f in _POLLING:
            if operation.type == OK and operation.polls:
                for key, begun in reader.look(operation):
                    stall = Wait(operation.time_invoked - begun, operation.invoked)
                    if stall.ns > stuck.get(key, (_NONE, ""))[0].ns and quiet.between(
                        begun - QUIET_NS, operation.time_invoked
                    ):
                        stuck[key] = (stall, operation.process)
            reader.take(operation)
    worst = [Lag(who, *each) for who, reader in readers.items() for each in reader.worst()]
    findings = []
    for key, (wait, who) in sorted(stuck.items()) if not versions.compacted else ():
        text = f"process {who} polled for {wait.ns / 1e9:.0f} s and got nothing of key {key}"
        findings.append(Finding("stuck", key, text, (wait.line,)))
    return Lags(tuple(worst), tuple(findings))


def _shown(versions: Versions) -> dict[int, dict[int, int]]:
    """Return for each key what was shown at first when: the highest offset alone of each run."""
    shown: dict[int, dict[int, int]] = {}
    for operation in versions.history.operations:
        for part in operation.parts:
            if type(part) is Poll:
                for key, (offsets, _) in part.runs.items():
                    shown.setdefault(key, {}).setdefault(max(offsets), operation.time)
            elif type(part) is Send and part.offset is not None and operation.outcome(part) == OK:
                shown.setdefault(part.key, {}).setdefault(part.offset, operation.time)
    return shown


class _Quiet:
    """When no fault was under way. One whose end is not told has none."""

    def __init__(self, history: History) -> None:
        spans = history.fault_spans(lambda told: told["faults"])
        self._begins = sorted(end if begun is None else begun for begun, end in spans)
        self._ends = sorted(at for _, at in spans)

    def between(self, start: int, end: int) -> bool:
        """Tell whether all that began before ``end`` was over at ``start``."""
        return bisect_left(self._begins, end) == bisect_right(self._ends, start)
