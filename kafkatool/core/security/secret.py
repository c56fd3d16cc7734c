"""A password or key that no log, traceback or answer shows (SEC-42)."""

import hmac
from typing import Final

HIDDEN: Final = "[hidden]"


class Secret:
    """A secret text. Its str, repr and format are ``[hidden]``; who needs it says ``reveal``."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the secret itself."""
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return HIDDEN

    def __reduce__(self) -> str:
        raise TypeError("a secret is not written anywhere")
