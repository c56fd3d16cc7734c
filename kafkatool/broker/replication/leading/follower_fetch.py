"""A follower's fetch that waits in its session for any byte (BRK-97 to 100), as nearly all of them do.

It is tried by reading: the append it waits for is what has it tried, so asking first whether there is something would
only be the same look twice. What was found is the answer, unless another thread was faster; then its mark stays in the
session and the next request finds it.
"""

from collections.abc import Callable, Hashable

from kafkatool.broker.replication.leading.fetch_session import FetchResults
from kafkatool.broker.runtime.purgatory import DelayedOperation
from kafkatool.core.protocol.messages.error_codes import ErrorCode


class FollowerFetch(DelayedOperation):
    """A fetch that completes when there is a byte to read, or an error to tell."""

    def __init__(
        self, max_wait_ms: float, look: Callable[[], FetchResults], respond: Callable[[FetchResults], None]
    ) -> None:
        """Note what to call. ``look()`` reads what has changed since the fetch came to wait."""
        super().__init__(max_wait_ms)
        self._look = look
        self._respond = respond

    def try_complete(self, key: Hashable | None = None) -> bool:
        if self._once.locked():
            return True
        found = self._look()
        for _, read in found:
            if read.size_bytes or read.error is not ErrorCode.NONE:
                if self._claim():
                    self._respond(found)
                return True
        return False

    def on_complete(self) -> None:
        self._respond(self._look())
