"""A look at the brokers' clocks that costs a merge nothing: only the end of each log is read (SCL-20X).

The whole logs are compared by ``kt logs report --skew``.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from kafkatool.core.statelog.history.observations import Observation, observe
from kafkatool.core.statelog.history.partition_summary import Skew, skews
from kafkatool.core.statelog.lines.details import DetailStore
from kafkatool.core.statelog.sources.chunks import Chunk, ChunkAccount, read_records
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


def skew_at_the_end(sources: Sequence[Source], clocks: Sequence[Clock | None]) -> list[tuple[tuple[int, int], Skew]]:
    """Clock differences by (controller, broker) that the ends of the logs prove. OSError, SourceChangedError."""
    store = DetailStore()
    told: dict[tuple[str, int, int], list[Observation]] = {}
    heard_from: dict[int, str] = {}
    for number in range(max(len(sources) - MOST_LOGS, 0), len(sources)):
        source, size = sources[number], sources[number].size
        chunk = Chunk(0, number, source.next_record(max(size - LOOK_BYTES, 0))[0], size)
        first_heard: dict[int, str] = {}
        for record in read_records(source, clocks[number], chunk, store, ChunkAccount()):
            details = record.details
            if details.actor == "controller" and details.actor_id is not None:
                controller, time = int(record.line[details.actor_id]), record.time.decode("latin-1")
                first_heard.setdefault(controller, _later(time) if chunk.start else time)
            for topic, partition, o in observe(record, number, record.line_number):
                if o.controller is not None:
                    told.setdefault((topic, partition, o.controller), []).append(o)
        for controller, time in first_heard.items():
            heard_from[controller] = min(heard_from.get(controller, time), time)
    found: dict[tuple[int, int], Skew] = {}
    for (_, _, controller), observations in told.items():
        if controller not in heard_from:
            continue
        for pair, skew in skews(observations, heard_from[controller]).items():
            found[pair] = found[pair].joined(skew) if pair in found else skew
    return sorted(found.items())


def _later(time: str) -> str:
    try:
        moment = datetime.strptime(time, "%Y-%m-%d %H:%M:%S,%f") + UNDER_WAY
    except ValueError:  # digits that are no time, such as a thirteenth month
        return time
    return f"{moment:%Y-%m-%d %H:%M:%S},{moment.microsecond // 1000:03d}"
