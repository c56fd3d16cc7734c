"""Merging: what a task does to make one log, in order of time, of many; every line is accounted for.

Doors: ``merge_slice`` (text, by streams over one time slice), ``rows`` (records as data; a new output format begins
there), ``parts``. Nothing here plans, starts tasks or knows Spark.
"""

__all__ = ["merge_slice", "parts", "rows"]
