"""The jobs of ``kt logs``: a first round reads chunks, a second one works on what belongs together.

Doors: ``merge`` (the fast way, for files here alone), ``ordered_merge``, ``gathering``, ``timeline``, ``report``;
``carrier`` for what carries a job, ``here`` for the carrier of files that all tasks can read, ``tasks`` for what that one
is brought. What a task computes is in the rooms below, as pure functions. pyspark is never imported here.
"""

__all__ = ["carrier", "gathering", "here", "merge", "ordered_merge", "report", "tasks", "timeline"]
