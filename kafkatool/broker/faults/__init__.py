"""Faults that a test asks of a broker: requests answered wrongly, late or never, a bad disk, a network that is gone.

Doors: ``control``, a broker's end of the socket by which it is asked; ``address``, of that socket. A broker without
``kt.fault.socket`` imports nothing of this, and one that has it, and no fault, serves through the same functions.
"""

__all__ = ["address", "control"]
