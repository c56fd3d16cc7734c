"""Rows as Parquet, written by Spark itself: its JVM reads the JSON rows and no Python touches them again."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kafkatool.core.errors import KafkatoolError, UsageError
from kafkatool.core.statelog.merging.rows import sql_schema
from kafkatool.core.statelog.spark.hadoop_names import hadoop_name, hadoop_pattern
from kafkatool.core.statelog.spark.pyspark_private import java_context, jvm
from kafkatool.core.statelog.spark.session import Spark

PARQUET_SETTINGS = {"parquet.block.size": str(16 * 1024 * 1024)}
"""A row group is held in the JVM's memory, whose heap is small."""


def write_parquet(parts: Sequence[Path], directory: Path, spark: Spark, *, utc: bool) -> None:
    """Write files of JSON rows as a Parquet dataset, in their order when read by file name. SparkError.

    ``time`` is TIMESTAMP_NTZ (local, as the brokers wrote it), or with ``utc`` an instant.
    """
    spark.with_context(lambda context: _write(context, parts, directory, utc))


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Give a directory beside ``path`` that becomes it when the block ends well; otherwise nothing is left (SCL-22X).

    UsageError if ``path`` exists: a dataset is not replaced file by file.
    """
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path} exists; a Parquet dataset is a directory of its own: name a new one")
    try:
        own = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
    except OSError as e:
        raise KafkatoolError(f"cannot write in {path.parent}: {e.strerror}") from e
    try:
        own.chmod(0o755)
        yield own / "rows"
        (own / "rows").rename(path)
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _write(context: Any, parts: Sequence[Path], directory: Path, utc: bool) -> None:
    classes, java = jvm(context), java_context(context)
    conf = java.hadoopConfiguration()
    for key, value in PARQUET_SETTINGS.items():
        conf.set(key, value)
    conf.set("mapreduce.input.fileinputformat.split.minsize", str(1 << 40))  # a part stays whole: so does the order
    session = classes.org.apache.spark.sql.classic.SparkSession.builder().getOrCreate()
    session.conf().set("spark.sql.session.timeZone", "UTC")
    if parts:
        lines = java.sc().textFile(",".join(hadoop_pattern(part) for part in parts), 1)
    else:
        lines = java.parallelize(classes.java.util.ArrayList()).rdd()
    text = session.createDataset(lines, classes.org.apache.spark.sql.Encoders.STRING())
    rows = session.read().schema(sql_schema(utc=utc)).json(text)
    rows.write().option("compression", "zstd").parquet(hadoop_name(directory))
