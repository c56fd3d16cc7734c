"""Record batches as bytes on their way into and out of a log: checked, stamped, scanned, filtered, recompressed.

Doors for other rooms: ``append_error``, ``batch_scan``, ``older_entries``, ``produced_sets`` and ``transaction_markers``.
Never here: an open file other than one handed in; records of a batch decoded where its header tells enough.
"""

__all__ = [
    "append_checks",
    "append_error",
    "batch_filter",
    "batch_scan",
    "older_entries",
    "produced_sets",
    "received_batches",
    "transaction_markers",
]
