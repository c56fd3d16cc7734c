"""Makes Spark's class-data archive, at the lowest priority: ``python -m kafkatool.core.statelog.spark.archive_maker``."""

import os
from pathlib import Path

from kafkatool.core import class_data
from kafkatool.core.java import find_java
from kafkatool.core.statelog.spark.archive import archive_path
from kafkatool.core.statelog.spark.jvm import jvm_options, spark_jars
from kafkatool.core.statelog.spark.session import Spark


def make() -> None:
    """Make the archive, if nobody else is at it. OSError, SparkError, SubprocessError."""
    java = find_java()
    dump = [str(java.executable), *jvm_options(), "-cp", ":".join(map(str, spark_jars()))]
    class_data.make(archive_path(java), _list_classes, dump)


def _list_classes(directory: Path, classes: Path) -> None:
    with Spark("local[2]", directory, jvm_options=[f"-XX:DumpLoadedClassList={classes}"]) as spark:
        spark.map(abs, range(4))
        spark.stop_cleanly()  # killed, it would not finish the list


if __name__ == "__main__":
    os.nice(19)
    make()
