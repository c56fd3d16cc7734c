"""Emptying brokers, from a plan to the proof that nothing of them is left: for ``kt drain``.

Doors: `drain` carries it out in rounds by a `way`, `by_znode` or `by_request`, and yields what happens. `planning` and
`proof` are the decisions, and pure; a round by ZooKeeper is a run of `reassignment`, one by requests a `requested_round`
with its `requested_throttles`.
"""

__all__ = ["by_request", "by_znode", "drain", "proof", "requested_throttles", "way"]
