"""The logs as they are read: found, unpacked, cut into slices (by time), chunks and blocks (by bytes), with clocks.

Doors: ``files`` (``find_files``, ``open_logs``), ``source``, ``slices``, ``chunks``, ``clocks``; ``spilling``, for what is
made of them. A log is read at any offset and never held as a whole; what its lines mean is asked of ``lines``.
"""

__all__ = ["blocks", "chunks", "clocks", "files", "slices", "source", "spilling", "spool", "streams"]
