"""The history of partitions: observations become facts, facts a timeline and the numbers of a report.

Doors: ``facts`` (``history_of``), ``timeline``, ``report``, ``skew``, ``verdict``. Functions of observations alone, whatever
brings these together; only ``skew_at_the_end`` reads logs. Nothing here knows of tasks, order never goes by clocks alone,
and nothing holds all that one partition went through: what is long is a ``Pile`` (``sources/spilling``).
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
