"""How long what clients call themselves may be: groups, members, transactions (SEC-101)."""

from typing import Final

LONGEST_ID_BYTES: Final = 4096
_SHOWN_CHARACTERS: Final = 255


def is_too_long(text: str) -> bool:
    """Tell whether an id is longer than any may be, in bytes of UTF-8."""
    return len(text) * 4 > LONGEST_ID_BYTES and len(text.encode()) > LONGEST_ID_BYTES


def is_id(text: str) -> bool:
    """Tell whether it may be an id: it is there, and not too long."""
    return bool(text) and not is_too_long(text)


def cut(text: str) -> str:
    """Return what is kept of a client's name where many are: in member ids and in what is counted by it."""
    return text[:_SHOWN_CHARACTERS]
