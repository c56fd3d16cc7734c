"""Emptying brokers, from a plan to the proof that nothing of them is left: for ``kt drain``.

Doors: `drain` carries it out in rounds, each a run of `reassignment`, and yields what happens; `planning` and `proof` are
the decisions, and pure.
"""

__all__ = ["drain", "proof"]
