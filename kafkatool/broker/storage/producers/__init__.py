"""The state of idempotent producers: checked at each append, snapshot to disk, recovered from the log.

Used by ``log``; who appends as leader passes on a ``Verification``.
Never here: a lock (the log's is held), the coordination of transactions.
"""

__all__ = ["producer_reload", "producer_snapshot", "producer_state"]
