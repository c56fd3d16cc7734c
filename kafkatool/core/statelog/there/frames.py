"""Records and facts as DataFrames, for a session of the user's own: a notebook, a job (SCL-16X, SCL-17X).

Both are made on the workers by the functions that ``kt logs`` uses; the session needs nothing but Spark 4, its workers
nothing but Python.
"""

import atexit
import json
import shutil
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from kafkatool.core.statelog.history.facts import history_of
from kafkatool.core.statelog.history.observations import OBSERVED, Heard, observe, said_in
from kafkatool.core.statelog.history.timeline import ITEM_KEYS, partition_items
from kafkatool.core.statelog.jobs.carrier import Logs
from kafkatool.core.statelog.jobs.gathering import partitions_of
from kafkatool.core.statelog.jobs.ordered_merge import merge_ordered
from kafkatool.core.statelog.lines.details import find_details
from kafkatool.core.statelog.lines.selection import Selection
from kafkatool.core.statelog.lines.shapes import ByShape
from kafkatool.core.statelog.merging.rows import PLACE_COLUMNS, REPEATED_TEXT_BYTES, sql_schema
from kafkatool.core.statelog.sources.chunks import CHUNK_BYTES, Record
from kafkatool.core.statelog.there.carrier import RemoteParts, There
from kafkatool.core.statelog.there.files import open_remote
from kafkatool.core.statelog.there.workers import Workers

_NUMBERS, _TEXTS, _LISTS = "INT", "STRING", "ARRAY<INT>"
_FACT_TYPES: Final = {
    **dict.fromkeys(("topic", "fact", "reason", "topic_id", "leader_recovery_state", "mode"), _TEXTS),
    **dict.fromkeys(("isr", "changed", "replicas", "old_replicas", "adding_replicas", "removing_replicas"), _LISTS),
    **dict.fromkeys(("time", "until"), "TIMESTAMP_NTZ"),
    **dict.fromkeys(("decided_by_leader", "unclean", "handed_over"), "BOOLEAN"),
    "witnesses": (
        "ARRAY<STRUCT<broker: INT, role: STRING, time: TIMESTAMP_NTZ, late_ms: BIGINT, file: STRING, line: BIGINT>>"
    ),
}
FACTS_SCHEMA: Final = ", ".join(f"`{name}` {_FACT_TYPES.get(name, _NUMBERS)}" for name in ITEM_KEYS)


class _Session:
    """What ``Workers`` needs, of a session that is the user's."""

    def __init__(self, session: Any) -> None:
        self._context = session.sparkContext

    @property
    def parallelism(self) -> int:
        return int(self._context.defaultParallelism)

    def with_context(self, action: Callable[[Any], Any], *, tasks: int = 0) -> Any:
        return action(self._context)


def records(spark: Any, uris: str | Sequence[str], *, chunk_bytes: int = CHUNK_BYTES) -> Any:
    """Return a DataFrame with a row for each partition that a record of these logs names, one if it names none.

    ``uris`` name files, directories and patterns, by whatever connector Spark has. Rows are in the order of the merge.
    The logs are read and shuffled once, at once; what must be known about them is told as Python warnings.
    UsageError for logs that are missing or no text.
    """
    workers = _workers(spark)
    opened = open_remote(workers, [uris] if isinstance(uris, str) else uris, [])
    for warning in (*opened.warnings, *opened.broken):
        warnings.warn(warning, stacklevel=2)
    logs = Logs(opened.sources, (None,) * len(opened.sources))
    carrier = There(workers)
    merged = merge_ordered(logs, Selection(), carrier, as_rows=True, with_places=True, chunk_bytes=chunk_bytes)
    assert isinstance(merged.parts, RemoteParts)
    return spark.read.schema(sql_schema(utc=False, more=PLACE_COLUMNS)).json(merged.parts.pieces.map(_text))


def facts(records: Any) -> Any:
    """Return a DataFrame with a row for each fact about a partition, from the rows of ``records``, or some of them.

    The facts of a partition are right if all its rows are there. One more, ``final``, tells how it stands at its last line.
    """
    about = records.where("topic is not null and time is not null").where(
        f"event in ({', '.join(repr(event) for event in sorted(OBSERVED))})"
    )
    # Of a long record only the first row has the text.
    long = (
        records.where(f"octet_length(text) >= {REPEATED_TEXT_BYTES}")
        .selectExpr("file as long_file", "offset as long_offset", "text as long_text")
        .dropDuplicates(["long_file", "long_offset"])
    )
    whole = about.join(
        long,
        on=[about["text"].isNull(), about["file"] == long["long_file"], about["offset"] == long["long_offset"]],
        how="left",
    )
    rows = whole.selectExpr(
        "date_format(time, 'yyyy-MM-dd HH:mm:ss,SSS')",
        "file_number",
        "file",
        "offset",
        "line",
        "topic",
        "partition",
        "coalesce(text, long_text)",
    )
    number = max(int(records.sparkSession.conf.get("spark.sql.shuffle.partitions")), 1)
    observed = rows.rdd.mapPartitions(_observations)
    found = observed.partitionBy(number, _bucket).mapPartitions(_facts)
    return records.sparkSession.read.schema(FACTS_SCHEMA).json(found)


_SHIPPED: dict[str, Workers] = {}
"""By Spark's application: code is sent to its workers once."""


def _workers(spark: Any) -> Workers:
    application = spark.sparkContext.applicationId
    if application not in _SHIPPED:
        directory = Path(tempfile.mkdtemp(prefix="kt-code-"))
        atexit.register(shutil.rmtree, directory, ignore_errors=True)  # Spark serves what it is to send from there
        _SHIPPED[application] = Workers(_Session(spark), directory)
    return _SHIPPED[application]


def _text(piece: bytes) -> str:
    return piece.decode()


def _bucket(key: tuple[str, int]) -> int:
    return zlib.crc32(f"{key[0]}-{key[1]}".encode())


def _observations(rows: Iterator[Any]) -> Iterator[tuple[tuple[str, int], tuple[Any, ...]]]:
    """Yield (topic, partition) and what a row says of it: the file's name and an entry as ``partitions_of`` takes it."""
    store = ByShape(find_details)
    for time, number, file, offset, line, topic, partition, text in rows:
        first, *tail = (text or "").encode().split(b"\n")
        record = Record(time.encode(), offset, line, first, store.of(first), tuple(tail))
        for _, _, o in (said for said in observe(record, number, line) if said[:2] == (topic, partition)):
            heard: Heard = (topic, partition, o.time, o.source, o.offset, 0, o.line, said_in(o[4:]))
            yield (topic, partition), (file, heard)


def _facts(found: Iterator[tuple[tuple[str, int], tuple[Any, ...]]]) -> Iterator[str]:
    names: dict[int, str] = {}

    def entries() -> Iterator[tuple[Any, ...]]:
        for _, (file, entry) in found:
            _, _, _, source, *_ = entry
            names[source] = file
            yield entry

    for topic, partition, observations in partitions_of(entries(), (0,)):  # which are all gone through before the first
        end = max(o.time for o in observations)
        history = history_of(observations)
        for item in partition_items(topic, partition, history, names, start_time="", end=end, with_ignored=True):
            for told in (item, *item["witnesses"]):
                told["time"] = _iso(told["time"])
            item["until"] = item["until"] and _iso(item["until"])
            yield json.dumps(item)


def _iso(time: str) -> str:
    return time.replace(" ", "T").replace(",", ".")
