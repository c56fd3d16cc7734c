"""Brokers, and what each says of itself: for ``kt brokers``, ``kt health`` and ``kt migrate check``.

Doors: `answers` asks them all at once, `releases` tells their Kafka by the requests they serve, `overview` lays out who
holds and leads how much. The last two are pure.
"""

__all__ = ["answers", "overview", "releases"]
