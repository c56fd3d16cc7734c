"""The one file that touches pyspark below its public surface: ``_jvm``, ``_jsc``, ``_gateway``, ``_accumulatorServer``,
``RDD._jrdd`` and ``_reserialize``, ``DataFrame._jdf``, and the server for callbacks.

They let us connect to a JVM that we started ourselves, let go of one that is dead, and pass bytes as they are. What else
is relied on without being documented (the launcher's variables and class, the daemon) is spelled in ``jvm``, ``session``
and ``daemon``. tests/core/statelog/spark/test_pyspark_private.py names each of them and says what a new pyspark has
changed.
"""

import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

CONNECTION_FILE = "_PYSPARK_DRIVER_CONN_INFO_PATH"
"""Environment variable of the JVM: the file it writes its port and its secret to."""

PORT, SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
"""Environment variables of pyspark: a JVM that runs already."""


def connect(connection_file: Path, master: str, python: str) -> Any:
    """Return a SparkContext on the JVM that has written that file; workers run ``python``. Py4JError, OSError."""
    from pyspark.conf import SparkConf
    from pyspark.core.context import SparkContext

    told = connection_file.read_bytes()  # port, length of the secret, secret
    ours = {
        PORT: str(int.from_bytes(told[:4], "big")),
        SECRET: told[8 : 8 + int.from_bytes(told[4:8], "big")].decode(),
        "PYSPARK_PYTHON": python,
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


def failures() -> tuple[type[Exception], ...]:
    """Return what a call into the JVM raises: after SQL in this process some of Java's errors are pyspark's own."""
    from py4j.protocol import Py4JError

    return (Py4JError, OSError, *_captured())


def is_told_by_java(error: BaseException | None) -> bool:
    """Tell an exception that the JVM tells of from the loss of the JVM."""
    from py4j.protocol import Py4JJavaError

    return isinstance(error, (Py4JJavaError, *_captured()))


def java_trace(error: Any) -> str:
    """Return the stack traces of an exception that the JVM tells of; those of py4j's error are fetched from it."""
    if isinstance(error, _captured()):
        return str(error._stackTrace)
    return str(error).replace("\n: ", "\n")


def _captured() -> tuple[Any, ...]:
    """Return pyspark's own errors, if it can have raised any: their module comes with SQL."""
    module = sys.modules.get("pyspark.errors.exceptions.captured")
    return () if module is None else (module.CapturedException,)


def java_context(context: Any) -> Any:
    """Return the JVM's JavaSparkContext."""
    return context._jsc


def java_new(context: Any, java_class: Any) -> Any:
    """Return a new object of a class of the JVM that the gateway cannot find by name."""
    gateway, classes = context._gateway, context._jvm
    constructor = java_class.getDeclaredConstructor(gateway.new_array(classes.java.lang.Class, 0))
    return constructor.newInstance(gateway.new_array(classes.java.lang.Object, 0))


def driver_loader(context: Any) -> Any | None:
    """Return the JVM's loader that all threads of a driver share and that takes more classes; None if it has none."""
    classes, found = context._jvm, None
    kind = classes.java.lang.Class.forName("org.apache.spark.util.MutableURLClassLoader")
    loader = classes.java.lang.Thread.currentThread().getContextClassLoader()
    while loader is not None:
        found = loader if kind.isInstance(loader) else found
        loader = loader.getParent()
    return found


def serve_callbacks(context: Any) -> None:
    """Let the JVM call functions of this process, as pyspark does for foreachBatch; again does no harm."""
    from pyspark.java_gateway import ensure_callback_server_started

    ensure_callback_server_started(context._gateway)


def java_rows(frame: Any) -> Any:
    """Return a DataFrame as the JVM's Dataset."""
    return frame._jdf


def java_strings(context: Any, *texts: str) -> Any:
    """Return an array of the JVM, for methods that take any number of texts."""
    array = context._gateway.new_array(context._jvm.java.lang.String, len(texts))
    for at, text in enumerate(texts):
        array[at] = text
    return array


def bytes_rdd(context: Any, java_rdd: Any) -> Any:
    """Return a JavaRDD of byte arrays as an RDD of bytes."""
    from pyspark.core.rdd import RDD
    from pyspark.serializers import NoOpSerializer

    return RDD(java_rdd, context, NoOpSerializer())


def java_bytes(rdd: Any) -> Any:
    """Return an RDD of bytes as a JavaRDD of byte arrays."""
    from pyspark.serializers import NoOpSerializer

    return rdd._reserialize(NoOpSerializer())._jrdd


def by_number(context: Any, pairs: Any, partitions: int) -> Any:
    """Return an RDD of bytes, each in the partition that its number says; ``pairs`` are in turn numbers ("!q") and bytes.

    pyspark's own partitionBy would gather a thousand of them and more in a worker's memory, however large they are.
    """
    classes = jvm(context)
    java = classes.org.apache.spark.api.python.PairwiseRDD(java_bytes(pairs).rdd()).asJavaPairRDD()
    return bytes_rdd(context, java.partitionBy(classes.org.apache.spark.HashPartitioner(partitions)).values())


def disk_only() -> Any:
    """Return the storage level of what is kept on the workers' disks."""
    from pyspark.storagelevel import StorageLevel

    return StorageLevel.DISK_ONLY


def forget(context: Any | None) -> None:
    """Take back what pyspark keeps about a JVM that is no more."""
    from pyspark.core.context import SparkContext

    if context is not None:
        updates, context._accumulatorServer = context._accumulatorServer, None
        if updates is not None:
            threading.Thread(target=_shut_down, args=(updates,), daemon=True).start()  # it takes a second to notice
        context._jsc = None  # stop() would wait for the JVM
        context.stop()
    if SparkContext._gateway is not None:
        SparkContext._gateway.close()
    SparkContext._gateway = SparkContext._jvm = None


def _shut_down(updates: Any) -> None:
    with suppress(OSError):  # the directory that its socket is in is being removed meanwhile
        updates.shutdown()
