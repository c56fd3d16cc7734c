"""The settings of a client of a cluster, as ``--command-config`` names them in Java's words (ADM-3, ADM-9)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from kafkatool.core.errors import UsageError

if TYPE_CHECKING:  # who has no --command-config starts without it
    from kafkatool.core.client.access import BrokerAccess
    from kafkatool.core.security.client_security import ClientSecurity

_NUMBERS: Final = {
    "request.timeout.ms": "request_timeout_ms",
    "default.api.timeout.ms": "whole_timeout_ms",
    "retries": "retries",
    "retry.backoff.ms": "retry_backoff_ms",
    "retry.backoff.max.ms": "max_backoff_ms",
    "reconnect.backoff.ms": "reconnect_backoff_ms",
    "connections.max.idle.ms": "max_idle_ms",
    "metadata.max.age.ms": "metadata_max_age_ms",
    "socket.connection.setup.timeout.ms": "connect_timeout_ms",
}
_MAX_IDLE: Final = "connections.max.idle.ms"
MAX_IDLE_MS: Final = 300_000  # less than the ten minutes after which brokers end a connection


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """What a client says it is, and what bounds it.

    ``whole_timeout_ms`` is for a whole operation, with all that is sent again in it. A connection that was lost is made
    again after ``reconnect_backoff_ms``, one unused for ``max_idle_ms`` is not used again (-1: it is, however long), and
    metadata older than ``metadata_max_age_ms`` is read anew before it says where a request goes.
    """

    client_id: str = "kt"
    software_version: str = "0"
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    whole_timeout_ms: int = 60_000
    retries: int = 2**31 - 1
    retry_backoff_ms: int = 100
    max_backoff_ms: int = 1000
    reconnect_backoff_ms: int = 50
    max_idle_ms: int = MAX_IDLE_MS
    metadata_max_age_ms: int = 300_000
    security: "ClientSecurity | None" = None

    @property
    def access(self) -> "BrokerAccess":
        """Return how brokers are reached that such a client has heard of."""
        from kafkatool.core.client.access import PLAINTEXT_ACCESS, BrokerAccess

        access = PLAINTEXT_ACCESS if self.security is None else BrokerAccess(self.security)
        return replace(access, client_id=self.client_id, software_version=self.software_version)


def settings_of(properties: Mapping[str, str], defaults: ClientSettings) -> ClientSettings:
    """Return the settings that a properties file makes of ``defaults``.

    Raises UsageError for numbers that are none. What is said of security is read elsewhere, and so are wrong keys.
    """
    changed: dict[str, Any] = {
        _NUMBERS[key]: _number(key, value) for key, value in properties.items() if key in _NUMBERS
    }
    settings = replace(defaults, **changed)
    return replace(settings, client_id=properties.get("client.id") or defaults.client_id)


def _number(key: str, value: str) -> int:
    if key == _MAX_IDLE and value == "-1":
        return -1
    if not (value.isascii() and value.isdecimal()):
        raise UsageError(f"--command-config: {key}={value!r} is not a number of 0 or more")
    return int(value)
