"""What a transaction must never show: what it took back, what it has not given yet, or a part of it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from tests.histories.analyser.groups import Untold, resumes
from tests.histories.analyser.logs import readings
from tests.histories.analyser.versions import Finding, Versions, highest_of
from tests.histories.history import FAIL, NEVER, OK, Operation


def aborted_reads(versions: Versions) -> Iterator[Finding]:
    """Find values that were read though they were taken back, or never written (HIS-22)."""
    failed: dict[int, set[int]] = defaultdict(set)
    for value, (_, send) in versions.writers.items():
        if versions.is_failed(value):
            failed[send.key].add(value)
    for key, values in sorted(failed.items()):
        for value in sorted(values & versions.orders[key].seen):
            text = f"{value} of key {key} was read though its operation failed"
            yield Finding("G1a", key, text, versions.witnesses(key, value))


def early_reads(versions: Versions) -> Iterator[Finding]:
    """Find values that were read before their transaction asked to be committed (HIS-23)."""
    asked: dict[int, dict[int, int]] = defaultdict(dict)  # key -> value -> when its commit was asked for
    for operation in versions.history.operations:
        if operation.transactional and operation.ended_at is not None and operation.type != FAIL:
            for send in operation.sends:
                asked[send.key][send.value] = operation.ended_at
    latest = {key: versions.orders[key].rising(ended) for key, ended in asked.items()}
    never: Mapping[int | None, float] = {}
    for operation in versions.history.operations:
        if operation.completed == NEVER:
            continue
        own = {(send.key, send.value) for send in operation.sends} if operation.transactional else ()
        for poll in operation.polls:
            for key, (offsets, values) in poll.runs.items():
                if own and (value := next((v for v in values if (key, v) in own), None)) is not None:
                    text = f"process {operation.process} polled {value} of key {key}, which the same transaction sent"
                    yield Finding("precommitted-read", key, text, (operation.completed,))
                highest = highest_of(offsets, values) if key in asked else None
                if key in asked and latest.get(key, never).get(highest, NEVER) > operation.time:
                    others = (v for v in values if v is not None and (key, v) not in own)
                    early = next((v for v in others if asked[key].get(v, 0) > operation.time), None)
                    if early is not None:
                        text = f"{early} of key {key} was polled before its transaction asked for its commit"
                        yield Finding("early-read", key, text, (operation.completed, *versions.witnesses(key, early)))


def torn_transactions(versions: Versions) -> Iterator[Finding]:
    """Find transactions of which a part can be seen and a part cannot (HIS-28)."""
    reading = readings(versions)
    shown = _Commits(versions)
    for operation in versions.history.operations:
        if not operation.transactional:
            continue
        sends = operation.sends
        if any(reading[send.key] != "read" for send in sends):
            continue
        visible, missing = list[str](), list[str]()
        for send in sends:
            if send.value in versions.orders[send.key].seen:
                visible.append(f"{send.value} of key {send.key}")
            elif not versions.is_gone(send):
                missing.append(f"{send.value} of key {send.key}")
        for commit in () if operation.unowned else operation.commits:
            for key, to in commit.offsets.items():
                seen = shown.tell(operation, key, to)
                if seen is not None:
                    (visible if seen else missing).append(f"offset {to} of key {key}")
        if visible and missing:
            text = f"of one transaction {visible[0]} can be seen, {missing[0]} cannot"
            line = operation.completed if operation.completed != NEVER else operation.invoked
            values = [send.value for send in sends]
            lines = {line, *(n for send in sends for n in versions.witnesses(send.key, *values))}
            yield Finding("torn-transaction", sends[0].key if sends else None, text, tuple(sorted(lines)))


class _Commits:
    """Which offsets of transactions show in what was told of them last: an answer, or where a next owner resumed."""

    def __init__(self, versions: Versions) -> None:
        self._versions = versions
        self._untold = Untold(versions)
        self._last: dict[tuple[str | None, int], tuple[int, int, bool]] = {}  # time of the question, offset, an answer
        self._highest: dict[tuple[str | None, int], list[tuple[int, int]]] = {}  # of the two highest, of two operations
        for operation in versions.history.operations:
            if operation.f == "committed" and operation.type == OK:
                for key, offset in operation.value.items():
                    self._tell(operation, key, (operation.time_invoked, -1 if offset is None else offset, True))
            for commit in operation.commits:
                for key, to in commit.offsets.items() if commit.outcome != FAIL else ():
                    highest = dict(self._highest.get((operation.group, key), ()))
                    highest[operation.invoked] = max(to, highest.get(operation.invoked, -1))
                    two = sorted(highest.items(), key=lambda each: each[1])[-2:]
                    self._highest[operation.group, key] = two
        for resume in resumes(versions):
            self._tell(resume.operation, resume.key, (resume.assigned.time, resume.offset, False))

    def _tell(self, operation: Operation, key: int, told: tuple[int, int, bool]) -> None:
        of = (operation.group, key)
        self._last[of] = max(told, self._last.get(of, told))

    def tell(self, operation: Operation, key: int, to: int) -> bool | None:
        """None: nobody asked afterwards, or what shows may be another's commit, or a log with a hole there."""
        time, offset, is_answer = self._last.get((operation.group, key), (-1, -1, False))
        if time <= operation.time:
            return None
        if offset < to:
            return False
        if not is_answer and not self._is_there(key, to - 1):
            return None
        highest = self._highest.get((operation.group, key), ())
        by_another = any(other >= to and line != operation.invoked for line, other in highest)
        return None if by_another or self._untold.may_have_committed(operation.group, NEVER) else True

    def _is_there(self, key: int, offset: int) -> bool:
        """Tell whether a reader that had to start at an offset or below would have found the record there."""
        order = self._versions.order(key)
        values = order.values_at(offset)
        return bool(values) and not any(self._versions.is_removed(order, value, offset) for value in values)


def exactly_once(versions: Versions) -> Iterator[Finding]:
    """Find sources with two outputs, and sources passed without any (HIS-39)."""
    outputs: dict[tuple[str | None, tuple[int, int]], list[int]] = defaultdict(list)
    removed: set[tuple[str | None, tuple[int, int]]] = set()  # what had one that may be gone
    groups = set()
    for operation in versions.history.operations:
        for send in operation.sends:
            if send.source is not None:
                groups.add(operation.group)
                if send.value in versions.orders[send.key].seen:
                    outputs[operation.group, send.source].append(send.value)
                elif versions.is_gone(send):
                    removed.add((operation.group, send.source))
    for (group, (key, offset)), values in sorted(outputs.items(), key=str):
        if len(values) > 1:
            text = f"{offset} of key {key} has the outputs {' and '.join(map(str, values))} in group {group}"
            lines = {n for v in values for n in versions.witnesses(versions.writers[v][1].key, v)}
            yield Finding("eos-duplicate", key, text, tuple(sorted(lines)))
    reading = readings(versions)
    if not groups or "unread" in reading.values() or "stuck" in reading.values():
        return  # an output may lie where nobody read
    last = [o for o in versions.history.operations if o.f == "committed" and o.type == OK and o.group in groups]
    final: dict[tuple[str | None, int], tuple[int, int]] = {}
    for operation in last:
        for key, to in operation.value.items():
            final[operation.group, key] = (to or 0, operation.completed)
    for (group, key), (to, line) in sorted(final.items(), key=str):
        order = versions.order(key)
        for place in range(order.place_from(to)):
            value, offset = order.values[place], order.offsets[place]
            if value is None or value not in order.seen or versions.is_removed(order, value, offset):
                continue
            if (group, (key, offset)) not in outputs and (group, (key, offset)) not in removed:
                text = f"group {group} passed {value} at {offset} of key {key}, which has no output"
                yield Finding("eos-loss", key, text, (*versions.witnesses(key, value), line))
