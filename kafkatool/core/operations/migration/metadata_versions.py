"""Kafka's protocols by the levels of the feature ``metadata.version``, so that both can be compared. Pure.

Brokers with ZooKeeper name theirs as ``inter.broker.protocol.version``, controllers tell the level that is finalized.
Source: Kafka 3.9.1 server/common/MetadataVersion.java.
"""

from typing import Final

FEATURE: Final = "metadata.version"
_LAST_OF_RELEASE: Final = {  # release -> level and number of its last protocol; those before it count down from there
    "3.0": (1, 1),
    "3.1": (2, 0),
    "3.2": (3, 0),
    "3.3": (7, 3),
    "3.4": (8, 0),
    "3.5": (11, 2),
    "3.6": (14, 2),
    "3.7": (19, 4),
    "3.8": (20, 0),
    "3.9": (21, 0),
}


def level_of(protocol: str) -> int | None:
    """Return the level of ``3.9``, the last one of that release, or of ``3.7-IV2``; None: before 3.0, or not known."""
    release, _, number = protocol.partition("-IV")
    known = _LAST_OF_RELEASE.get(".".join(release.split(".")[:2]))
    if known is None or (number and not number.isdecimal()):
        return None
    level, last = known
    return level - last + int(number) if number else level


def named(level: int) -> str:
    """Write a level as its protocol, if it is known."""
    for release, (last_level, last) in _LAST_OF_RELEASE.items():
        if last_level - last <= level <= last_level:
            return f"{release}-IV{last - (last_level - level)}"
    return f"level {level}"
