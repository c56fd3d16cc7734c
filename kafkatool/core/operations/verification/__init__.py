"""Comparison of the data of all replicas, read from the brokers that hold them.

Doors: `comparison` (what is compared, without I/O but for its reader), `replica_reader` (the reader over the network).
Nothing is written anywhere, and no broker is read faster than `read_rate` allows.
"""

__all__ = ["comparison", "replica_reader"]
