"""``kt drain``: empty brokers, from a plan to the proof.

Door: `command`. It goes by a `way`, `by_znode` or `by_request`; `drain_output` shows what happens; the work is
`core/operations/drain`.
"""
