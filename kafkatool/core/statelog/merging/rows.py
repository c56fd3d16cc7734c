"""A record as data: one row for each partition it names, in a schema that does not change (SCL-16X).

``docs/logs-rows.schema.json`` is this schema for people and validators; a test holds both together.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from types import ModuleType
from typing import Any, Final, NamedTuple

from kafkatool.core.statelog.lines.details import Details, number, numbers, recovery_state
from kafkatool.core.statelog.sources.chunks import Record

orjson: ModuleType | None
try:
    import orjson
except ImportError:  # a worker of a cluster, to which nothing but our own code is sent
    orjson = None


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
    Column("partition_epoch", "integer", "INT", "rises by one with every change; also called zkVersion"),
    Column("topic_id", "string", "STRING", "id of the topic, where the line says it"),
    Column("leader_recovery_state", "string", "STRING", "RECOVERED, or RECOVERING after an unclean election"),
    Column("adding_replicas", "array", "ARRAY<INT>", "replicas that a reassignment adds"),
    Column("removing_replicas", "array", "ARRAY<INT>", "replicas that a reassignment removes"),
    Column(
        "mode", "string", "STRING", "zookeeper or kraft: how a cluster is run that writes such a line; null: either"
    ),
    Column("source", "string", "STRING", "label of the log: --label, else the broker id in its lines, else file name"),
    Column("line", "integer", "BIGINT", "number of the record's first line in its file, from 1"),
    Column("text", "string", "STRING", "the record's lines as they are, continuation lines too; no line end"),
)

PLACE_COLUMNS: Final = (
    Column("file", "string", "STRING", "the file's whole name"),
    Column("file_number", "integer", "INT", "its place among the files: decides between records of one time"),
    Column("offset", "integer", "BIGINT", "where the record begins in its log, in bytes"),
)
"""More columns of DataFrames, whose rows can be put back into the order of the merge with them."""

REPEATED_TEXT_BYTES: Final = 4096
"""A longer text is null in a record's second and later rows: a response about thousands of partitions would otherwise
be written thousands of times. ``source`` and ``line`` lead to the first row."""


def sql_schema(*, utc: bool, more: Sequence[Column] = ()) -> str:
    """Return the columns as Spark's SQL declares them; ``time`` is an instant with ``utc``, else local."""
    return ", ".join(f"`{c.name}` {'TIMESTAMP' if utc and c.name == 'time' else c.sql_type}" for c in (*COLUMNS, *more))


def as_json(row: Mapping[str, Any]) -> bytes:
    """Return a row as a line of JSON; the same bytes by the standard library, which is all that a bare Python has."""
    if orjson is None:
        return f"{json.dumps(row, ensure_ascii=False, separators=(',', ':'))}\n".encode()
    written: bytes = orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
    return written


def rows(
    record: Record[Details], source: str, line: int, *, utc: bool, continuation: bool = True
) -> Iterator[dict[str, Any]]:
    """Yield one row for each partition the record names, one if it names none. Bytes that are no UTF-8 become U+FFFD."""
    details, text = record.details, record.line
    shape = details.shape
    whole = b"\n".join((text, *record.tail)) if record.tail and continuation else text
    row: dict[str, Any] = {
        "time": _iso(record.time, utc),
        "level": shape.level,
        "actor": details.actor,
        "actor_id": number(text, details.actor_id),
        "controller_epoch": number(text, details.epoch),
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
        "partition_epoch": number(text, details.partition_epoch),
        "topic_id": text[details.topic_id].decode("latin-1") if details.topic_id is not None else None,
        "leader_recovery_state": recovery_state(text, details),
        "adding_replicas": numbers(text, details.adding),
        "removing_replicas": numbers(text, details.removing),
        "mode": shape.mode,
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


def _iso(time: bytes, utc: bool) -> str | None:
    """Return ISO 8601 of ``yyyy-MM-dd HH:mm:ss,SSS``; None for what is no time, such as the 39th of a month."""
    text = time.decode("latin-1").replace(" ", "T").replace(",", ".")
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return None
    return f"{text}Z" if utc else text
