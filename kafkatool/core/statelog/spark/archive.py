"""The class-data archive of Spark's JVM (`core.class_data`): 8,000 classes, 80 MB, about 20 s to make."""

import os
import sys
from pathlib import Path

from kafkatool.core import class_data
from kafkatool.core.java import Java
from kafkatool.core.statelog.spark.jvm import python_path, spark_jars

_MAKER = "kafkatool.core.statelog.spark.archive_maker"


def archive_path(java: Java) -> Path:
    """Return where the archive for that Java and the installed pyspark belongs."""
    return class_data.archive_path("spark", java, spark_jars())


def make_in_background(archive: Path) -> bool:
    """Start the making, unless it is switched off, under way or failed lately. Return if it was started."""
    environment = os.environ | {"PYTHONPATH": python_path()}
    return class_data.make_in_background(archive, [sys.executable, "-P", "-m", _MAKER], environment)
