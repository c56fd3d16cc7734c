"""``kt broker``, ``kt controller`` and ``kt cluster``: the only commands that reach into the broker.

Doors: the group of each module. The broker is imported when a server starts, never for a help text.
"""
