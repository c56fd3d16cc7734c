"""Differences between the brokers' clocks, as far as requests prove them (SCL-20X).

``kt logs report --skew`` compares the whole logs; a merge looks only at the end of each log, which costs it nothing.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from kafkatool.core.statelog.history.observations import Observation, join_into, milliseconds, observe
from kafkatool.core.statelog.lines.details import find_details
from kafkatool.core.statelog.lines.shapes import ByShape
from kafkatool.core.statelog.sources.chunks import ChunkAccount, read_records
from kafkatool.core.statelog.sources.clocks import Clock
from kafkatool.core.statelog.sources.source import Source

WARN_MS: Final = 1000
"""Clocks further apart than this make the order of a merged log doubtful."""

LOOK_BYTES: Final = 64 * 1024
"""Read of each log, from its end."""

UNDER_WAY: Final = timedelta(seconds=30)
"""A request that arrives in this time after the first line looked at may have been sent in a line before it. Sent again
later, with the same content, it would seem to have arrived before it was sent."""

MOST_LOGS: Final = 50
"""Of more logs than that (hourly ones), the last."""


class Skew(NamedTuple):
    """The difference of a broker's clock from the controller's, as far as ``pairs`` of log lines prove it.

    A request cannot be received before it is sent, so the largest "received minus sent" below zero is a proof.
    """

    behind_at_least_ms: int
    ahead_at_most_ms: int
    pairs: int

    def joined(self, other: "Skew") -> "Skew":
        """Return both together."""
        return Skew(
            max(self.behind_at_least_ms, other.behind_at_least_ms),
            min(self.ahead_at_most_ms, other.ahead_at_most_ms),
            self.pairs + other.pairs,
        )


_REQUESTS = {
    "leader_and_isr_sent": ("leader_and_isr", True),
    "update_metadata_sent": ("update_metadata", True),
    "leader_and_isr_received": ("leader_and_isr", False),
    "metadata_cached": ("update_metadata", False),
}


def skews(observations: Iterable[Observation], heard_from: str) -> dict[tuple[int, int], Skew]:
    """Return clock differences by (controller, broker) from one partition's requests (SCL-20X).

    Sent and received are matched by controller epoch, leader epoch and content, the first of each. What was received
    before ``heard_from``, the first time in the controller's own log, may have been sent before that log begins.
    """
    sent: dict[tuple[object, ...], str] = {}
    received: dict[tuple[object, ...], str] = {}
    for o in observations:
        if o.event not in _REQUESTS or o.leader_epoch is None or o.isr is None or o.controller is None:
            continue
        request, is_sent = _REQUESTS[o.event]
        content = (request, o.controller, o.epoch, o.leader_epoch, o.leader, frozenset(o.isr))
        for broker in o.targets if is_sent else (o.actor_id,):
            book = sent if is_sent else received
            book[*content, broker] = min(book.get((*content, broker), o.time), o.time)
    found: dict[tuple[int, int], Skew] = {}
    for key, time in received.items():
        asked = sent.get(key)
        if asked is None or time < heard_from or key[1] == key[-1]:
            continue
        later = milliseconds(time) - milliseconds(asked)
        pair = (int(str(key[1])), int(str(key[-1])))
        join_into(found, {pair: Skew(max(-later, 0), later, 1)})
    return found


def skew_at_the_end(sources: Sequence[Source], clocks: Sequence[Clock | None]) -> list[tuple[tuple[int, int], Skew]]:
    """Return clock differences by (controller, broker) that the ends of the logs prove. OSError, SourceChangedError."""
    store = ByShape(find_details)
    told: dict[tuple[str, int, int], list[Observation]] = {}
    heard_from: dict[int, str] = {}
    for number in range(max(len(sources) - MOST_LOGS, 0), len(sources)):
        source, size = sources[number], sources[number].size
        start = source.next_record(max(size - LOOK_BYTES, 0))[0]
        first_heard: dict[int, str] = {}
        for record in read_records([source.read(start, size)], clocks[number], start, store, ChunkAccount()):
            details = record.details
            if details.actor == "controller" and details.actor_id is not None:
                controller, time = int(record.line[details.actor_id]), record.time.decode("latin-1")
                first_heard.setdefault(controller, _later(time) if start else time)
            for topic, partition, o in observe(record, number, record.line_number):
                if o.controller is not None:
                    told.setdefault((topic, partition, o.controller), []).append(o)
        for controller, time in first_heard.items():
            heard_from[controller] = min(heard_from.get(controller, time), time)
    found: dict[tuple[int, int], Skew] = {}
    for (_, _, controller), observations in told.items():
        if controller in heard_from:
            join_into(found, skews(observations, heard_from[controller]))
    return sorted(found.items())


def _later(time: str) -> str:
    try:
        moment = datetime.strptime(time, "%Y-%m-%d %H:%M:%S,%f") + UNDER_WAY
    except ValueError:  # digits that are no time, such as a thirteenth month
        return time
    return f"{moment:%Y-%m-%d %H:%M:%S},{moment.microsecond // 1000:03d}"
