"""The leader's side: appends, fetches, the requests that wait for followers or data, the fetch sessions served.

No role changes here, no log is truncated, and nothing of ``following`` is used.
"""

__all__ = [
    "appends",
    "closer_replica",
    "conversions",
    "delayed_produce",
    "delayed_requests",
    "fetch_session",
    "fetch_sessions",
    "fetches",
    "hanging_transactions",
    "late_transactions",
    "older_fetches",
    "under_replicated",
    "verified_appends",
]
