"""``kt elect``: preferred replica elections, by flags or by file.

Door: `command`. The work is `core/operations/election`; nothing here decides which replica leads.
"""
