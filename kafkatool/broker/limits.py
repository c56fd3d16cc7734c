"""The limits of what others may ask of a broker: one table, a count of what went beyond each, a line now and then (SEC-103).

Where a limit is held, ``Limits.reached`` is called, once for each time that somebody was refused, closed or kept waiting.
The counts are gauges of the broker: ``Broker.gauges`` and ``broker-gauges.json`` beside state-change.log.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Hashable
from enum import Enum
from typing import Final

from kafkatool.broker.runtime.few_lines import FewLines

log = logging.getLogger(__name__)

FILE_NAME: Final = "broker-gauges.json"
_PERIOD_S: Final = 60
_LINES_A_SECOND: Final = 10


class Limit(Enum):
    """A limit: its gauge, the property it is set by or the number that it always is, and what is said of who goes beyond.

    ``line`` takes the values that ``reached`` is given.
    """

    # connections (SEC-95, 96, 97)
    CONNECTIONS = (
        "ConnectionsKeptWaiting",
        "max.connections",
        "listener %s lets nobody in until a connection is closed: the broker has max.connections",
    )
    CONNECTIONS_OF_LISTENER = (
        "ConnectionsKeptWaitingOfListener",
        "listener.name.<name>.max.connections",
        "listener %s lets nobody in until one of its connections is closed: it has max.connections, its own or everybody's",
    )
    CONNECTIONS_OF_ADDRESS = (
        "ConnectionsClosedOfAddress",
        "max.connections.per.ip",
        "closing a connection from %s: it has max.connections.per.ip already",
    )
    OPEN_FILES = (
        "ConnectionsClosedForFiles",
        "a quarter of ulimit -n, at most 1000, is kept free",
        "closing a connection from %s: hardly any open files are left (ulimit -n)",
    )
    UNAUTHENTICATED = (
        "ConnectionsClosedUnauthenticated",
        "kt.max.unauthenticated.connections",
        "closing %s: too many have not logged in yet",
    )
    LOGIN_TIME = (
        "LoginsTooLate",
        "kt.authentication.timeout.ms",
        "listener %s: %s:%d did not log in within %d ms",
    )

    # requests (SEC-63, 98, 99)
    FRAME_BEFORE_LOGIN = (
        "FramesTooLargeBeforeLogin",
        "sasl.server.max.receive.size",
        "closing %s: a frame of %d bytes before the login, allowed are 0 to %d, few above 32768 at one time",
    )
    FRAME = (
        "FramesTooLarge",
        "socket.request.max.bytes",
        "closing %s: a frame of %d bytes, allowed are 0 to %d",
    )
    REQUEST_BYTES = (
        "RequestsKeptWaitingForMemory",
        "queued.max.request.bytes",
        "nobody is read until requests are answered: they take queued.max.request.bytes",
    )
    ELEMENTS = (
        "RequestsWithTooManyElements",
        "250000 elements; 2000000 of CreateTopics and CreatePartitions",
        "closing %s: %s cannot be read: %s",
    )
    PARTITIONS = (
        "RequestsWithTooManyPartitions",
        "kt.max.partitions.per.request",
        "%s from %s names %d partitions, kt.max.partitions.per.request are %d",
    )
    SESSION_PARTITIONS = (
        "FetchSessionsRefused",
        "1000000 partitions of all fetch sessions",
        "fetches go without a session: those there are hold as many partitions as all may",
    )

    # topics (SEC-100)
    TOPICS_BY_METADATA = (
        "TopicsNotMadeOfRequest",
        "kt.max.auto.created.topics.per.request",
        "a Metadata request of %s makes no more than kt.max.auto.created.topics.per.request topics",
    )
    TOPICS_A_SECOND = (
        "TopicsNotMadeOfPrincipal",
        "10 topics a second for a principal",
        "%s makes topics by Metadata faster than ten a second",
    )
    CREATED_REPLICAS = (
        "CreateTopicsTooLarge",
        "200000 replicas in one request",
        "CreateTopics of %s asks for %d replicas, the most are %d",
    )

    # groups and transactions (SEC-101)
    IDS = (
        "IdsTooLong",
        "4096 bytes of an id",
        "an id of %d bytes is refused: %.50a...",
    )
    MEMBERS_METADATA = (
        "MembersRefusedForMetadata",
        "16777216 bytes of metadata of a group's members",
        "group %.255a takes no more metadata of members",
    )
    NEW_GROUPS = (
        "GroupsForgotten",
        "100000 groups without members and offsets",
        "group %.255a is forgotten: there are too many without members and offsets",
    )
    MEMBER_IDS = (
        "MemberIdsRefused",
        "10000 ids of members that a group waits for",
        "group %.255a waits for too many members that have their id",
    )
    MEMBER_IDS_OF_CONNECTION = (
        "MemberIdsRefusedOfConnection",
        "1000 ids of members that one connection was given",
        "%s was given too many ids of members, which do not come",
    )

    # records (SEC-102)
    RECORDS = (
        "BatchesTooLargeInside",
        "kt.max.records.per.batch",
        "a batch of %s is refused: %s",
    )

    def __init__(self, gauge: str, bound: str, line: str) -> None:
        self.gauge = gauge
        self.bound = bound
        self.line = line


class Limits:
    """What came of the limits of one broker. Thread-safe.

    Of each limit, and of each address or the like where its ``key`` is one, a line is logged once a minute, but no more
    than ten a second of one limit, however many addresses there are.
    """

    def __init__(self, *, clock: Callable[[], float] | None = None) -> None:
        self.on_reached: Callable[[], object] = lambda: None
        """Told each time; must not wait for anything."""
        self._counts: Counter[Limit] = Counter()
        self._lock = threading.Lock()
        self._lines = FewLines(1, _PERIOD_S, clock=clock)
        self._of_limit = FewLines(_LINES_A_SECOND, 1, clock=clock)

    def reached(self, limit: Limit, *values: object, key: Hashable = None) -> None:
        """Count it, and say it now and then, with these values of its line."""
        with self._lock:
            self._counts[limit] += 1
        left_out = self._lines.admit((limit, key))
        if left_out is not None and self._of_limit.admit(limit) is not None:
            more = f" (and {left_out} more since it was last told)" if left_out else ""
            log.warning(limit.line + "%s", *values, more)
        self.on_reached()

    def count(self, limit: Limit) -> int:
        """Return how often it was reached."""
        return self._counts[limit]

    def gauges(self) -> dict[str, float]:
        """Return the counts of all limits by their gauges' names."""
        with self._lock:
            return {limit.gauge: float(self._counts[limit]) for limit in Limit}
