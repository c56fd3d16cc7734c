"""A record as data: one row for each partition it names, in a schema that does not change (SCL-16X).

``docs/logs-rows.schema.json`` is this schema for people and validators; a test holds both together.
"""

import os
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final, NamedTuple

from kafkatool.core.statelog.lines.details import number, numbers
from kafkatool.core.statelog.sources.chunks import Record


class Column(NamedTuple):
    """A column: its JSON type, its type in Spark's and Parquet's terms, and what it means."""

    name: str
    json_type: str
    sql_type: str
    meaning: str


COLUMNS: Final = (
    Column("time", "string", "TIMESTAMP_NTZ", "when, as the broker wrote it (its local time); UTC and a Z with --tz"),
    Column("level", "string", "STRING", "log level: TRACE, DEBUG, INFO, WARN, ERROR or FATAL"),
    Column("actor", "string", "STRING", "who wrote the line: controller or broker"),
    Column("actor_id", "integer", "INT", "that broker's id"),
    Column("controller_epoch", "integer", "INT", "epoch of the controller that acts or whose request it is"),
    Column("event", "string", "STRING", "what happened, a name as --event takes; null: a line of unknown form"),
    Column("topic", "string", "STRING", "topic of the partition; null if the record names none"),
    Column("partition", "integer", "INT", "its number"),
    Column("leader", "integer", "INT", "leader; -1 none, -2 the topic is being deleted"),
    Column("isr", "array", "ARRAY<INT>", "in-sync replicas, in the order given"),
    Column("replicas", "array", "ARRAY<INT>", "assigned replicas, in the order given"),
    Column("leader_epoch", "integer", "INT", "leader epoch"),
    Column("correlation_id", "integer", "INT", "of the controller's request"),
    Column("from_state", "string", "STRING", "state left by a partition or replica"),
    Column("to_state", "string", "STRING", "state entered"),
    Column("source", "string", "STRING", "label of the log: --label, else the broker id in its lines, else file name"),
    Column("line", "integer", "BIGINT", "number of the record's first line in its file, from 1"),
    Column("text", "string", "STRING", "the record's lines as they are, continuation lines too; no line end"),
)

REPEATED_TEXT_BYTES: Final = 4096
"""A longer text is null in a record's second and later rows: a response about thousands of partitions would otherwise
be written thousands of times. ``source`` and ``line`` lead to the first row."""


def rows(record: Record, source: str, line: int, *, utc: bool, continuation: bool = True) -> Iterator[dict[str, Any]]:
    """Yield one row for each partition the record names, one if it names none. Bytes that are no UTF-8 become U+FFFD."""
    details, text = record.details, record.line
    shape = details.shape
    whole = b"\n".join((text, *record.tail)) if record.tail and continuation else text
    row: dict[str, Any] = {
        "time": _iso(record.time, utc),
        "level": shape.level,
        "actor": details.actor,
        "actor_id": number(text, details.actor_id),
        "controller_epoch": _controller_epoch(record),
        "event": shape.event,
        "topic": None,
        "partition": None,
        "leader": number(text, details.leader),
        "isr": numbers(text, details.isr),
        "replicas": numbers(text, details.replicas),
        "leader_epoch": number(text, details.leader_epoch),
        "correlation_id": number(text, details.correlation_id),
        "from_state": details.from_state,
        "to_state": details.to_state,
        "source": source,
        "line": line,
        "text": whole.removesuffix(b"\r").decode("utf-8", "replace"),
    }
    if not shape.spans:
        yield row
    for span in shape.spans:
        row["topic"] = os.fsdecode(text[span.topic_start : span.topic_end])
        row["partition"] = int(text[span.partition_start : span.partition_end])
        yield row
        if len(whole) > REPEATED_TEXT_BYTES:
            row["text"] = None


def _controller_epoch(record: Record) -> int | None:
    details = record.details
    epoch = number(record.line, details.epoch)
    return epoch if epoch is not None else number(record.line, details.state_epoch)


def _iso(time: bytes, utc: bool) -> str | None:
    """Return ISO 8601 of ``yyyy-MM-dd HH:mm:ss,SSS``; None for what is no time, such as the 39th of a month."""
    text = time.decode("latin-1").replace(" ", "T").replace(",", ".")
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return None
    return f"{text}Z" if utc else text
