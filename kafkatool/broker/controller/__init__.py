"""The ZooKeeper-mode controller: one thread, one queue, decisions as pure functions (CTL).

Doors for other rooms: ``controller`` (a broker has one), ``standalone`` (a controller without a broker), ``elected`` (what
it tells of an election) and the name of the gauges' file in ``gauges``. Tests and the simulation drive ``worker``,
without its thread.
The event thread never waits for a broker, and nothing here knows handlers or the logs of partitions. All that a term
writes to ZooKeeper goes through ``writing``. See docs/architecture/controller.md.
"""

__all__ = ["controller", "elected", "gauges", "moves", "standalone"]
