"""A connection that speaks the newest version of each request that it and its broker both know (ADM-5, ADM-10).

Brokers of two releases, in a rolling upgrade, are each spoken to in their own versions.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Self, TypeVar

from kafkatool.core.client.addresses import Address
from kafkatool.core.client.closed_at_once import first_request, is_late
from kafkatool.core.client.connection import Connection
from kafkatool.core.client.settings import ClientSettings
from kafkatool.core.errors import BrokerUnreachableError, ProtocolError, TlsError, UnsupportedApiError
from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.messages import api_versions
from kafkatool.core.protocol.messages.api_versions import ApiVersionsRequest

_Response = TypeVar("_Response")

SOFTWARE: Final = "kt"


class NegotiatedConnection:
    """Connected and agreed on versions when made; used as a `Connection` is, by one thread at a time."""

    def __init__(self, address: Address, settings: ClientSettings) -> None:
        """Connect, within the times of the settings. Raises BrokerUnreachableError, also where no Kafka broker answers."""
        self.address = address
        self._settings = settings
        self._connection = self._connect()
        self._has_answered = False
        self.versions: Mapping[int, tuple[int, int]] = MappingProxyType(self._agree())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        return self._connection.closed

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def version_of(self, api: Api, *, least: int = 0) -> int | None:
        """Return the version in which both speak ``api``; None: there is none from ``least`` on."""
        first, last = self.versions.get(api.key, (0, -1))
        version = min(last, api.max_version)
        return version if version >= max(first, api.min_version, least) else None

    def send(self, api: Api, request: Request[_Response], *, timeout_ms: int, least: int = 0) -> _Response:
        """Send in the version agreed on, at least ``least``, and return the answer.

        Raises UnsupportedApiError, BrokerUnreachableError: no answer, or none of Kafka's.
        """
        version = self.version_of(api, least=least)
        if version is None:
            raise UnsupportedApiError(api.name, max(api.min_version, least), str(self.address))
        return self._send(api, version, request, timeout_ms)

    def _send(self, api: Api, version: int, request: Request[_Response], timeout_ms: int) -> _Response:
        try:
            answer = self._connection.send(api, version, request, timeout_ms=timeout_ms)
        except ProtocolError as e:
            raise BrokerUnreachableError(f"{self.address}: {e}") from e
        except BrokerUnreachableError as e:
            if self._has_answered or is_late(e) or isinstance(e, TlsError) or self._logs_in:
                raise
            # A listener of SASL answers ApiVersions before the login, and closes upon anything else.
            hint = f"closed the connection upon {api.name}: does its listener ask for a login (SASL)?"
            raise BrokerUnreachableError(f"{self.address} {hint}") from e
        self._has_answered = True
        return answer

    @property
    def _logs_in(self) -> bool:
        return self._settings.security is not None and self._settings.security.login is not None

    def _connect(self) -> Connection:
        host, port = self.address
        s = self._settings
        return Connection(host, port, client_id=s.client_id, timeout_ms=s.connect_timeout_ms, security=s.security)

    def _agree(self) -> dict[int, tuple[int, int]]:
        """Ask for the versions served. A broker older than 2.4 answers version 3 in version 0, and is asked in that."""
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE, client_software_version=self._settings.software_version
        )
        timeout_ms = self._settings.request_timeout_ms
        security = self._settings.security
        try:
            with first_request(self.address, encrypted=security is not None and security.tls is not None):
                try:
                    answer = self._connection.send(api_versions.API, 3, request, timeout_ms=timeout_ms)
                except ProtocolError:
                    self._connection = self._connect()
                    answer = self._connection.send(api_versions.API, 0, request, timeout_ms=timeout_ms)
        except (ProtocolError, BrokerUnreachableError):
            self.close()
            raise
        return {k.api_key: (k.min_version, k.max_version) for k in answer.api_keys}
