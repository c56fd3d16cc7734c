"""Ids of topics in the form Kafka prints: URL-safe base64 without padding, 22 characters (ADM-14)."""

import base64
import binascii
import re

_TEXT = re.compile(r"[A-Za-z0-9_-]{22}")


def uuid_text(value: bytes) -> str:
    """Write 16 bytes as a person reads them."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def parse_uuid(text: str) -> bytes | None:
    """Read an id; None if the text is none."""
    if not _TEXT.fullmatch(text):
        return None
    try:
        return base64.urlsafe_b64decode(text + "==")
    except binascii.Error:
        return None
