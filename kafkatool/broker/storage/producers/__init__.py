"""The state of idempotent producers, its snapshots, and its recovery from a log."""
