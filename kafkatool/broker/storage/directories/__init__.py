"""The log directories of a broker: locked, loaded, checkpointed, given up when a disk fails.

``log_manager`` is the door.
"""
