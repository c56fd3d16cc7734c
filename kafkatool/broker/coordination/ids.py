"""How long what clients call themselves may be: groups, members, transactions (SEC-101)."""

from typing import Final

from kafkatool.broker.limits import Limit, Limits

LONGEST_ID_BYTES: Final = 4096
_SHOWN_CHARACTERS: Final = 255


def is_too_long(text: str, limits: Limits) -> bool:
    """Tell whether an id is longer than any may be, in bytes of UTF-8; one that is counts among what went beyond."""
    if len(text) * 4 <= LONGEST_ID_BYTES or (size_bytes := len(text.encode())) <= LONGEST_ID_BYTES:
        return False
    limits.reached(Limit.IDS, size_bytes, text)
    return True


def is_id(text: str, limits: Limits) -> bool:
    """Tell whether it may be an id: it is there, and not too long."""
    return bool(text) and not is_too_long(text, limits)


def cut(text: str) -> str:
    """Return what is kept of a client's name where many are: in member ids and in what is counted by it."""
    return text[:_SHOWN_CHARACTERS]
