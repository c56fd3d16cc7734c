"""Record batches and the older message sets: headers, records, checksums, compression.

Doors: ``batches``, of every format; ``legacy``, ``message_sets`` and ``down_conversion``, of the older ones;
``compression``; ``varints``. Bytes are read and built in memory; segments on disk are in ``kafkatool/broker/storage``.
"""

__all__ = ["batches", "compression", "down_conversion", "legacy", "message_sets", "varints"]
