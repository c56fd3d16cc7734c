"""Log compaction: which log is cleaned, which segments, which records stay, and how fast.

Door: ``log_cleaner``, run by the log manager. Never here: work under a log's lock, but for putting a finished segment
in place.
"""

__all__ = ["log_cleaner"]
