"""What Spark runs to fork its Python workers from: pyspark's own daemon, with our code loaded before the forks.

Each worker would otherwise load pyspark's worker module and the merge by itself, after its fork.
"""

import importlib

from pyspark import daemon

PRELOADED = ("pyspark.worker", "kafkatool.core.statelog.kernel")

if __name__ == "__main__":
    for module in PRELOADED:
        importlib.import_module(module)
    daemon.manager()
