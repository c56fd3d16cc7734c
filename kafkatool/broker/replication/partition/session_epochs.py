"""The ids and epochs of fetch sessions on the wire, for the leader's side and the follower's (KIP-227)."""

NO_SESSION = 0  # as a session's id
INITIAL_EPOCH = 0  # a full fetch, which may open a session
FINAL_EPOCH = -1  # no session; a named one is closed
MAX_EPOCH = 2**31 - 1


def epoch_after(epoch: int) -> int:
    """Return the epoch of the request that follows one of ``epoch`` in the same session."""
    return 1 if epoch == MAX_EPOCH else epoch + 1
