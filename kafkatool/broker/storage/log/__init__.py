"""One partition's log: its state, its writer, truncation and reader, its leader epochs, and how it is opened.

Doors: ``log`` (made by ``log_opening``), ``log_offset``, ``leader_epochs``; ``log_writer`` and ``log_reader`` define what
an append and a read return. Never here: which logs there are, or in which log dir (``directories``); compaction.
"""

__all__ = ["leader_epochs", "log", "log_offset", "log_opening", "log_state", "log_writer"]
