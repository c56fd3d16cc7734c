"""One partition's log: appended to, read, truncated, opened after a crash."""
