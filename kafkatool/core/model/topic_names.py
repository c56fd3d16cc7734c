"""Topic names: which are legal, which a ``--topic`` pattern means, which are Kafka's own (TOP-3, TOP-4, TOP-19).

Texts are those of Kafka 0.10.2.1 (Topic.scala, TopicFilter.scala, AdminUtils.scala).
"""

import re
from collections.abc import Iterable
from typing import Final

from kafkatool.core.errors import RefusedError

MAX_LENGTH: Final = 249  # with "-" and a partition number it is still a file name
OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTION_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTION_TOPIC})
KEPT: Final = "Topic {} is a kafka internal topic and is not allowed to be marked for deletion."
COLLISION_WARNING: Final = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
    "To avoid issues it is best to use either, but not both."
)

_LEGAL: Final = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)


class InvalidTopicError(RefusedError):
    """A name no topic may have, or one that collides with a topic that exists."""


def check_name(topic: str) -> None:
    """Raise InvalidTopicError with Kafka's text if the name is illegal (TOP-3)."""
    if not topic:
        raise InvalidTopicError("topic name is illegal, can't be empty")
    if topic in (".", ".."):
        raise InvalidTopicError('topic name cannot be "." or ".."')
    if len(topic) > MAX_LENGTH:
        raise InvalidTopicError(f"topic name is illegal, can't be longer than {MAX_LENGTH} characters")
    if not _LEGAL.fullmatch(topic):
        raise InvalidTopicError(
            f"topic name {topic} is illegal, contains a character other than ASCII alphanumerics, '.', '_' and '-'"
        )


def is_legal(topic: str) -> bool:
    """Tell whether a topic may have that name."""
    try:
        check_name(topic)
    except InvalidTopicError:
        return False
    return True


def fold(topic: str) -> str:
    """Return the name as the names of metrics have it."""
    return topic.replace(".", "_")


def has_collision_chars(topic: str) -> bool:
    """Tell whether the name contains characters that metric names turn into one another."""
    return "." in topic or "_" in topic


def check_collision(topic: str, existing: Iterable[str]) -> None:
    """Raise InvalidTopicError when an existing topic is equal once ``.`` is read as ``_`` (TOP-4)."""
    if not has_collision_chars(topic):
        return
    folded = fold(topic)
    if colliding := sorted(t for t in existing if fold(t) == folded):
        raise InvalidTopicError(f"Topic '{topic}' collides with existing topics: {', '.join(colliding)}")


def select(topics: Iterable[str], pattern: str | None) -> list[str]:
    """Select the topics that a ``--topic`` outside create means, sorted; all when None (TOP-19).

    Surrounding quotes and all spaces go, ``,`` is ``|``, and the regex must match the whole name.
    """
    if pattern is None:
        return sorted(topics)
    return _matching(topics, "|".join(_alternatives(pattern)))


def meant(topics: Iterable[str], pattern: str) -> list[str]:
    """Select the topics that are to be changed: as ``select``, but what can be a name is that name alone.

    Who types ``a.b`` does not think of ``a-b``, whether ``a.b`` is there or not.
    """
    return _matching(topics, "|".join(re.escape(a) if is_legal(a) else a for a in _alternatives(pattern)))


def names_in(pattern: str) -> list[str] | None:
    """Return the names that a pattern of names alone lists; None: it is a regex."""
    alternatives = _alternatives(pattern)
    return alternatives if all(map(is_legal, alternatives)) else None


def _alternatives(pattern: str) -> list[str]:
    text = re.sub(r"^[\"']+|[\"']+$", "", pattern.strip().replace(" ", ""))
    return re.split(r"[,|]", text)


def _matching(topics: Iterable[str], regex: str) -> list[str]:
    try:
        wanted = re.compile(regex)
    except re.error as e:
        raise RefusedError(f"{regex} is an invalid regex.", now=f"regex: {e}; .* matches all topics") from e
    return sorted(t for t in topics if wanted.fullmatch(t))
