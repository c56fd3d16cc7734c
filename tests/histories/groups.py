"""What a group must never show: two owners, commits of the past, and offsets lost, moved back or passed over."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator

from tests.histories.history import ASSIGNING, FAIL, NEVER, OK, Operation, Process, Rebalance
from tests.histories.versions import Finding, Versions


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
            for time, generation, member, line in assigned[operation.group] if commit.outcome == OK else ():
                if time < operation.time_invoked and generation > operation.generation and member != operation.member:
                    text = f"a commit of generation {operation.generation} was taken when {generation} had begun"
                    yield Finding("zombie-commit", next(iter(commit.offsets), None), text, (line, operation.completed))
                    break


class _Series:
    """The highest offset of commits up to a moment, by line or by time."""

    def __init__(self) -> None:
        self._lines: list[int] = []
        self._times: list[int] = []
        self._highest: list[int] = []
        self._offsets: list[int] = []

    def add(self, line: int, time: int, offset: int) -> None:
        self._lines.append(line)
        self._times.append(time)
        self._offsets.append(offset)
        self._highest.append(max(offset, self._highest[-1] if self._highest else offset))

    def before_line(self, line: int) -> int | None:
        return self._at(bisect_left(self._lines, line))

    def before_line_without(self, line: int, own: int) -> int | None:
        """Leave out what was told in one line; from there on it is few that are looked at one by one."""
        until = self.before_line(own)
        at, end = bisect_left(self._lines, own + 1), bisect_left(self._lines, line)
        return max((each for each in (until, *self._offsets[at:end]) if each is not None), default=None)

    def before_time(self, time: int) -> int | None:
        return self._at(bisect_left(self._times, time))

    def _at(self, count: int) -> int | None:
        return self._highest[count - 1] if count else None


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


def committed_offsets(versions: Versions) -> Iterator[Finding]:
    """Find commits that were forgotten, went back, or were resumed beyond (HIS-37)."""
    committed = _Committed(versions)
    told: dict[tuple[str | None, int], _Series] = defaultdict(_Series)
    for operation in versions.history.operations:
        if operation.f == "committed" and operation.type == OK:
            for key, offset in operation.value.items():
                of = (operation.group, key)
                at = -1 if offset is None else offset
                low = committed.low[of].before_line(operation.invoked)
                if low is not None and at < low:
                    text = f"group {operation.group} had committed {low} of key {key}; then {offset} was told"
                    yield Finding("commit-lost", key, text, (operation.completed,))
                before = told[of].before_line(operation.invoked)
                if before is not None and at < before:
                    text = f"of group {operation.group} and key {key} {before} was told, then {offset}"
                    yield Finding("commit-backwards", key, text, (operation.completed,))
                told[of].add(operation.completed, operation.time, at)
    yield from _resumes(versions, committed)


def _resumes(versions: Versions, committed: _Committed) -> Iterator[Finding]:
    fresh: dict[tuple[Process, int], Rebalance] = {}  # assigned, and nothing polled yet
    for operation in versions.history.operations:
        if operation.f in ASSIGNING and operation.type != FAIL:
            kept = () if operation.from_start else operation.value or ()
            fresh = {of: event for of, event in fresh.items() if of[0] != operation.process or of[1] in kept}
        lost = set()
        for event in operation.rebalance:
            for key in event.keys:
                fresh.pop((operation.process, key), None)
                if event.what != "assigned":
                    lost.add(key)  # what is polled of it in this operation may be from before
                elif operation.group is not None:
                    fresh[operation.process, key] = event
        for poll in operation.polls:
            for key, (offsets, _) in poll.runs.items():
                assigned = fresh.pop((operation.process, key), None)
                if assigned is None or key in lost or operation.completed == NEVER:
                    continue
                of, resume, order = (operation.group, key), offsets[0], versions.orders[key]
                low = committed.low[of].before_time(assigned.time)
                if low is not None and resume < low:
                    text = (
                        f"group {operation.group} had committed {low} of key {key}; its next owner resumed at {resume}"
                    )
                    yield Finding("commit-lost", key, text, (operation.completed,))
                # Its own commit was asked for when this poll was over.
                high = committed.high[of].before_line_without(operation.completed, operation.invoked)
                first = order.place_from(max(high or 0, order.start))
                passed = [
                    value
                    for place in range(first, order.place_from(resume))
                    if (value := order.values[place]) is not None
                    and not versions.is_removed(order, value, order.offsets[place])
                ]
                if passed:
                    text = f"group {operation.group} resumed key {key} at {resume}, past {passed[0]}"
                    yield Finding("resume-skip", key, text, (operation.completed, *versions.witnesses(key, passed[0])))


def _committed_itself(operation: Operation) -> dict[int, int]:
    """Return the highest offset of each key that the operation may have committed."""
    found: dict[int, int] = {}
    for commit in operation.commits:
        for key, to in commit.offsets.items() if commit.outcome != FAIL else ():
            found[key] = max(to, found.get(key, -1))
    return found


def _passes(commits: list[tuple[int, int, bool]], offset: int) -> int:
    """Return the line of the first commit that certainly passed an offset, else of the last that may have, or NEVER."""
    lines = [(line, certain) for line, to, certain in commits if to > offset]
    certain = next((line for line, is_certain in lines if is_certain), NEVER)
    return certain if certain != NEVER or not lines else lines[-1][0]


def group_skips(versions: Versions) -> Iterator[Finding]:
    """Find values that a group committed past without any of its members having got them (HIS-38)."""
    polled: dict[tuple[str | None, int], dict[int | None, int]] = defaultdict(dict)  # value -> line that tells
    passing: dict[tuple[str | None, int], list[tuple[int, int, bool]]] = defaultdict(list)  # line, offset, certain
    last: dict[tuple[str | None, int], int] = {}
    for operation in versions.history.operations:
        if operation.group is None:
            continue
        own = _committed_itself(operation)
        for poll in operation.polls:
            for key, (offsets, values) in poll.runs.items():
                mine = polled[operation.group, key]
                for offset, value in zip(offsets, values, strict=True):
                    # What it committed itself may have been passed, and resumed from, long before it was over.
                    line = operation.invoked if offset < own.get(key, -1) else operation.completed
                    mine[value] = min(mine.get(value, NEVER), line)
        for commit in operation.commits:
            # A commit behind polls of its operation is asked for at some moment after them.
            line = operation.completed if operation.polls else operation.invoked
            for key, to in commit.offsets.items() if commit.outcome != FAIL else ():
                passing[operation.group, key].append((line, to, commit.outcome == OK))
        if operation.f == "committed" and operation.type == OK:
            last.update({(operation.group, key): to or 0 for key, to in operation.value.items()})
    for (group, key), to in sorted(last.items(), key=str):
        order, mine = versions.order(key), polled[group, key]
        commits = passing[group, key]
        for place in range(order.place_from(to)):
            value, offset = order.values[place], order.offsets[place]
            if value not in order.seen or value is None or versions.is_removed(order, value, offset):
                continue
            by = _passes(commits, offset)
            if mine.get(value, NEVER) > by or (by == NEVER and value not in mine):
                text = f"group {group} committed past {value} at {offset} of key {key}, which no member had got"
                lines = (*versions.witnesses(key, value), *((by,) if by != NEVER else ()))
                yield Finding("group-skip", key, text, lines)
