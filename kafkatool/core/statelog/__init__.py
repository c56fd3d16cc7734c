"""State-change logs: the grammar of their lines, one merged log, and the history they hold.

Rooms, each built upon those after it: ``there`` (jobs whose logs or workers are elsewhere), ``jobs`` (what runs in
parallel) and ``spark`` (on what), ``history`` and ``merging`` (what a task computes: pure functions), ``sources`` (files,
read at any offset), ``lines`` (text). Doors for ``kt logs``: ``jobs``, ``there``, ``sources.files`` and
``sources.clocks``, ``spark.session``, ``lines.selection``. Nothing here prints, and a cluster is never asked.
"""

__all__ = ["history", "jobs", "lines", "merging", "sources", "spark", "there"]
