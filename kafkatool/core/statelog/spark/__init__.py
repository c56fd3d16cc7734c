"""Spark itself: the JVM from start to end, and the job that runs in it alone (writing Parquet).

Doors: ``session`` (a ``Mapper`` for the jobs), ``parquet``, ``hadoop_names``, ``pyspark_private``. pyspark is imported here
and nowhere else, and only when a job runs; its private members only in ``pyspark_private``. Nothing here knows a line of
a log.
"""

__all__ = ["hadoop_names", "parquet", "pyspark_private", "session"]
