"""One segment of a log, its indexes, and when segments roll, expire or are replaced."""
