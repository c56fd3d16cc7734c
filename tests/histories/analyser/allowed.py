"""What a run may show without anybody being at fault: one table, read from the history's header and its deaths."""

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tests.histories.analyser.versions import Finding
from tests.histories.history import NEVER

_TRANSACTIONAL: Final = frozenset(
    {"G1a", "precommitted-read", "early-read", "G1c", "G1c-process", "G1c-realtime", "torn-transaction"}
)
_STABLE: Final = frozenset({"eos-duplicate", "commit-lost", "commit-backwards"})
_UNSAFE: Final = frozenset(
    {
        "lost-write",
        "unseen",
        "inconsistent-offsets",
        "poll-skip",
        "int-poll-skip",
        "nonmonotonic-poll",
        "int-nonmonotonic-poll",
        "end-backwards",
        "nonmonotonic-send",
        "int-nonmonotonic-send",
        "G0-process",
        "G0-realtime",
    }
)
_FORGOTTEN: Final = _UNSAFE | {
    "G1a",
    "torn-transaction",
    "compacted-lost",
    "tombstone-skip",
    "owner-overlap",
    "zombie-commit",
    "commit-lost",
    "commit-backwards",
    "resume-skip",
    "group-skip",
    "eos-duplicate",
    "eos-loss",
}
"""What follows when no broker has it any more: markers, groups and their offsets are records like others."""
_NUMBERING_ANEW: Final = frozenset({"confluent-kafka", "simulated"})  # librdkafka, and who does by its rules
_FETCHING_AHEAD: Final = frozenset({"confluent-kafka", "kafka-python", "aiokafka"})  # clients that do


_EPOCHS_BY_TRANSACTION: Final = 4  # the version of Kafka from which a late end is told from the next transaction's own


class Deaths(NamedTuple):
    """Before which lines all may have lost what they had not synced, and a broker died; -1: that never was."""

    dark: int = -1
    killed: int = -1


_NOBODY_DIED: Final = Deaths()


def why_allowed(finding: Finding, header: Mapping[str, Any], deaths: Deaths = _NOBODY_DIED) -> str | None:
    """Say why a finding is no fault (HIS-40); None: it is one."""
    options, control = header["options"], header.get("source") == "kafka"
    kind = finding.kind
    if kind in ("int-send-skip", "G0", "G1c-ww"):
        return "Kafka isolates no writes"
    if kind == "duplicate":
        if not options.get("idempotent"):
            return "a producer that is not idempotent sends again"
        if options.get("client", header.get("client")) in _NUMBERING_ANEW and (
            finding.label == "renumbered"
            # A transaction amid which the epoch rises has to be taken back: of committed ones there are no copies.
            or (finding.label == "renumbered in a transaction" and options.get("isolation") == "read_uncommitted")
        ):
            return "librdkafka numbers anew what it sends again"
    if (kind, finding.label) == ("start-backwards", "fetched ahead") and (
        options.get("client", header.get("client")) in _FETCHING_AHEAD
    ):
        return "its client gives out what it had fetched before the records were deleted"
    if kind in ("commit-lost", "commit-backwards") and finding.label == "old":
        return "a former coordinator told what it knew: Kafka asks nobody before it answers OffsetFetch"
    if kind == "int-nonmonotonic-send" and not options.get("idempotent") and options.get("in_flight", 1) > 1:
        return "several requests were under way"
    if kind in _TRANSACTIONAL and options.get("isolation") == "read_uncommitted":
        return "read_uncommitted"
    if kind in _STABLE and options.get("isolation") == "read_uncommitted" and options.get("transactional"):
        return "only read_committed waits for the offsets of a transaction that is being ended (KIP-447)"
    if kind == "eos-duplicate" and not options.get("transactional"):
        return "no transactions"
    if kind == "stuck" and control:
        return "known of Kafka: a leader may never take its followers back"
    first = min(finding.lines, default=NEVER)
    if kind in _UNSAFE:
        if str(options.get("acks", "all")) not in ("all", "-1"):
            return f"acks={options['acks']}"
        if options.get("unclean"):
            return "unclean elections"
        if options.get("min_isr", 2) == 1 and first < deaths.killed:
            return "min.insync.replicas=1, and a broker died"
    if kind in _FORGOTTEN and not options.get("flushed") and first < deaths.dark:
        return "all brokers lost what they had not synced"
    if control and kind in ("G1a", "torn-transaction", "lost-write") and options.get("late_end_txn"):
        return "known of Kafka: KAFKA-17754" if _major(header) < _EPOCHS_BY_TRANSACTION else None
    return None


def _major(header: Mapping[str, Any]) -> float:
    """Return the first number of the version; of an unknown one, which is excused nothing, the highest."""
    number = str(header.get("version", "")).partition(".")[0]
    return int(number) if number.isdecimal() else math.inf
