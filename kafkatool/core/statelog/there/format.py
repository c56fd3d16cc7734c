"""``spark.read.format("kafka-state-change")``: the rows of ``records`` by the name of a format, for code and for SQL.

It is a format of the driver's JVM, which asks this process for the rows. A Python data source (pyspark.sql.datasource)
would be planned and read in Python processes: no connector of Spark's reaches there, neither hdfs nor s3a; all of them
would need PyArrow; and a task could not know how many lines the tasks before it met.
"""

import atexit
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

from kafkatool.core.errors import KafkatoolError, UsageError
from kafkatool.core.statelog.spark.pyspark_private import driver_loader, java_rows, jvm, serve_callbacks
from kafkatool.core.statelog.there.frames import records
from kafkatool.core.statelog.there.shipping import compile_java

FORMAT_CLASS: Final = "kafkatool.StateChangeFormat"
_SERVICE: Final = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"


def register(spark: Any) -> None:
    """Make ``spark.read.format("kafka-state-change").load(uri)`` known, to all sessions of this Spark; twice does no harm.

    UsageError for a Spark that was not started as pyspark and spark-submit start it.
    """
    context = spark.sparkContext
    loader = driver_loader(context)
    if loader is None:
        raise UsageError("this Spark takes no more classes (it was not started by spark-submit): use records()")
    if loader.getResource(f"{FORMAT_CLASS.replace('.', '/')}.class") is None:
        directory = Path(tempfile.mkdtemp(prefix="kt-format-"))
        atexit.register(shutil.rmtree, directory, ignore_errors=True)  # classes are read from there when first used
        jar = directory / "kafkatool-format.jar"
        compile_java(context, FORMAT_CLASS, jar, texts={_SERVICE: FORMAT_CLASS})
        loader.addURL(jvm(context).java.net.URI(jar.as_uri()).toURL())
    serve_callbacks(context)
    loader.loadClass(FORMAT_CLASS).getField("reader").set(None, _Reader(spark))


class _Reader:
    """Gives the JVM the rows of a path; a ``java.util.function.Function`` there."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def apply(self, path: str | None) -> Any:
        """Return a Dataset, or what is wrong as text: an exception would arrive as a stack trace in one."""
        if path is None:
            return "kafka-state-change: load one file, directory or pattern; records(spark, [...]) takes several"
        try:
            return java_rows(records(self._spark, path))
        except KafkatoolError as e:
            return f"kafka-state-change: {e}"

    class Java:
        """What py4j asks for."""

        implements = ("java.util.function.Function",)
