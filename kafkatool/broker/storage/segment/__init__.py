"""One segment of a log: its file, its indexes, and the rules by which segments roll, expire and are replaced.

Used by ``log``, ``producers`` and ``compaction`` only. Never here: a decision about the log as a whole; the log's lock
is handed in and guards every change.
"""

__all__ = ["retention", "segment", "segment_file", "segment_swap", "segments", "transaction_index"]
