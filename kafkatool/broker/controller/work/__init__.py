"""One file per kind of event: brokers, topics, deletions, reassignments, elections, shutdowns."""
