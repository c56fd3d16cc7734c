"""Logs that lie elsewhere (``hdfs://…``, ``s3a://…``, any scheme Spark's connectors know), fetched before they are read.

Spark's JVM copies them, as they are, into the caller's temporary directory: the merge reads files at any offset, more
than once, and a log must not change meanwhile.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kafkatool.core.errors import UsageError
from kafkatool.core.statelog.sources.files import LOG_NAME
from kafkatool.core.statelog.spark.pyspark_private import java_context, jvm
from kafkatool.core.statelog.spark.session import Spark

_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")


def is_remote(name: str) -> bool:
    """Tell a URI from a path."""
    return _SCHEME.match(name) is not None


def fetch(spark: Spark, uris: Sequence[str], directory: Path) -> dict[Path, str]:
    """Copy the files those URIs name (files, directories, Hadoop's globs); return each copy with the URI it came from.

    Waits for Spark's start. UsageError for one that is missing, or whose scheme no connector serves; SparkError.
    """
    return spark.with_context(lambda context: dict(_copies(context, uris, directory)))


def _copies(context: Any, uris: Sequence[str], directory: Path) -> Iterator[tuple[Path, str]]:
    from py4j.protocol import Py4JJavaError

    classes, settings = jvm(context), java_context(context).hadoopConfiguration()
    for uri in uris:
        try:
            where = classes.org.apache.hadoop.fs.Path(uri)
            files = where.getFileSystem(settings)
            found = list(_files(files, where))
            if not found:
                raise UsageError(f"{uri}: no such file")
            for file in found:
                # A directory of its own each: files of several brokers have one name.
                copy = directory / str(len(list(directory.iterdir()))) / file.getName()
                copy.parent.mkdir()
                files.copyToLocalFile(False, file, classes.org.apache.hadoop.fs.Path(copy.as_uri()), True)
                yield copy, str(file)
        except Py4JJavaError as e:
            raise UsageError(f"{uri}: {str(e.java_exception).splitlines()[0]}") from e


def _files(files: Any, where: Any) -> Iterator[Any]:
    """Yield the files a path or pattern names; of a directory, at any depth, those called like a state-change log."""
    for named in files.globStatus(where) or ():
        if named.isFile():
            yield named.getPath()
            continue
        below = files.listFiles(named.getPath(), True)
        while below.hasNext():
            path = below.next().getPath()
            if LOG_NAME in path.getName():
                yield path
