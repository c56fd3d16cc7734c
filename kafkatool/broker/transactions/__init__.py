"""The transaction coordinator: identities of producers, their transactions, and the log of both, ``__transaction_state``.

Doors: ``coordinator`` for the handlers and the server; ``marker_writes`` ends transactions in the partitions led here,
whoever coordinates them; ``late_markers``, ``states`` and ``transaction`` hold the values that they take and give.
Never here: a request's decoding or encoding; a lock held over an append or an answer.
"""

__all__ = ["coordinator", "late_markers", "marker_writes", "states", "transaction"]
