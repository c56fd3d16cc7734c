"""The process that Spark forks its Python workers from: pyspark's own daemon, prepared before the forks.

Each worker would otherwise do these things by itself after its fork, some for every task:

- load pyspark's worker module and the merge;
- read the directory of Spark's core jar, twice: the JVM puts it on Python's path, and before its first task a worker
  looks through the whole path anew. Nothing in Python needs it;
- look at each object of these modules for cycles, and so copy its page: pyspark's daemon collects after every task.
  Within a task nothing is looked at at all: the lists of a million findings hold no cycle.
"""

import gc
import importlib
import sys

from pyspark import daemon

PRELOADED = ("pyspark.worker", "kafkatool.core.statelog.merging.merge_slice", "kafkatool.core.statelog.spark.session")


def prepare() -> None:
    """Load what every worker needs and leave out what none does."""
    sys.path[:] = [path for path in sys.path if not path.endswith(".jar")]
    for path in [path for path in sys.path_importer_cache if ".jar" in path]:  # looked through although not on the path
        del sys.path_importer_cache[path]
    for module in PRELOADED:
        importlib.import_module(module)
    gc.collect()
    gc.disable()
    gc.freeze()  # this process does nothing but fork: whoever is forked shares these objects and never looks at them


if __name__ == "__main__":
    prepare()
    daemon.manager()
