"""Who asks: the identity a broker knows a connection by (SEC-72)."""

from typing import Final, NamedTuple


class Principal(NamedTuple):
    """A type and a name, both compared exactly. A tuple, as what may be done is cached by it."""

    type: str
    name: str

    def __str__(self) -> str:
        """Return ``User:alice``, as ACLs and logs have it."""
        return f"{self.type}:{self.name}"


USER: Final = "User"
ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""Whoever proved nothing: on PLAINTEXT, and on SSL without a certificate."""
