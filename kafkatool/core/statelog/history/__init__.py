"""The history of partitions: observations become facts, facts a timeline and the numbers of a report.

Doors: ``facts`` (``history_of``), ``timeline``, ``report``, ``skew``, ``verdict``. Pure functions of observations, whatever
brings these together; only ``skew_at_the_end`` reads logs. Nothing here knows of tasks, and order never goes by clocks
alone.
"""

__all__ = [
    "chronology",
    "facts",
    "observations",
    "overview",
    "partition_summary",
    "report",
    "skew",
    "timeline",
    "verdict",
]
