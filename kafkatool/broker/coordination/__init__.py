"""What the coordinators of groups and of transactions have in common: partitions of an internal topic, owned and loaded.

Doors: ``led_topic`` and ``log_walk`` bring the partitions in and let them go; ``ownership`` and ``partition_count`` say
where an id belongs, ``ids`` how long one may be; ``clock`` is the time that both go by, ``record_codec`` how their
records are written, ``tombstones`` how many go together. Never here: what the records mean.
"""

__all__ = ["clock", "ids", "led_topic", "log_walk", "ownership", "partition_count", "record_codec", "tombstones"]
