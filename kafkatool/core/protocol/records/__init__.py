"""Record batches and the older message sets: headers, records, checksums, compression.

Doors: ``batches``, of every format; ``compression``; ``varints``. Bytes are read and built in memory; segments on disk
are in ``kafkatool/broker/storage``.
"""

__all__ = ["batches", "compression", "legacy", "varints"]
