"""What a job needs of whatever carries it: chunks go to tasks, what they find is brought together by bucket.

There are two carriers. ``here`` reads files that all tasks can read and keeps files between the rounds; ``there`` does
both by Spark's own means, for logs and masters elsewhere. The jobs are written once, against these protocols; results
never depend on the carrier (SCL-8).
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol, TypeVar

from kafkatool.core.statelog.sources.chunks import Chunk
from kafkatool.core.statelog.sources.clocks import Clock
from kafkatool.core.statelog.sources.source import Source

Entry = tuple[Any, ...]
"""One piece of data, of what ``marshal`` takes: tuples, lists, dicts, bytes, texts, numbers, None."""

Buckets = Mapping[int, Sequence[Entry]]
"""What a task found, by the bucket it belongs to."""

Note = TypeVar("Note")
Note_co = TypeVar("Note_co", covariant=True)
Result = TypeVar("Result")

Reading = Callable[[Chunk, Iterable[bytes]], Generator[Buckets, None, Note]]
"""A task of the first round: a chunk and its bytes, in pieces of whole lines, become entries, then a note for the driver.

Entries are given away as soon as they are what some MB of lines make: a gzip file, which is read whole, is one chunk.
"""

Sorting = Callable[[Iterator[Entry]], Generator[Entry, None, Result]]
"""Makes of a bucket's entries others, (key, value), in order of keys, and then a result."""


@dataclass(frozen=True, slots=True)
class Logs:
    """Opened logs with the clock of each."""

    sources: tuple[Source, ...]
    clocks: tuple[Clock | None, ...]


class Parts(Protocol):
    """A result in parts, in order; it may be larger than any memory."""

    def write_to(self, output: BinaryIO) -> None:
        """Write all of it. OSError, SparkError."""


class Scattered(Protocol[Note_co]):
    """The end of a first round: the tasks' notes, and their entries by bucket."""

    @property
    def notes(self) -> Sequence[Note_co]:
        """Return the notes in the order of the chunks."""

    def each(self, function: Callable[[Iterator[Entry]], Result], buckets: Sequence[int] | None = None) -> list[Result]:
        """Return ``function`` of the entries of each bucket, in no order, or of those named, in theirs; keep results small.

        Without a choice, buckets that nothing is in may be left out.
        """

    def parts(self, function: Callable[[Iterator[Entry]], Iterator[bytes]]) -> Parts:
        """Return what ``function`` makes of the buckets, in their order: pieces that each end with a line's end."""

    def in_order(self, function: Sorting[Result], most: int) -> tuple[Callable[[], Iterator[Entry]], list[Result]]:
        """Return the entries that ``function`` makes of each of the first ``most`` buckets, in order of keys.

        They are given, without being held, by the function returned; with it come the results, which must be small.
        """


class Carrier(Protocol):
    """Reads chunks of logs, and brings together what is found in them."""

    @property
    def parallelism(self) -> int:
        """Return how many tasks run at the same time."""

    def sample(self, sources: Sequence[Source], places: Sequence[tuple[int, int]]) -> list[tuple[int, int, bytes]]:
        """Return source, offset and time of the first record at or after each place (source, offset), where one is.

        Places rise.
        """

    def scatter(
        self,
        sources: Sequence[Source],
        chunks: Sequence[Chunk],
        reading: "Reading[Note]",
        *,
        buckets: int,
        chunk_bytes: int,
    ) -> Scattered[Note]:
        """Run a first round over these chunks, of about that size; entries go to buckets 0 to ``buckets - 1``."""
