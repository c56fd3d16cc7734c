"""Replicas that move to another log dir of their broker: asked for, copied, put in the place of the log (KIP-113).

``log_dir_moves`` is the state of all moves and the thread that copies, ``copying`` a step with one replica, ``decisions``
what is decided from values alone.
"""

__all__ = ["log_dir_moves"]
