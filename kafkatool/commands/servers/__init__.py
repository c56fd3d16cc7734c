"""``kt broker``, ``kt controller`` and ``kt cluster``: the only commands that reach into the broker."""
