"""The literal twin's whole judgement, and how its findings and the first analyser's are held side by side."""

import re
from collections.abc import Iterable

from tests.histories.analyser.versions import Finding
from tests.histories.history import History
from tests.histories.twin import anomalies, cycles, groups, lags
from tests.histories.twin.facts import Facts, Found, name

CYCLES = frozenset({"G1c", "G1c-process", "G1c-realtime", "G0-process", "G0-realtime", "G0", "G1c-ww"})


def judge(history: History) -> set[Found]:
    """Find every anomaly of a short history."""
    facts = Facts(history)
    stuck = {Found("stuck", key) for key in lags.stuck(facts)}
    return {*anomalies.all_of(facts), *groups.all_of(facts), *cycles.all_of(facts), *stuck}


def differences(history: History, ours: set[Found], firsts: Iterable[Finding]) -> list[str]:
    """Return what one of the two analysers told and the other did not, in words; none: they agree.

    Compared are, of each kind, the instances as far as the specification tells one from another:

    - values: of phantom, lost-write, unseen, G1a, compacted-lost, group-skip, eos-loss, duplicate (with offsets and
      label) and the values of an offset or a source (inconsistent-offsets, eos-duplicate), each with its key;
    - pairs of neighbours and the operation that has the second: of the poll kinds (of a skip the first five values left
      out, too) and of the sends inside an operation;
    - key and operation: nonmonotonic-send, precommitted-read, early-read, end-backwards, start-backwards, commit-lost,
      commit-backwards, resume-skip (with the first value passed), tombstone-skip (with the tombstone);
    - the operation: zombie-commit, torn-transaction; the key: stuck; key and generation: owner-overlap;
    - of cycles: for each component one, of the same kind, and the operations of the first analyser's cycle belong to the
      component. Which of several shortest cycles is shown, the specification leaves open.
    """
    plain = {_of_twin(found) for found in ours if found.kind not in CYCLES}
    told = {_of_first(history, finding) for finding in firsts if finding.kind not in CYCLES}
    said = [f"twin alone: {each}" for each in sorted(plain - told, key=str)]
    said += [f"first alone: {each}" for each in sorted(told - plain, key=str)]
    for kind in sorted(CYCLES):
        components = [found.what for found in ours if found.kind == kind and isinstance(found.what, frozenset)]
        for finding in firsts:
            if finding.kind == kind:
                fitting = [each for each in components if each.issuperset(finding.lines)]
                if fitting:
                    components.remove(min(fitting, key=len))
                else:
                    said.append(f"first alone: {kind} of lines {finding.lines}")
        said += [f"twin alone: {kind} of lines {sorted(each)}" for each in components]
    return said


def _of_twin(found: Found) -> tuple[object, ...]:
    what = found.what if isinstance(found.what, tuple) else (found.what,)
    if found.kind in ("poll-skip", "int-poll-skip"):
        return found.kind, *what[:4], what[4][:5]
    if found.kind == "owner-overlap":
        return found.kind, what[1], what[2]
    if found.kind in ("commit-lost", "commit-backwards", "resume-skip", "zombie-commit"):
        return found.kind, *what[1:]  # the group is that of the operation
    return found.kind, *what


def _of_first(history: History, finding: Finding) -> tuple[object, ...]:
    """Return what a finding of the first analyser is about, from its key, lines and words."""
    kind, key, lines = finding.kind, finding.key, finding.lines
    numbers = [int(each) for each in re.findall(r"(?<![\w-])-?\d+\b", finding.text)]
    match kind:
        case "phantom":
            return (kind, key, None, lines[0]) if "is none" in finding.text else (kind, key, numbers[0])
        case "inconsistent-offsets":
            return kind, key, numbers[0], frozenset(numbers[2:])
        case "duplicate":
            return kind, key, numbers[0], tuple(numbers[1:-1]), finding.label
        case "lost-write" | "G1a" | "unseen" | "compacted-lost":
            return kind, key, numbers[0]
        case "stuck":
            return kind, key
        case "poll-skip" | "int-poll-skip":
            return kind, key, numbers[3], numbers[1], lines[-1], tuple(numbers[4:])
        case "nonmonotonic-poll" | "int-nonmonotonic-poll":
            return kind, key, numbers[3], numbers[1], lines[-1]
        case "int-nonmonotonic-send":
            return kind, key, numbers[3], numbers[1], lines[-1]
        case "int-send-skip":
            return kind, key, numbers[0], numbers[1], lines[-1]
        case "tombstone-skip":
            return kind, key, numbers[1], lines[-1]
        case "precommitted-read" | "early-read" | "commit-lost" | "commit-backwards":
            return kind, key, lines[0]
        case "resume-skip":
            return kind, key, lines[0], numbers[-1]
        case "owner-overlap":
            return kind, key, numbers[-1]
        case "zombie-commit":
            return kind, lines[-1]
        case "group-skip" | "eos-loss":
            return kind, finding.text.split()[1], key, numbers[0]
        case "eos-duplicate":
            return kind, finding.text.split()[-1], (key, numbers[0]), frozenset(numbers[2:])
        case "torn-transaction":
            return kind, _transaction(history, finding)
    return kind, key, lines[-1]


def _transaction(history: History, finding: Finding) -> int:
    """Return the transaction that is torn: that of the values named, or of the lines."""
    values = {int(v) for offset, v in re.findall(r"(offset )?(-?\d+) of key", finding.text) if not offset}
    (torn,) = [
        name(operation)
        for operation in history.operations
        if operation.transactional and name(operation) in finding.lines
        if not values or values & {send.value for send in operation.sends}
    ]
    return torn
