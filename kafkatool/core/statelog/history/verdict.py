"""What may be concluded from the logs at all: silence and unread lines are no evidence (SCL-25X). Pure functions.

What is hidden, by level or mode (``visibility``) or with a missing file, makes a verdict partial; a line that could not be
read leaves everything open.
"""

from collections.abc import Set
from dataclasses import dataclass
from typing import Final

from kafkatool.core.statelog.history.overview import Overview

COMPLETE: Final = "complete"
PARTIAL: Final = "partial"
CANNOT_SAY: Final = "cannot_say"

NO_LOG_OF: Final = "no log of broker"
"""How the reason begins that a broker's own changes may be missing."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How far the logs answer: COMPLETE, PARTIAL or CANNOT_SAY, and what keeps them from answering all."""

    state: str
    reasons: tuple[str, ...] = ()


def judge(overview: Overview, named: Set[int], unseen: int) -> Verdict:
    """Return the verdict. ``named``: brokers that partitions name; ``unseen``: changes that epochs prove, untold."""
    first = f" (first: {overview.first_unknown})" if overview.first_unknown else ""
    unknown = f"{overview.unknown} of {overview.dated} dated lines are of unknown form{first}"
    reasons = [unknown] * (overview.unknown > 0)
    heard = {controller for _, controller in overview.heard}
    missing = sorted({*named, *heard} - set(overview.brokers))
    if missing:
        reasons.append(f"{NO_LOG_OF}{'s' * (len(missing) > 1)} {', '.join(map(str, missing))} is here")
    if unseen:
        reasons.append(
            f"{unseen} change{'s' * (unseen > 1)} of partitions not in these logs (gaps in partition epochs)"
        )
    reasons += [f"not visible: {hidden}" for hidden in overview.visibility.hidden]
    return Verdict(CANNOT_SAY if overview.unknown else PARTIAL if reasons else COMPLETE, tuple(reasons))
