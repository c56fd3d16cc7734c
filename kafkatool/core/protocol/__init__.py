"""Kafka's wire format: primitives, record batches, one small file per API (wire.md; BRK-151 to 162)."""
