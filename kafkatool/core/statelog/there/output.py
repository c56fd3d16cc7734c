"""Results written through Spark's committers: ordered part files under a URI, or a Parquet dataset.

They are written beside the name that was asked for and renamed when all is there: nothing but a whole result ever has
that name, whatever dies. Object stores rename by copying; theirs is the time it takes.

A committer goes by what this machine sees: of workers that wrote to disks of their own it finds nothing, and calls that a
success. So the part files are held against the parts that have something in them.
"""

import re
import uuid
from typing import Any

from kafkatool.core.errors import KafkatoolError, UsageError
from kafkatool.core.statelog.merging.rows import sql_schema
from kafkatool.core.statelog.spark.parquet import PARQUET_SETTINGS
from kafkatool.core.statelog.spark.pyspark_private import java_bytes, java_context, java_strings, jvm
from kafkatool.core.statelog.there.carrier import RemoteParts
from kafkatool.core.statelog.there.tasks import without_end
from kafkatool.core.statelog.there.workers import Session

_PART = re.compile(r"part-(\d+)-")


def check_new(spark: Session, uri: str) -> None:
    """Refuse a name that is taken, before any work is done. UsageError, SparkError."""
    spark.with_context(lambda context: free_target(context, uri))


def save(parts: RemoteParts, uri: str, *, form: str = "text", utc: bool = False) -> None:
    """Write lines as part files whose names sort in their order, or, rows of JSON, as Parquet. UsageError, SparkError."""
    parts.workers.spark.with_context(lambda context: _save(context, parts, uri, form == "parquet", utc))


def free_target(context: Any, uri: str) -> tuple[Any, Any]:
    """Return the file system and the path of a name that is not taken."""
    from py4j.protocol import Py4JJavaError

    try:
        target = jvm(context).org.apache.hadoop.fs.Path(uri)
        files = target.getFileSystem(java_context(context).hadoopConfiguration())
        if not files.exists(target):
            return files, target
    except Py4JJavaError as e:
        raise UsageError(f"{uri}: {str(e.java_exception).splitlines()[0]}") from e
    raise UsageError(f"{uri} exists; a result is a directory of its own: name a new one")


def _save(context: Any, parts: RemoteParts, uri: str, parquet: bool, utc: bool) -> None:
    files, target = free_target(context, uri)
    classes = jvm(context)
    temporary = classes.org.apache.hadoop.fs.Path(
        target.getParent(), f".{target.getName()}.{uuid.uuid4().hex[:12]}.tmp"
    )
    session = classes.org.apache.spark.sql.classic.SparkSession.builder().getOrCreate()
    encoders = classes.org.apache.spark.sql.Encoders
    lines = session.createDataset(java_bytes(parts.pieces.map(without_end)).rdd(), encoders.BINARY())
    text = lines.selectExpr(java_strings(context, "cast(value as string) as value"))
    try:
        if parquet:
            for key, value in PARQUET_SETTINGS.items():
                java_context(context).hadoopConfiguration().set(key, value)
            session.conf().set("spark.sql.session.timeZone", "UTC")
            rows = session.read().schema(sql_schema(utc=utc)).json(getattr(text, "as")(encoders.STRING()))
            rows.write().option("compression", "zstd").parquet(str(temporary))
        else:
            text.write().option("lineSep", "\n").text(str(temporary))
        _check_whole(files, temporary, parts.filled, uri)
        free_target(context, uri)
        if not files.rename(temporary, target):
            raise KafkatoolError(f"{uri}: the result could not be given its name")
        if files.exists(inside := classes.org.apache.hadoop.fs.Path(target, temporary.getName())):
            files.delete(inside, True)  # a directory made just now, into which the result was moved
            raise UsageError(f"{uri} exists; a result is a directory of its own: name a new one")
    except BaseException:
        files.delete(temporary, True)
        raise


def _check_whole(files: Any, directory: Any, filled: frozenset[int], uri: str) -> None:
    """Refuse a result of which this machine does not see every part that holds something. KafkatoolError."""
    names = (str(status.getPath().getName()) for status in files.listStatus(directory))
    found = {int(part[1]) for name in names if (part := _PART.match(name))}
    if missing := filled - found:
        raise KafkatoolError(
            f"{uri}: {len(missing)} of {len(filled)} parts of the result cannot be seen from here: the workers wrote to "
            "disks of their own; name an URI that they and this machine share"
        )
