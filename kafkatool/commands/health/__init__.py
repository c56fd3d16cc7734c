"""``kt health``: one page that says whether the cluster is well, with exit codes that monitoring plug-ins know.

Door: `command`. `rendering` writes what `core/operations/health` has judged.
"""
