"""The follower's side: fetchers, truncation, the fetch sessions they ask for.

The door is ``fetcher_manager``; ``truncation`` decides where a log is cut. Nothing here serves a request, and nothing
of ``leading`` is used.
"""

__all__ = ["fetcher_manager"]
