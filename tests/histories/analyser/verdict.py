"""All anomalies of a history, judged: what the checker says."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, Final, NamedTuple

from tests.histories.analyser import allowed, atomic, ends, graph, groups, logs, reads, sends
from tests.histories.analyser.lags import Lags, lags
from tests.histories.analyser.versions import Finding, Versions
from tests.histories.history import NEVER, OK, RECORDS, History, collector_off

_DEADLY: Final = ("kill", "tear", "starve", "outrun", "power cut", "disk", "failing disk")
"""Faults in which brokers end without saying so."""
CLEAN, FOUND, MALFORMED, TOO_LITTLE = range(4)  # how check-history ends

_CHECKS: Final[tuple[Callable[[Versions], Iterator[Finding]], ...]] = (
    logs.phantoms,
    logs.inconsistent_offsets,
    logs.duplicates,
    logs.lost_writes,
    logs.unseen,
    ends.ends_backwards,
    logs.compaction,
    reads.polls,
    sends.sends,
    atomic.aborted_reads,
    atomic.early_reads,
    atomic.torn_transactions,
    atomic.exactly_once,
    graph.cycles,
    groups.owners,
    groups.committed_offsets,
    groups.group_skips,
)


class Anomaly(NamedTuple):
    """All findings of one kind that are allowed for the same reason, or not at all."""

    kind: str
    allowed: str | None
    findings: tuple[Finding, ...]

    @property
    def smallest(self) -> Finding:
        return min(self.findings, key=lambda f: (len(f.lines), f.lines, f.text))


class Verdict(NamedTuple):
    """``counts``: of each f and type, how many operations. ``too_little``: why nothing can be said, if so.

    ``unread``: what was not read yet, over time, of the keys that were not read to their ends.
    """

    anomalies: tuple[Anomaly, ...]
    counts: dict[str, int]
    too_little: str | None
    lags: Lags
    unread: tuple[logs.Unread, ...]

    @property
    def unallowed(self) -> tuple[Anomaly, ...]:
        return tuple(anomaly for anomaly in self.anomalies if anomaly.allowed is None)

    @property
    def exit_code(self) -> int:
        if self.unallowed:
            return FOUND
        return TOO_LITTLE if self.too_little else CLEAN

    def kinds(self) -> set[str]:
        return {anomaly.kind for anomaly in self.anomalies}

    def lines(self) -> Iterator[str]:
        """Yield the verdict in words, a line for each kind of anomaly."""
        yield "operations: " + ", ".join(f"{name} {count}" for name, count in sorted(self.counts.items()))
        yield from self.lags.lines()
        for anomaly in self.anomalies:
            smallest = anomaly.smallest
            judged = "ANOMALY" if anomaly.allowed is None else f"allowed ({anomaly.allowed})"
            where = ", ".join(map(str, smallest.lines))
            yield f"{judged}: {anomaly.kind} {len(anomaly.findings)} times: {smallest.text} [lines {where}]"
        if self.too_little:
            yield f"too little was read to judge: {self.too_little}"
        if self.exit_code == CLEAN:
            yield "no anomaly that is not allowed"

    def document(self) -> dict[str, Any]:
        """Return everything, for --json."""
        anomalies = [
            {
                "kind": a.kind,
                "allowed": a.allowed,
                "findings": [f._asdict() for f in sorted(a.findings, key=lambda f: (f.lines, f.text))],
            }
            for a in self.anomalies
        ]
        waits = [{**one._asdict(), "lag": one.lag._asdict(), "stall": one.stall._asdict()} for one in self.lags.worst]
        unread = [one._asdict() for one in self.unread]
        return {
            "counts": self.counts,
            "too_little": self.too_little,
            "anomalies": anomalies,
            "lags": waits,
            "unread": unread,
        }


def judge(history: History) -> Verdict:
    """Find every anomaly of a history and say which are allowed."""
    with collector_off():
        versions = Versions(history)
        deaths = _deaths(history)
        found: dict[tuple[str, str | None], list[Finding]] = {}
        measured = lags(versions)
        for finding in chain(*(check(versions) for check in _CHECKS), measured.stuck):
            why = allowed.why_allowed(finding, history.header, deaths)
            found.setdefault((finding.kind, why), []).append(finding)
        anomalies = tuple(
            Anomaly(kind, why, tuple(findings))
            for (kind, why), findings in sorted(found.items(), key=lambda each: (each[0][0], each[0][1] or ""))
        )
        counts = Counter(f"{operation.f} {operation.type}" for operation in history.operations)
        return Verdict(anomalies, dict(sorted(counts.items())), _too_little(versions), measured, logs.unread(versions))


def _deaths(history: History) -> allowed.Deaths:
    """Return the lines before which the last power cut of all brokers, and the last death of any, can have harmed."""
    return allowed.Deaths(_last_over(history, ("power cut all",)), _last_over(history, _DEADLY))


def _last_over(history: History, kinds: tuple[str, ...]) -> int:
    """Return where the last of them was over, or its harm was done, if that is told; one whose end is not told goes on."""
    under_way, over = set[str](), -1
    for line in history.faults:
        faults = {fault for fault in line["value"]["faults"] if fault.startswith(kinds)}
        if line["value"]["begins"]:
            under_way |= faults
        elif faults:
            under_way -= faults
            over = line["value"].get("down", line["index"])
    return NEVER if under_way else over


def _too_little(versions: Versions) -> str | None:
    outcomes = Counter(
        operation.outcome(send)
        for operation in versions.history.operations
        if operation.f in RECORDS
        for send in operation.sends
    )
    if outcomes[OK] * 2 < outcomes.total():
        return f"only {outcomes[OK]} of {outcomes.total()} sends were acknowledged"
    written = {send.key for operation, send in versions.writers.values() if versions.is_proven(operation, send)}
    reading = logs.readings(versions)
    # A key of which nothing is left was read to its end all the same: what it had is missed there.
    if never := sorted(key for key in written if not versions.orders[key].seen and reading[key] != "read"):
        return f"keys {', '.join(map(str, never))} were never polled"
    was_read = any(operation.f == "final" for operation in versions.history.operations)
    if was_read and (unread := sorted(key for key in written if reading[key] == "unread")):
        return f"keys {', '.join(map(str, unread))} were not read to their ends"
    return None
