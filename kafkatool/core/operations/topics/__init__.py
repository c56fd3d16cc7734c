"""Creating, changing, deleting and describing topics."""
