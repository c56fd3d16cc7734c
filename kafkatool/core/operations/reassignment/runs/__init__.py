"""Plans carried out over their whole life, and called off.

Doors: `run` carries one out, `cancellation` calls one off; both yield events. `run_throttles` is what either sets and has
to undo, `saved_run` what is noted in files, and `run_lock` who holds them.
"""

__all__ = ["cancellation", "run", "run_lock", "run_throttles", "saved_run"]
