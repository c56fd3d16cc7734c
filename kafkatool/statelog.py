"""State-change logs as DataFrames, for a notebook or a job of one's own on Spark 4 (docs/logs-on-spark.md).

``records(spark, uris)`` gives a row for each partition that a line names; ``facts(records)`` what happened to each
partition, each fact once with everybody who told it. ``register(spark)`` makes the rows a format of Spark's:
``spark.read.format("kafka-state-change").load(uri)``.
"""

from kafkatool.core.statelog.there.format import register
from kafkatool.core.statelog.there.frames import facts, records

__all__ = ["facts", "records", "register"]
