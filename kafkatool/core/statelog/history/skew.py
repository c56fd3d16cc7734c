"""Differences between the brokers' clocks, as far as requests prove them (SCL-20X).

``kt logs report --skew`` compares the whole logs; a merge looks only at the end of each log, which costs it nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

from kafkatool.core.statelog.history.observations import Observation, join_into, milliseconds, observe
from kafkatool.core.statelog.lines.details import find_details
from kafkatool.core.statelog.lines.shapes import ByShape
from kafkatool.core.statelog.sources.chunks import ChunkAccount, read_records
from kafkatool.core.statelog.sources.clocks import Clock
from kafkatool.core.statelog.sources.source import Source
from kafkatool.core.statelog.sources.spilling import in_order

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


def skews(
    observations: Iterable[Observation], heard_from: Mapping[int, str], otherwise: str | None = None
) -> dict[tuple[int, int], Skew]:
    """Return clock differences by (controller, broker) from one partition's requests (SCL-20X). OSError.

    Sent and received are matched by controller epoch, leader epoch and content, the first of each. What was received
    before ``heard_from``, the first time in the controller's own log, may have been sent before that log begins.
    ``otherwise`` stands for that time where there is none of it; None: such requests prove nothing.
    """
    requests = in_order((o for o in observations if o.event in _REQUESTS and o.leader_epoch is not None), _leader_epoch)
    found: dict[tuple[int, int], Skew] = {}
    for _, told in groupby(requests, key=_leader_epoch):  # one after the other: a partition may have had millions
        sent: dict[tuple[Any, ...], str] = {}
        received: dict[tuple[Any, ...], str] = {}
        for o in told:
            if o.isr is None or o.controller is None:
                continue
            request, is_sent = _REQUESTS[o.event]
            book = sent if is_sent else received
            for broker in o.targets if is_sent else (o.actor_id,):
                key = broker, o.controller, request, o.epoch, o.leader, _members(o.isr)
                first = book.get(key)
                if first is None or o.time < first:
                    book[key] = o.time
        for key, time in received.items():
            broker, controller, *_ = key
            asked, since = sent.get(key), heard_from.get(controller, otherwise)
            if asked is None or since is None or time < since or controller == broker:
                continue
            later = milliseconds(time) - milliseconds(asked)
            join_into(found, {(controller, broker): Skew(max(-later, 0), later, 1)})
    return found


_leader_epoch = attrgetter("leader_epoch")
_members = lru_cache(maxsize=10_000)(frozenset[int])  # of a list of replicas, of which a cluster has few


def skew_at_the_end(sources: Sequence[Source], clocks: Sequence[Clock | None]) -> list[tuple[tuple[int, int], Skew]]:
    """Return clock differences by (controller, broker) that the ends of the logs prove. OSError, SourceChangedError."""
    store = ByShape(find_details)
    told: dict[tuple[str, int], list[Observation]] = {}
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
                told.setdefault((topic, partition), []).append(o)
        for controller, time in first_heard.items():
            heard_from[controller] = min(heard_from.get(controller, time), time)
    found: dict[tuple[int, int], Skew] = {}
    for observations in told.values():
        join_into(found, skews(observations, heard_from))
    return sorted(found.items())


def _later(time: str) -> str:
    try:
        moment = datetime.strptime(time, "%Y-%m-%d %H:%M:%S,%f") + UNDER_WAY
    except ValueError:  # digits that are no time, such as a thirteenth month
        return time
    return f"{moment:%Y-%m-%d %H:%M:%S},{moment.microsecond // 1000:03d}"
