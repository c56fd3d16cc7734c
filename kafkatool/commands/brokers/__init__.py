"""``kt brokers``: who holds and leads how much.

Door: `command`. `rendering` writes what `core/operations/brokers` has laid out.
"""
