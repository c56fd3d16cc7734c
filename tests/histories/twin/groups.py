"""The literal twin's anomalies of groups, and of transactions with offsets (section 6, HIS-28)."""

import math
from collections.abc import Iterator

from tests.histories.history import FAIL, NEVER, OK, Operation, Send
from tests.histories.twin.facts import Committed, Event, Facts, Found, Polled, before, name


def all_of(facts: Facts) -> Iterator[Found]:
    for check in (
        owner_overlaps, zombie_commits, commits_lost, commits_backwards, resume_skips, group_skips, outputs,
        torn_transactions,
    ):  # fmt: skip
        yield from check(facts)


def owner_overlaps(facts: Facts) -> Iterator[Found]:
    """Find two members that owned a key in one generation (HIS-35). An unknown generation is not judged."""
    for number, one in enumerate(facts.events):
        for later, other in enumerate(facts.events):
            if (
                number < later
                and one.what == other.what == "assigned"
                and _of(one) == _of(other)
                and one.generation is not None
                and one.operation.group is not None
                and one.operation.member != other.operation.member
                and not any(
                    event.what != "assigned" and _of(event) == _of(one) and _member(event) == _member(one)
                    for event in facts.events[number:later]
                )
            ):
                members = frozenset({one.operation.member, other.operation.member})
                yield Found("owner-overlap", (*_of(one), members))


def _of(event: Event) -> tuple[str | None, int, int | None]:
    return event.operation.group, event.key, event.generation


def _member(event: Event) -> str | None:
    return event.operation.member


def zombie_commits(facts: Facts) -> Iterator[Found]:
    """Find commits of a generation that were taken after another member heard of a later one (HIS-36).

    A commit of no offset at all is none: a client asks nothing for it.
    """
    for commit in facts.commits:
        operation = commit.operation
        if commit.outcome != OK or operation.generation is None or operation.group is None:
            continue
        for other in facts.operations:
            for event in other.rebalance:
                if (
                    event.what == "assigned"
                    and other.group == operation.group
                    and other.member != operation.member
                    and event.generation is not None
                    and event.generation > operation.generation
                    and operation.time_invoked > event.time
                ):
                    yield Found("zombie-commit", (operation.group, operation.completed))


# --- HIS-37 ---------------------------------------------------------------------------------------------------------


def commits_lost(facts: Facts) -> Iterator[Found]:
    """Find answers and resumes below what was certainly committed (HIS-37)."""
    for operation in facts.operations:
        if operation.f == "committed" and operation.type == OK:
            for key, shown in operation.value.items():
                low = [
                    each.offset
                    for each in _commits(facts, operation.group, key)
                    if each.outcome == OK and before(each.operation, operation)
                ]
                if low and (shown is None or shown < max(low)):
                    yield Found("commit-lost", (operation.group, key, operation.completed))
    for event, resume in resumes(facts):
        low = [
            each.offset
            for each in _commits(facts, event.operation.group, event.key)
            if each.outcome == OK and each.operation.time < event.time
        ]
        if low and resume.offset < max(low):
            yield Found("commit-lost", (event.operation.group, event.key, resume.operation.completed))


def _commits(facts: Facts, group: str | None, key: int) -> list[Committed]:
    return [each for each in facts.commits if each.operation.group == group is not None and each.key == key]


def resumes(facts: Facts) -> Iterator[tuple[Event, Polled]]:
    """Yield each assigned event with the first record that its process polled of the key afterwards.

    An event comes before the records of the poll during which it was told. What forgets the key again before a record
    came leaves the event without one.
    """
    for event in facts.events:
        if event.what != "assigned" or event.operation.group is None:
            continue
        process, key, told = event.operation.process, event.key, _moment(event)
        forgotten = [
            _moment(each)
            for each in facts.events
            if each.key == key and each.operation.process == process and _moment(each) > told
        ]
        forgotten += [
            (each.completed, -1, 0)
            for each in facts.of_process(process)
            if each.completed > event.operation.completed and facts.leaves(each, key)
        ]
        after = [
            each
            for each in facts.polled
            if each.key == key and each.operation.process == process and _polled_at(each) > told
        ]
        if after and not any(each < _polled_at(after[0]) for each in forgotten):
            yield event, after[0]


def _moment(event: Event) -> tuple[int, int, int]:
    return event.operation.completed, event.part, event.number


def _polled_at(polled: Polled) -> tuple[int, int, float]:
    return polled.operation.completed, polled.part, math.inf


def commits_backwards(facts: Facts) -> Iterator[Found]:
    """Find answers below an earlier one; none is below all (HIS-37)."""
    told = [each for each in facts.operations if each.f == "committed" and each.type == OK]
    for one in told:
        for other in told:
            if one.group == other.group is not None and before(one, other):
                for key in one.value:
                    if key in other.value and _number(other.value[key]) < _number(one.value[key]):
                        yield Found("commit-backwards", (other.group, key, other.completed))


def _number(offset: int | None) -> int:
    return -1 if offset is None else offset


def resume_skips(facts: Facts) -> Iterator[Found]:
    """Find resumes above what was committed at most, with values between, by the first of these (HIS-37).

    A commit behind the resume in its own operation had not been invoked when the poll ended. Values that were removed
    on purpose are not skipped.
    """
    for event, resume in resumes(facts):
        group, key = event.operation.group, event.key
        high = [
            each.offset
            for each in _commits(facts, group, key)
            if each.outcome != FAIL and each.operation.invoked < resume.operation.completed
            if each.operation is not resume.operation or each.part < resume.part
        ]
        skipped = [
            (offset, value)
            for offset, values in facts.log.get(key, {}).items()
            for value in values
            if (key, value) in facts.index
            and max(high, default=facts.starts[key]) <= offset < resume.offset
            and not facts.may_be_gone(key, value, offset)
        ]
        if skipped and not any(each.invoked < resume.operation.completed for each in _untold_commits(facts, group)):
            yield Found("resume-skip", (group, key, resume.operation.completed, min(skipped)[1]))


def _untold(facts: Facts, group: str | None) -> list[Operation]:
    """Return the operations of a group that never completed: what they polled and committed, nobody knows."""
    return [each for each in facts.operations if each.completed == NEVER and each.group == group is not None]


def _untold_commits(facts: Facts, group: str | None) -> list[Operation]:
    return [each for each in _untold(facts, group) if any(not commit.offsets for commit in each.commits)]


# --- HIS-38, HIS-39 -------------------------------------------------------------------------------------------------


def _last_committed(facts: Facts, group: str, key: int) -> int:
    """Return what the group's last answer says; -1: nothing."""
    told = [
        each
        for each in facts.operations
        if each.f == "committed" and each.type == OK and each.group == group and key in each.value
    ]
    last = max(told, key=lambda operation: operation.completed, default=None)
    return _number(last.value[key]) if last else -1


def group_skips(facts: Facts) -> Iterator[Found]:
    """Find values that a group committed past although none of its members had polled them (HIS-38).

    A value that is not clear is not judged: where it lies is not known.
    """
    for group, key, offset, value in _passed(facts):
        if not _was_polled(facts, group, key, offset, value):
            yield Found("group-skip", (group, key, value))


def _passed(facts: Facts) -> Iterator[tuple[str, int, int, int]]:
    """Yield each clear, visible value that is still there and lies below a group's last answer."""
    for group in {each.group for each in facts.operations if each.group is not None}:
        for key, log in facts.log.items():
            for offset, values in log.items():
                for value in values if offset < _last_committed(facts, group, key) else ():
                    is_clear = (key, value) in facts.index
                    if is_clear and (key, value) in facts.seen and not facts.may_be_gone(key, value, offset):
                        yield group, key, offset, value


def _was_polled(facts: Facts, group: str, key: int, offset: int, value: int) -> bool:
    """Tell whether a member had polled a value before the commit that passed it was invoked.

    That commit is the first that certainly passed it; where none certainly did, the last that may have; where there is
    none at all, a poll at any time will do. A commit behind polls of its own operation was invoked at some moment of
    it, the last that may be. A poll whose own operation commits past the value counts from its beginning: that commit
    may be resumed from long before the operation is over. An operation that never completed may have polled anything.
    """
    polls = [each for each in facts.polled if each.key == key and each.value == value and each.operation.group == group]
    passing = [each for each in _commits(facts, group, key) if each.outcome != FAIL and each.offset > offset]
    certain = [each for each in passing if each.outcome == OK]
    untold = [each.invoked for each in _untold(facts, group) if each.polls]
    if not passing:
        return bool(polls or untold)
    by = certain[0] if certain else passing[-1]  # they are told in the order of their completions
    invoked = by.operation.completed if by.operation.polls else by.operation.invoked
    if any(line < invoked for line in untold):
        return True
    for poll in polls:
        if poll.operation is by.operation:
            if poll.part < by.part:
                return True
            continue
        commits_it = any(each.operation is poll.operation for each in passing)
        if (poll.operation.invoked if commits_it else poll.operation.completed) < invoked:
            return True
    return False


def _outputs(facts: Facts, group: str) -> list[tuple[tuple[int, int], Operation, Send]]:
    return [
        (send.source, operation, send)
        for operation, send in facts.writers.values()
        if send.source is not None and operation.group == group
    ]


def outputs(facts: Facts) -> Iterator[Found]:
    """Find sources with two visible outputs, and with none (HIS-39).

    Nothing is said of a source without an output while any key was not read to its end: an output may lie there. Nor of
    one whose output may have been removed on purpose. A source that is not clear lies nowhere for certain.
    """
    for group in {each.group for each in facts.operations if each.group is not None}:
        made = _outputs(facts, group)
        for source in {source for source, _, _ in made}:
            visible = {s.value for where, _, s in made if where == source and (s.key, s.value) in facts.seen}
            if len(visible) > 1:
                yield Found("eos-duplicate", (group, source, frozenset(visible)))
    if any(facts.readings[key] != "read" for key in facts.keys):
        return
    for group, key, offset, value in _passed(facts):
        made = _outputs(facts, group)
        if made and not any(
            source == (key, offset)
            and ((s.key, s.value) in facts.seen or facts.may_be_gone(s.key, s.value, facts.last_offset(s)))
            for source, _, s in made
        ):
            yield Found("eos-loss", (group, key, value))


# --- HIS-28 ---------------------------------------------------------------------------------------------------------


def torn_transactions(facts: Facts) -> Iterator[Found]:
    """Find transactions of which a part is visible and a part is not (HIS-28).

    What was seen is visible, be it deleted since; what nobody saw is not judged where it may be gone. Keys that it sends
    to have to be read to their ends; of a key of its offsets nothing has to be read.
    """
    for operation in facts.operations:
        if not operation.transactional:
            continue
        if any(facts.readings[send.key] != "read" for send in operation.sends):
            continue
        visible = [
            (send.key, send.value) in facts.seen
            for send in operation.sends
            if (send.key, send.value) in facts.seen
            or not facts.may_be_gone(send.key, send.value, facts.last_offset(send))
        ]
        for commit in facts.commits:
            if commit.operation is operation and not operation.unowned and (shown := _shown(facts, commit)) is not None:
                visible.append(shown)
        if len(set(visible)) > 1:
            yield Found("torn-transaction", name(operation))


def _shown(facts: Facts, commit: Committed) -> bool | None:
    """Tell whether a transaction's offset of a key is visible in what was asked last; None: nobody can say.

    Asked was it by ``committed``, or by an assigned event that a resume shows the answer to; before the transaction was
    over, it says nothing. Offsets that another commit explains as well say nothing of this one: else each transaction
    that was taken back and done again would be torn. Nor does a resume at or beyond them, if it would have been there
    without them, too: where the record below them is gone, or never was.
    """
    group, key, operation = commit.operation.group, commit.key, commit.operation
    looks = [
        (each.time_invoked, _number(each.value[key]), True)
        for each in facts.operations
        if each.f == "committed" and each.type == OK and each.group == group is not None and key in each.value
    ]
    looks += [
        (event.time, resume.offset, False)
        for event, resume in resumes(facts)
        if event.operation.group == group and event.key == key
    ]
    asked, shown, is_answer = max(looks, default=(-1, -1, False))
    if asked <= operation.time:
        return None
    if shown < commit.offset:
        return False
    below = facts.log.get(key, {}).get(commit.offset - 1, set())
    is_there = bool(below) and not any(facts.may_be_gone(key, value, commit.offset - 1) for value in below)
    others = [
        each
        for each in _commits(facts, group, key)
        if each.operation is not operation and each.outcome != FAIL and each.offset >= commit.offset
    ]
    unknown = [each for each in _untold_commits(facts, group) if each is not operation]
    return None if others or unknown or not (is_answer or is_there) else True
