"""What a group must never show: two owners, commits of the past, and offsets lost, moved back or passed over."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tests.histories.analyser.versions import Finding, Versions
from tests.histories.history import ASSIGNING, FAIL, NEVER, OK, Commit, History, Operation, Poll, Process, Rebalance

_FORMER_NS: Final = 30_000_000_000
"""How long a broker may not have heard that another one coordinates a group: a session, and a controller that is new."""


def _events(versions: Versions) -> list[tuple[Rebalance, Operation]]:
    found = [(event, o) for o in versions.history.operations for event in o.rebalance if o.group is not None]
    return sorted(found, key=lambda each: each[0].time)


def owners(versions: Versions) -> Iterator[Finding]:
    """Find keys that two members had in one generation (HIS-35), and commits of members that were replaced (HIS-36)."""
    owner: dict[tuple[str | None, int, int], tuple[str | None, int]] = {}
    assigned: dict[str | None, list[tuple[int, int, str | None, int]]] = defaultdict(list)
    for event, operation in _events(versions):
        if event.generation is None:
            continue
        for key in event.keys:
            of = (operation.group, event.generation, key)
            member, line = owner.get(of, (operation.member, 0))
            if event.what != "assigned":
                if member == operation.member:
                    owner.pop(of, None)
            else:
                if member != operation.member:
                    text = f"{member} and {operation.member} had key {key} in generation {event.generation}"
                    yield Finding("owner-overlap", key, text, tuple(sorted((line, operation.completed))))
                owner[of] = (operation.member, operation.completed)
        if event.what == "assigned":
            assigned[operation.group].append((event.time, event.generation, operation.member, operation.completed))
    for operation in versions.history.operations:
        if operation.generation is None:
            continue
        for commit in operation.commits:
            taken = commit.outcome == OK and commit.offsets  # of no offsets nothing was asked
            for time, generation, member, line in assigned[operation.group] if taken else ():
                if time < operation.time_invoked and generation > operation.generation and member != operation.member:
                    text = f"a commit of generation {operation.generation} was taken when {generation} had begun"
                    yield Finding("zombie-commit", next(iter(commit.offsets), None), text, (line, operation.completed))
                    break


class _Highest(NamedTuple):
    """The highest offset up to a moment, and the last line that told it."""

    offset: int
    line: int


class _Series:
    """The highest offset of commits up to a moment, by line or by time."""

    def __init__(self) -> None:
        self._lines: list[int] = []
        self._times: list[int] = []
        self._highest: list[_Highest] = []
        self._offsets: list[int] = []

    def add(self, line: int, time: int, offset: int) -> None:
        self._lines.append(line)
        self._times.append(time)
        self._offsets.append(offset)
        highest = self._highest[-1] if self._highest else None
        self._highest.append(highest if highest and highest.offset > offset else _Highest(offset, line))

    def before_line(self, line: int) -> _Highest | None:
        return self._at(bisect_left(self._lines, line))

    def before_line_without(self, line: int, own: int) -> int | None:
        """Leave out what was told in one line; from there on it is few that are looked at one by one."""
        until = self.before_line(own)
        at, end = bisect_left(self._lines, own + 1), bisect_left(self._lines, line)
        return max((*self._offsets[at:end], *((until.offset,) if until else ())), default=None)

    def has_before_line(self, line: int, offset: int) -> bool:
        return offset in self._offsets[: bisect_left(self._lines, line)]

    def before_time(self, time: int) -> _Highest | None:
        return self._at(bisect_left(self._times, time))

    def _at(self, count: int) -> _Highest | None:
        return self._highest[count - 1] if count else None


class Untold:
    """Which operations of a group never completed: what they polled, and committed, no line tells.

    ``polls`` and ``commits``: by group, the lines in which those were asked for that may have done so.
    """

    def __init__(self, versions: Versions) -> None:
        self.polls: dict[str | None, list[int]] = defaultdict(list)
        self.commits: dict[str | None, list[int]] = defaultdict(list)
        for operation in versions.history.operations:
            if operation.completed == NEVER and operation.group is not None:
                if operation.polls:
                    self.polls[operation.group].append(operation.invoked)
                if any(not commit.offsets for commit in operation.commits):
                    self.commits[operation.group].append(operation.invoked)

    def may_have_polled(self, group: str | None, before: int) -> bool:
        """Tell whether a member may have got whatever is asked for, before that line."""
        return any(line < before for line in self.polls.get(group, ()))

    def may_have_committed(self, group: str | None, before: int) -> bool:
        return any(line < before for line in self.commits.get(group, ()))


class _Committed:
    """low and high of HIS-37: what certainly was, and what may have been, committed at a moment."""

    def __init__(self, versions: Versions) -> None:
        self.low: dict[tuple[str | None, int], _Series] = defaultdict(_Series)
        self.high: dict[tuple[str | None, int], _Series] = defaultdict(_Series)
        with_commits = [o for o in versions.history.operations if o.group is not None and o.commits]
        for operation in with_commits:
            for commit in operation.commits:
                for key, to in commit.offsets.items() if commit.outcome == OK else ():
                    self.low[operation.group, key].add(operation.completed, operation.time, to)
        for operation in sorted(with_commits, key=lambda o: o.invoked):
            for commit in operation.commits:
                for key, to in commit.offsets.items() if commit.outcome != FAIL else ():
                    self.high[operation.group, key].add(operation.invoked, operation.time_invoked, to)


class _Answer(NamedTuple):
    """What was told of one key; nothing committed is -1."""

    operation: Operation
    key: int
    offset: int


def _step(told: Mapping[str, Any]) -> Iterable[object]:
    """Name a step of faults; what an administrator does to topics and groups is none, and moves no coordinator."""
    step = told.get("step")
    return (step,) if isinstance(step, int) else ()


class _FormerCoordinators:
    """Which answers may be those of a broker that had not heard yet that another one coordinates the group.

    Kafka's answers to OffsetFetch come out of the coordinator's memory, and it asks nobody whether it still is one.
    """

    def __init__(self, history: History, committed: _Committed, answers: Sequence[_Answer]) -> None:
        self._committed = committed
        self._answers = answers
        self._faults = [  # and what comes of them
            (begun, end + _FORMER_NS) for begun, end in history.fault_spans(_step) if begun is not None
        ]

    def label(self, answer: _Answer, newer: int) -> str:
        """Return "old" if the offset was committed before ``newer``, of late, and ``newer`` was told afterwards.

        So nothing was lost, and nothing told but what had been so: who never tells it again, tells none, or tells what
        has not been so for longer than it takes to hear of another coordinator, has lost it.
        """
        operation, key, offset = answer
        of = (operation.group, key)
        was = self._committed.low[of].before_time(operation.time_invoked - _FORMER_NS)
        is_old = (
            any(begun <= operation.time and operation.time_invoked <= over for begun, over in self._faults)
            and self._committed.high[of].has_before_line(operation.invoked, offset)
            and (was is None or was.offset <= offset)
            and any(
                other.operation.invoked > operation.completed and other.offset >= newer
                for other in self._answers
                if (other.operation.group, other.key) == of
            )
        )
        return "old" if is_old else ""


def committed_offsets(versions: Versions) -> Iterator[Finding]:
    """Find commits that were forgotten, went back, or were resumed beyond (HIS-37)."""
    committed, untold = _Committed(versions), Untold(versions)
    told: dict[tuple[str | None, int], _Series] = defaultdict(_Series)
    answers = [
        _Answer(operation, key, -1 if offset is None else offset)
        for operation in versions.history.operations
        if operation.f == "committed" and operation.type == OK
        for key, offset in operation.value.items()
    ]
    former = _FormerCoordinators(versions.history, committed, answers)
    for answer in answers:
        operation, key, at = answer
        of = (operation.group, key)
        shown = "nothing" if at < 0 else at
        low = committed.low[of].before_line(operation.invoked)
        if low is not None and at < low.offset:
            text = f"group {operation.group} had committed {low.offset} of key {key}; then {shown} was told"
            yield Finding("commit-lost", key, text, (operation.completed, low.line), former.label(answer, low.offset))
        before = told[of].before_line(operation.invoked)
        if before is not None and at < before.offset:
            text = f"of group {operation.group} and key {key} {before.offset} was told, then {shown}"
            lines = (operation.completed, before.line)
            yield Finding("commit-backwards", key, text, lines, former.label(answer, before.offset))
        told[of].add(operation.completed, operation.time, at)
    for resume in resumes(versions):
        yield from _judged(versions, committed, untold, resume)


class Resume(NamedTuple):
    """The first record that a member polled of a key it had been assigned; ``part`` of its operation is the poll."""

    operation: Operation
    part: int
    key: int
    offset: int
    assigned: Rebalance


def resumes(versions: Versions) -> Iterator[Resume]:
    fresh: dict[Process, dict[int, Rebalance]] = {}  # process -> keys assigned of which nothing was polled yet
    for operation in versions.history.operations:
        mine = fresh.get(operation.process, {})
        if operation.f in ASSIGNING and operation.type != FAIL:
            kept = () if operation.from_start else operation.value or ()
            mine = {key: event for key, event in mine.items() if key in kept}
        if mine or operation.rebalance:
            yield from _resumed(operation, mine)
        fresh[operation.process] = mine


def _resumed(operation: Operation, fresh: dict[int, Rebalance]) -> Iterator[Resume]:
    """Go through the events and polls of an operation as they came one after the other."""
    events = list(operation.rebalance)
    for number, part in enumerate(operation.parts):
        while events and events[0].part <= number:
            _hear(operation, events.pop(0), fresh)
        for key, (offsets, _) in part.runs.items() if type(part) is Poll else ():
            assigned = fresh.pop(key, None)
            if assigned is not None:
                yield Resume(operation, number, key, offsets[0], assigned)
    for event in events:
        _hear(operation, event, fresh)


def _hear(operation: Operation, event: Rebalance, fresh: dict[int, Rebalance]) -> None:
    for key in event.keys:
        fresh.pop(key, None)
        if event.what == "assigned" and operation.group is not None:
            fresh[key] = event


def _judged(versions: Versions, committed: _Committed, untold: Untold, resume: Resume) -> Iterator[Finding]:
    """Judge one resume. What its operation commits behind it is asked for later."""
    operation, key, at = resume.operation, resume.key, resume.offset
    of, order = (operation.group, key), versions.orders[key]
    low = committed.low[of].before_time(resume.assigned.time)
    if low is not None and at < low.offset:
        text = f"group {operation.group} had committed {low.offset} of key {key}; its next owner resumed at {at}"
        yield Finding("commit-lost", key, text, (operation.completed, low.line))
    high = committed.high[of].before_line_without(operation.completed, operation.invoked)
    own = _committed_itself(operation, resume.part).get(key)
    first = order.place_from(max(high or 0, own or 0, order.start))
    passed = [
        value
        for place in range(first, order.place_from(at))
        if (value := order.values[place]) is not None and not versions.is_removed(order, value, order.offsets[place])
    ]
    if passed and not untold.may_have_committed(operation.group, operation.completed):
        text = f"group {operation.group} resumed key {key} at {at}, past {passed[0]}"
        yield Finding("resume-skip", key, text, (operation.completed, *versions.witnesses(key, passed[0])))


def _committed_itself(operation: Operation, before: int | None = None) -> dict[int, int]:
    """Return the highest offset of each key that the operation may have committed, or its parts before one."""
    found: dict[int, int] = {}
    for part in operation.parts[:before]:
        if type(part) is Commit and operation.outcome(part) != FAIL:
            for key, to in part.offsets.items():
                found[key] = max(to, found.get(key, -1))
    return found


class _Passing(NamedTuple):
    """One commit of a key: the line at which it was asked for at the latest."""

    line: int
    offset: int
    certain: bool
    operation: int
    part: int


class _Passes:
    """Tells of an offset the first commit that certainly passed it, else the last that may have."""

    def __init__(self, commits: Sequence[_Passing]) -> None:
        self._first = _rising(commit for commit in commits if commit.certain)
        self._last = _rising(reversed(commits))

    def of(self, offset: int) -> _Passing | None:
        for commits in (self._first, self._last):
            place = bisect_right(commits, offset, key=_offset)
            if place < len(commits):
                return commits[place]
        return None


def _offset(commit: _Passing) -> int:
    return commit.offset


def _rising(commits: Iterable[_Passing]) -> list[_Passing]:
    """Return those whose offset is above all before them."""
    found: list[_Passing] = []
    for commit in commits:
        if not found or commit.offset > found[-1].offset:
            found.append(commit)
    return found


def group_skips(versions: Versions) -> Iterator[Finding]:
    """Find values that a group committed past without any of its members having got them (HIS-38)."""
    polled: dict[tuple[str | None, int], dict[int | None, list[tuple[int, int, int]]]] = defaultdict(dict)
    passing: dict[tuple[str | None, int], list[_Passing]] = defaultdict(list)
    last: dict[tuple[str | None, int], int] = {}
    untold = Untold(versions)
    for operation in versions.history.operations:
        if operation.group is None:
            continue
        own, name = _committed_itself(operation), operation.invoked
        for number, part in enumerate(operation.parts):
            for key, (offsets, values) in part.runs.items() if type(part) is Poll else ():
                mine = polled[operation.group, key]
                # What it committed itself may have been passed, and resumed from, long before it was over.
                early, late = (operation.invoked, name, number), (operation.completed, name, number)
                for offset, value in zip(offsets, values, strict=True):
                    mine.setdefault(value, []).append(early if offset < own.get(key, -1) else late)
            if type(part) is Commit:
                outcome = operation.outcome(part)
                # A commit behind polls of its operation is asked for at some moment after them.
                line = operation.completed if operation.polls else operation.invoked
                for key, to in part.offsets.items() if outcome != FAIL else ():
                    passing[operation.group, key].append(_Passing(line, to, outcome == OK, name, number))
        if operation.f == "committed" and operation.type == OK:
            last.update({(operation.group, key): to or 0 for key, to in operation.value.items()})
    for (group, key), to in sorted(last.items(), key=str):
        order, mine = versions.order(key), polled[group, key]
        passes = _Passes(passing[group, key])
        for place in range(order.place_from(to)):
            value, offset = order.values[place], order.offsets[place]
            if value not in order.seen or value is None or versions.is_removed(order, value, offset):
                continue
            by = passes.of(offset)
            if untold.may_have_polled(group, NEVER if by is None else by.line):
                continue
            if not any(
                by is None or (number < by.part if name == by.operation else line < by.line)
                for line, name, number in mine.get(value, ())
            ):
                text = f"group {group} committed past {value} at {offset} of key {key}, which no member had got"
                lines = (*versions.witnesses(key, value), *((by.line,) if by and by.line != NEVER else ()))
                yield Finding("group-skip", key, text, lines)
