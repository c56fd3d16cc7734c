"""What a leader does: appends, fetches, what waits for followers, fetch sessions it serves."""
