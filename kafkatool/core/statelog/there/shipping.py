"""What a bare worker needs: our package, sent as a zip file, and the reader of ranges, compiled by Spark's Janino."""

import sys
import zipfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kafkatool.core.statelog.spark.pyspark_private import java_context, java_new, jvm

SHIPPED = ("__init__.py", "core/__init__.py", "core/errors.py", "core/model", "core/statelog")
"""Of our package: all that a task imports needs nothing but the standard library, and orjson where it is installed."""

READER_CLASS = "kafkatool.RangeReader"


def pack(directory: Path) -> Path:
    """Write the zip file and return its path."""
    package = Path(str(files("kafkatool")))
    path = directory / "kafkatool-tasks.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in SHIPPED:
            below = package / name
            for file in sorted(below.rglob("*.py")) if below.is_dir() else [below]:
                packed.write(file, f"kafkatool/{file.relative_to(package)}")
    return path


def ship(context: Any, directory: Path) -> Any:
    """Send our code to all workers; return the reader of ranges, an object of the JVM, which is sent along. Py4JError."""
    packed = pack(directory)
    context.addPyFile(packed.as_uri())  # these are real URIs
    while str(packed) in sys.path:  # it is for the workers: we have the package itself
        sys.path.remove(str(packed))
    jar = directory / "kafkatool-reader.jar"
    loader = compile_java(context, READER_CLASS, jar)
    java_context(context).addJar(jar.as_uri())
    return java_new(context, loader.loadClass(READER_CLASS))


def compile_java(context: Any, name: str, jar: Path, *, texts: Mapping[str, str] = MappingProxyType({})) -> Any:
    """Compile a class whose source is in this room, by Spark's Janino, into a jar that has these text files, too.

    Return the JVM's loader of what was compiled.
    """
    classes = jvm(context)
    compiler = classes.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(classes.java.lang.Thread.currentThread().getContextClassLoader())
    source = f"{name.rpartition('.')[2]}.java"
    compiler.cook((files("kafkatool.core.statelog.there") / source).read_text())
    codes = compiler.getBytecodes()
    with zipfile.ZipFile(jar, "w") as written:
        for compiled in codes:
            written.writestr(f"{compiled.replace('.', '/')}.class", bytes(codes[compiled]))
        for path, text in texts.items():
            written.writestr(path, text)
    return compiler.getClassLoader()
