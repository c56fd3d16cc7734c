"""The second carrier of the jobs: logs and masters elsewhere, everything by Spark's own means (SCL-1, SCL-8, SCL-22X).

Logs are read through Spark's connectors, in ranges; what belongs together meets by Spark's shuffle, which spills and
recomputes; results are written through Spark's committers. No path is shared but the URIs, and our code is sent to the
workers, which need a bare Python. Doors: ``workers``, ``files``, ``carrier``, ``output``, ``frames``, ``format``.
"""

__all__ = ["carrier", "files", "format", "frames", "output", "workers"]
