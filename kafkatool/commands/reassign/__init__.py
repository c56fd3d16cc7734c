"""``kt reassign``: one file per mode, and the flags they share.

The run itself is ``kafkatool/core/operations/reassignment``; here it is asked for and shown.
"""
