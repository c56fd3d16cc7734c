"""``kt reassign``: a file for each mode, with its flags and what it prints.

Door: `command`. The work is done by `core/operations/reassignment`; here it is asked for, its events are shown, and the exit
code is returned. Nothing here writes to ZooKeeper or keeps state.
"""
