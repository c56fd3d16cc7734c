"""The workers of a Spark elsewhere: ranges of files read by their JVMs, worked on by their Pythons."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from kafkatool.core.errors import KafkatoolError
from kafkatool.core.statelog.spark.pyspark_private import bytes_rdd, java_context, jvm
from kafkatool.core.statelog.there.ranges import Listed, request
from kafkatool.core.statelog.there.shipping import ship

Result = TypeVar("Result")


class Session(Protocol):
    """Runs actions on a SparkContext: a ``Spark`` of ours, or a session of the user's."""

    @property
    def parallelism(self) -> int:
        """Return how many tasks run at the same time."""

    def with_context(self, action: Callable[[Any], Result], *, tasks: int = 0) -> Result:
        """Return ``action`` of the context, which runs about so many tasks."""


class Workers:
    """Sends our code to the workers of ``spark`` and has them read ranges. ``directory`` is the driver's own."""

    def __init__(self, spark: Session, directory: Path) -> None:
        """Ship the code; waits for Spark's start. SparkError."""
        self.spark = spark
        self._reader = spark.with_context(lambda context: ship(context, directory))

    def frames(self, context: Any, groups: Sequence[Sequence[str]]) -> Any:
        """Return an RDD of frames (bytes), a partition for each group of requests."""
        texts = jvm(context).java.util.ArrayList()
        for group in groups:
            texts.add("\n".join(group))
        java = java_context(context).parallelize(texts, max(len(groups), 1)).flatMap(self._reader)
        return bytes_rdd(context, java)

    def run(
        self, function: Callable[[Iterator[bytes]], Iterable[Result]], groups: Sequence[Sequence[str]]
    ) -> list[Result]:
        """Return what ``function`` makes of the frames of each group, in order; keep results small. SparkError."""
        if not groups:
            return []
        return self.spark.with_context(
            lambda context: self.frames(context, groups).mapPartitions(function).collect(), tasks=len(groups)
        )

    def first(self, function: Callable[[Iterator[bytes]], Iterable[Result]], group: Sequence[str]) -> Result:
        """Return the first thing that ``function`` makes of one group's frames. SparkError."""
        return self.run(function, [group])[0]

    def listed(self, uri: str, word: str) -> Iterator[Listed]:
        """Yield the files that a path or pattern names; of a directory, those with the word in their name.

        Py4JJavaError if the connector refuses.
        """
        for line in filter(None, self._reader.list(uri, word).split("\n")):  # names may hold what splitlines cuts at
            size, modified, name = line.split("\t", 2)
            yield Listed(name, int(size), int(modified))

    def read(self, file: Listed, start: int, end: int) -> bytes:
        """Return bytes of a file, to the driver. KafkatoolError."""
        return self.spark.with_context(lambda _: self._read(request("", file, start, end)))

    def _read(self, asked: str) -> bytes:
        from py4j.protocol import Py4JJavaError

        try:
            return bytes(self._reader.read(asked))
        except Py4JJavaError as e:
            raise KafkatoolError(str(e.java_exception.getMessage())) from e
