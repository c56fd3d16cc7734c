"""Security protocols of listeners: their names, and the numbers that stand for them in UpdateMetadata.

Source: Kafka 1.1.1 common/security/auth/SecurityProtocol.java.
"""

from typing import Final

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""Names in the order of their numbers."""


def protocol_number(name: str) -> int:
    """Return the number on the wire; that of PLAINTEXT for a name not known."""
    return SECURITY_PROTOCOLS.index(name) if name in SECURITY_PROTOCOLS else 0
