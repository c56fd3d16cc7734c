"""Observations: what one line says of one partition, the raw material of facts (SCL-17X). Pure functions."""

import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

from kafkatool.core.statelog.lines.details import number, numbers
from kafkatool.core.statelog.sources.chunks import Record

LEADERSHIP_EVENTS: Final = frozenset(
    {
        *("partition_online", "isr_shrunk", "reassignment_sent", "leader_and_isr_sent", "update_metadata_sent"),
        *("leader_and_isr_received", "metadata_cached", "leader_started", "follower_started"),
    }
)
"""Lines that tell leader, ISR or leader epoch of a partition."""

FAILURES: Final = frozenset(
    {
        *("partition_change_failed", "replica_change_failed", "election_failed", "election_aborted"),
        *("reassignment_send_failed", "leader_and_isr_failed", "transition_failed", "leader_unavailable"),
        *("zookeeper_failed", "topic_id_mismatch", "response_error"),
    }
)
"""Lines that tell that something did not work."""

LIFE_EVENTS: Final = frozenset(
    {"partition_created", "partition_offline", "partition_removed", "metadata_deleted", "leader_elected"}
)
IGNORED: Final = "leader_and_isr_ignored"
DISK_FAILED: Final = "replicas_marked_offline"
OBSERVED: Final = LEADERSHIP_EVENTS | FAILURES | LIFE_EVENTS | {IGNORED, DISK_FAILED}

REASON_BYTES: Final = 300
"""As much of an error's text as is kept."""


class Observation(NamedTuple):
    """One line's statement about one partition. ``time`` compares as text; ``line`` is its number in log ``source``.

    ``controller`` and ``epoch``: whose decision or request it is. ``leader`` -1: none, -2: topic being deleted.
    ``targets`` are the brokers a controller sends to. ``text`` is an error's words, or a state left.
    """

    time: str
    source: int
    offset: int
    line: int
    event: str
    actor: str
    actor_id: int
    controller: int | None = None
    epoch: int | None = None
    leader: int | None = None
    leader_epoch: int | None = None
    isr: tuple[int, ...] | None = None
    zk_version: int | None = None
    state_epoch: int | None = None
    replicas: tuple[int, ...] | None = None
    targets: tuple[int, ...] = ()
    text: str | None = None


def observe(record: Record, source: int, line: int) -> Iterator[tuple[str, int, Observation]]:
    """Yield topic, partition and observation for each partition that a record says something of."""
    details, text = record.details, record.line
    event = details.shape.event
    if event not in OBSERVED or details.actor_id is None or details.actor is None or event is None:
        return
    if event == "stop_replica_ignored" and details.shape.level != "ERROR":
        return
    actor_id = int(text[details.actor_id])
    said = Observation(
        record.time.decode("latin-1"),
        source,
        record.offset,
        line,
        event,
        details.actor,
        actor_id,
        actor_id if details.actor == "controller" else number(text, details.sender),
        number(text, details.epoch),
        number(text, details.leader),
        number(text, details.leader_epoch),
        numbers(text, details.isr),
        number(text, details.zk_version),
        number(text, details.state_epoch),
        numbers(text, details.replicas),
        numbers(text, details.target) or () if event in LEADERSHIP_EVENTS else (),
        _words(record) if event in FAILURES or event in (IGNORED, DISK_FAILED) else details.from_state,
    )
    if event == "leader_started":
        said = said._replace(leader=actor_id)
    for span in details.shape.spans:
        topic = _name(text[span.topic_start : span.topic_end])
        yield topic, int(text[span.partition_start : span.partition_end]), said


def drop_repeats(observed: Iterable[tuple[str, int, Observation]]) -> Iterator[tuple[str, int, Observation]]:
    """Yield topic, partition and observation but for those that a broker repeats word by word."""
    latest: dict[tuple[object, ...], tuple[object, ...]] = {}
    for topic, partition, o in observed:
        key, content = (topic, partition, o.source, o.actor, o.actor_id, o.event, o.targets), o[7:15]
        if o.leader_epoch is None or latest.get(key) != content:
            latest[key] = content
            yield topic, partition, o


def join_into(mine: dict[Any, Any], others: Mapping[Any, Any]) -> None:
    """Add values that can be joined to those of the same keys."""
    for key, value in others.items():
        mine[key] = mine[key].joined(value) if key in mine else value


@lru_cache(maxsize=10_000)
def _name(topic: bytes) -> str:
    return os.fsdecode(topic)


@lru_cache(maxsize=100_000)
def _minute_ms(minute: str) -> int:
    try:
        return int((datetime.strptime(minute, "%Y-%m-%d %H:%M") - datetime(1970, 1, 1)).total_seconds()) * 1000
    except ValueError:
        return 0


def milliseconds(time: str) -> int:
    """Return milliseconds from 1970 to a time ``yyyy-MM-dd HH:mm:ss,SSS``, without zones; what is no time counts as 0."""
    return _minute_ms(time[:16]) + int(time[17:19]) * 1000 + int(time[20:23])


def _words(record: Record) -> str:
    """Return what went wrong: the exception that follows the line, else the line's own words; short."""
    text = record.line.decode("utf-8", "replace")
    if record.tail:
        return record.tail[0].decode("utf-8", "replace").strip()[:REASON_BYTES]
    for mark in (" due to: ", " due to ", " since ", " as ", ". "):
        _, found, words = text.partition(mark)
        if found:
            return words.removesuffix(" (state.change.logger)").strip()[:REASON_BYTES]
    return ""
