"""What looks leave, in the process, and in the file of ``--state`` for the next run."""

from pathlib import Path

from kafkatool.core.errors import RefusedError
from kafkatool.core.operations.health import memory_file
from kafkatool.core.operations.health.memory import Memory
from kafkatool.core.operations.health.reading import Reading


class Kept:
    """The file, if one was given. ``trouble``: why it does not serve.

    One that cannot be read is not written either: it may be somebody else's, and of another cluster it tells nothing here.
    """

    def __init__(self, path: Path | None) -> None:
        self.trouble: RefusedError | None = None
        self._path = path

    def recall(self, reading: Reading) -> Memory:
        """Return what former runs have left of the cluster that was looked at."""
        if self._path is None:
            return Memory()
        try:
            return memory_file.read(self._path, reading.view.cluster_id)
        except RefusedError as e:
            self.trouble, self._path = e, None
            return Memory()

    def keep(self, reading: Reading, memory: Memory) -> None:
        """Leave it for the next run. Where that fails now, a later look of this run may still."""
        if self._path is None:
            return
        self.trouble = None
        try:
            memory_file.write(self._path, memory, reading.view.cluster_id)
        except RefusedError as e:
            self.trouble = e
