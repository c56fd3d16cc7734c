"""Which Kafka a broker is, told by the newest versions of the requests it serves. Pure.

Brokers tell neither their release nor their protocol's; each release raises some request. Source: validVersions of
Kafka's message/*.json at each release, and what brokers of 0.10.2.2, 1.1.1, 2.8.2, 3.6.1, 3.9.1 and 4.1.0 answer.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from kafkatool.core.operations.brokers.answers import Served

LEADER_AND_ISR: Final = 4  # a broker of a cluster with ZooKeeper takes it from the controller
DESCRIBE_QUORUM: Final = 55  # a broker of a cluster without ZooKeeper answers it


class Mark(NamedTuple):
    """The first release that serves that version of that API; ``with_zookeeper``: only brokers with ZooKeeper do."""

    release: str
    api: int
    version: int
    with_zookeeper: bool = False


MARKS: Final = (
    Mark("0.10.0", 18, 0),  # ApiVersions
    Mark("0.10.1", 1, 3),  # Fetch
    Mark("0.10.2", 19, 1),  # CreateTopics
    Mark("0.11.0", 0, 3),  # Produce
    Mark("1.0", 0, 5),
    Mark("1.1", 1, 7),
    Mark("2.0", 0, 6),
    Mark("2.1", 0, 7),
    Mark("2.2", 11, 4),  # JoinGroup
    Mark("2.3", 1, 11),
    Mark("2.4", 0, 8),
    Mark("2.5", 9, 7),  # OffsetFetch
    Mark("2.6", 16, 4),  # ListGroups
    Mark("2.7", 1, 12),
    Mark("2.8", 0, 9),
    Mark("3.0", 2, 7),  # ListOffsets
    Mark("3.1", 1, 13),
    Mark("3.2", 11, 9),
    Mark("3.3", 35, 4),  # DescribeLogDirs
    Mark("3.4", LEADER_AND_ISR, 7, with_zookeeper=True),
    Mark("3.5", 1, 15),
    Mark("3.6", 24, 4),  # AddPartitionsToTxn
    Mark("3.7", 0, 10),
    Mark("3.8", 0, 11),
    Mark("3.9", 1, 17),
    Mark("4.0", 3, 13),  # Metadata
    Mark("4.1", 0, 13),
)

_NEWEST_KNOWN: Final[Mapping[int, int]] = {0: 13, 1: 18, 3: 13}  # of the last mark's release
_LAST_API_KNOWN: Final = 92


class Release(NamedTuple):
    """The releases that a broker can be: from ``first`` to ``last``; None: newer than known, or not Kafka's own.

    ``like``: it serves requests of later releases too, but not all of those between: no broker of Kafka's.
    """

    first: str
    last: str | None
    like: bool = False

    @property
    def number(self) -> tuple[int, ...]:
        """Return the first release for comparing."""
        return release_number(self.first)

    def __str__(self) -> str:
        """Write ``2.8``, ``3.3-3.4``, ``≥ 4.1`` or ``like 2.4``."""
        if self.like:
            return f"like {self.first}"
        if self.last is None:
            return f"≥ {self.first}"
        return self.first if self.first == self.last else f"{self.first}-{self.last}"


def release_number(text: str) -> tuple[int, ...]:
    """Parse ``3.9`` or ``3.9-IV0`` for comparing."""
    return tuple(int(part) for part in text.split("-")[0].split(".") if part.isdecimal())


def release_of(served: Served) -> Release:
    """Return what a broker that serves those can be."""
    zookeeper = LEADER_AND_ISR in served
    marks = [mark for mark in MARKS if zookeeper or not mark.with_zookeeper]
    holds = [served.get(mark.api, (0, -1))[1] >= mark.version for mark in marks]
    reached = holds.index(False) if False in holds else len(marks)
    first = marks[max(0, reached - 1)].release
    if any(holds[reached:]):
        return Release(first, None, like=True)
    if reached == len(marks):
        newer = max(served) > _LAST_API_KNOWN or any(served[api][1] > top for api, top in _NEWEST_KNOWN.items())
        return Release(first, None if newer else first)
    releases = [mark.release for mark in MARKS]
    return Release(first, releases[releases.index(marks[reached].release) - 1] if reached else first)
