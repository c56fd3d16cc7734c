"""A stretch of a file that goes out as part of a response without passing through Python (sendfile)."""

import os
from typing import NamedTuple, Protocol


class HasFileno(Protocol):
    """The owner of an open file: as long as it is referenced, the descriptor stays open."""

    def fileno(self) -> int:
        """Return the descriptor."""
        ...


class FileRegion(NamedTuple):
    """``size_bytes`` bytes from ``position`` on. Holding ``fd_owner`` keeps a deleted segment readable until sent."""

    fd_owner: HasFileno
    position: int
    size_bytes: int

    def read(self) -> bytes:
        """Read the bytes; fewer when the file has become shorter meanwhile. OSError as of ``pread``."""
        whole = os.pread(self.fd_owner.fileno(), self.size_bytes, self.position)
        if len(whole) == self.size_bytes:
            return whole
        parts = []
        position, missing = self.position, self.size_bytes
        while missing and (part := os.pread(self.fd_owner.fileno(), missing, position)):
            parts.append(part)
            position += len(part)
            missing -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)
