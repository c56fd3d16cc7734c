"""The jobs of ``kt logs``: rounds of tasks over files that all tasks can read, with files between the rounds.

Doors: ``merge``, ``ordered_merge``, ``gathering``, ``timeline``, ``report``. What a task computes is in the rooms below,
as pure functions; how tasks are started is the caller's ``Mapper``: Spark, or in tests the process itself. A second
carrier of the same functions would be a room beside this one. pyspark is never imported here.
"""

__all__ = ["gathering", "merge", "ordered_merge", "report", "timeline"]
