"""The ids of members that each connection was given and that have not come back, and how many there may be (SEC-101).

A group bounds its own (``group.MOST_PENDING``); one connection could ask for as many in each of very many groups.
"""

import threading
from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

MOST_OF_CONNECTION: Final = 1000


class HandedOut:
    """The ids by connection, forgotten with it. Thread-safe. ``waits(group, member)``: whether that group waits for it."""

    def __init__(self, waits: Callable[[str, str], bool]) -> None:
        self._waits = waits
        self._ids: WeakKeyDictionary[object, dict[str, str]] = WeakKeyDictionary()  # member -> its group
        self._lock = threading.Lock()

    def note(self, connection: object, group: str, member_id: str) -> None:
        """Note that the connection was given that id."""
        with self._lock:
            self._ids.setdefault(connection, {})[member_id] = group

    def are_too_many(self, connection: object) -> bool:
        """Tell whether the connection gets no more until some of its members have come, or are waited for no longer."""
        with self._lock:
            ids = self._ids.get(connection, {})
            if len(ids) < MOST_OF_CONNECTION:
                return False
            left = {member: group for member, group in ids.items() if self._waits(group, member)}
            self._ids[connection] = left
            return len(left) >= MOST_OF_CONNECTION
