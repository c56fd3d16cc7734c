"""``kt health``: one page that says whether the cluster is well, with exit codes that monitoring plug-ins know.

Door: `command`. It looks by a `way`, `by_znode` or `by_request`, with what `kept` has of former runs; `rendering` writes
what `core/operations/health` has judged.
"""
