"""The leader's side: appends, fetches, the requests that wait for followers or data, the fetch sessions served.

The doors are ``appends``, ``fetches``, ``fetch_sessions`` and ``delayed_requests``. No role changes here, no log is
truncated, and nothing of ``following`` is used.
"""

__all__ = [
    "appends",
    "delayed_produce",
    "delayed_requests",
    "fetch_session",
    "fetch_sessions",
    "fetches",
    "hanging_transactions",
]
