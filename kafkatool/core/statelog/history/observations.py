"""What a line testifies about a partition: the raw material of facts, taken from records in the workers (SCL-17X)."""

import os
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from typing import Final, NamedTuple

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
    """One line's testimony. ``time`` compares as text; ``line`` is its number in log ``source``.

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
    """Topic, partition and testimony for each partition of a record that tells something about one."""
    details, text = record.details, record.line
    event = details.shape.event
    if event not in OBSERVED or details.actor_id is None or details.actor is None or event is None:
        return
    if event == "stop_replica_ignored" and details.shape.level != "ERROR":
        return
    actor_id = int(text[details.actor_id])
    told = Observation(
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
        told = told._replace(leader=actor_id)
    for span in details.shape.spans:
        topic = _name(text[span.topic_start : span.topic_end])
        yield topic, int(text[span.partition_start : span.partition_end]), told


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
    """Milliseconds from 1970 to a time ``yyyy-MM-dd HH:mm:ss,SSS``, no zone considered; what is no time counts as 0."""
    return _minute_ms(time[:16]) + int(time[17:19]) * 1000 + int(time[20:23])


def _words(record: Record) -> str:
    """What went wrong: the exception that follows the line, else the line's own words; short."""
    shape_text = record.line.decode("utf-8", "replace")
    if record.tail:
        return record.tail[0].decode("utf-8", "replace").strip()[:REASON_BYTES]
    for mark in (" due to: ", " due to ", " since ", " as ", ". "):
        _, found, words = shape_text.partition(mark)
        if found:
            return words.removesuffix(" (state.change.logger)").strip()[:REASON_BYTES]
    return ""
