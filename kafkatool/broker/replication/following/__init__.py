"""What a follower does: fetchers, truncation, fetch sessions it asks for."""
