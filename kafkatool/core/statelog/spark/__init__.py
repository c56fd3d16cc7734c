"""Spark itself: the JVM from start to end, and the few jobs that run in it alone (fetching logs, writing Parquet).

Doors: ``session`` (a ``Mapper`` for the jobs), ``parquet``, ``remote``. pyspark is imported here and nowhere else, and
only when a job runs; its private members only in ``pyspark_private``. Nothing here knows a line of a log.
"""

__all__ = ["parquet", "remote", "session"]
