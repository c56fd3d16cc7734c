"""Elections of preferred replicas, through the controller.

Door: `election`. It asks, waits and reads the outcome; it never writes a partition's state.
"""

__all__ = ["election"]
