"""Partition logs on disk in Kafka's formats (BRK-129 to 154)."""
