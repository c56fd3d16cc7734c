"""``kt drain``: empty brokers, from a plan to the proof.

Door: `command`. `drain_output` shows what happens; the work is `core/operations/drain`.
"""
