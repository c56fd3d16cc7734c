"""The one file that touches pyspark below its public surface: ``_jvm``, ``_jsc``, ``_gateway``, ``_accumulatorServer``.

They let us connect to a JVM that we started ourselves, and let go of one that is dead. What else is relied on without
being documented (the launcher's variables and class, the daemon) is spelled in ``jvm``, ``session`` and ``daemon``.
tests/core/statelog/spark/test_pyspark_private.py names each of them and says what a new pyspark has changed.
"""

import os
import sys
import threading
from pathlib import Path
from typing import Any

CONNECTION_FILE = "_PYSPARK_DRIVER_CONN_INFO_PATH"
"""Environment variable of the JVM: the file it writes its port and its secret to."""

PORT, SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
"""Environment variables of pyspark: a JVM that runs already."""


def connect(connection_file: Path, master: str) -> Any:
    """Return a SparkContext on the JVM that has written that file. Py4JError, OSError."""
    from pyspark.conf import SparkConf
    from pyspark.core.context import SparkContext

    told = connection_file.read_bytes()  # port, length of the secret, secret
    ours = {
        PORT: str(int.from_bytes(told[:4], "big")),
        SECRET: told[8 : 8 + int.from_bytes(told[4:8], "big")].decode(),
        "PYSPARK_PYTHON": sys.executable,
    }
    before = {key: os.environ.get(key) for key in ours}
    os.environ.update(ours)  # the only way to hand them to pyspark
    try:
        context = SparkContext(conf=SparkConf(loadDefaults=False).setMaster(master).setAppName("kt logs"))
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value
    if context._accumulatorServer is not None:
        context._accumulatorServer.handle_error = lambda *_: None  # it would print that its connection is lost
    return context


def jvm(context: Any) -> Any:
    """Return the JVM's classes, by their full names."""
    return context._jvm


def java_context(context: Any) -> Any:
    """Return the JVM's JavaSparkContext."""
    return context._jsc


def forget(context: Any | None) -> None:
    """Take back what pyspark keeps about a JVM that is no more."""
    from pyspark.core.context import SparkContext

    if context is not None:
        updates, context._accumulatorServer = context._accumulatorServer, None
        if updates is not None:
            threading.Thread(target=updates.shutdown, daemon=True).start()  # it takes a second to notice
        context._jsc = None  # stop() would wait for the JVM
        context.stop()
    if SparkContext._gateway is not None:
        SparkContext._gateway.close()
    SparkContext._gateway = SparkContext._jvm = None
