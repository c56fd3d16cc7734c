"""Log compaction: which log, which segments, which records stay, and how fast."""
