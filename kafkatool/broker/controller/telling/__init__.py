"""Telling brokers: requests gathered per broker, channels that send them, lines that log them."""
