"""The copy of a replica's log in another log dir of the broker, while it is made (KIP-113, ADM-69)."""

from dataclasses import dataclass

from kafkatool.broker.storage.log.log import Log


@dataclass(slots=True, eq=False)
class ReplicaCopy:
    """A copy that is behind the log. Its ``log`` is changed by the thread of ``LogDirMoves`` alone.

    ``cut`` is the lowest offset at which the log was cut and the copy has not yet been: what the copy has from there on is
    nothing to go by, also what was read before the cut and arrives after it. Guarded by the partition's lock.
    """

    log: Log
    cut: int | None = None

    def note_cut(self, offset: int) -> None:
        """Have the copy cut there before anything else is done with it."""
        self.cut = offset if self.cut is None else min(self.cut, offset)
