"""A connection that speaks the newest version of each request that it and its broker both know (ADM-5, ADM-10).

Brokers of two releases, in a rolling upgrade, are each spoken to in their own versions.
"""

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeVar

from kafkatool.core.client.access import BrokerAccess
from kafkatool.core.client.addresses import Address
from kafkatool.core.client.closed_at_once import first_request, is_late
from kafkatool.core.client.connection import Connection
from kafkatool.core.errors import BrokerUnreachableError, ProtocolError, TlsError, UnsupportedApiError
from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.messages import api_versions
from kafkatool.core.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkatool.core.protocol.messages.error_codes import ErrorCode

_Response = TypeVar("_Response")

SOFTWARE: Final = "kt"
_NAMING_SOFTWARE: Final = 3  # the version of ApiVersions that does


class NegotiatedConnection:
    """Connected and agreed on versions when made; used as a `Connection` is, by one thread at a time."""

    def __init__(self, address: Address, access: BrokerAccess, *, connect_timeout_ms: int, timeout_ms: int) -> None:
        """Connect, with TLS and login, within the first time, and agree, counted from the same moment, within the second.

        Raises BrokerUnreachableError, also where no Kafka broker answers.
        """
        self.address = address
        self.used_at = float("inf")
        """When the last answer was here, by the monotonic clock; there was none yet."""
        self._access = access
        deadline = time.monotonic() + timeout_ms / 1000
        self._connection = Connection(
            *address,
            client_id=access.client_id,
            timeout_ms=min(connect_timeout_ms, timeout_ms),
            security=access.security,
        )
        self._has_answered = False
        self.versions: Mapping[int, tuple[int, int]] = MappingProxyType(self._agree(deadline))

    @property
    def closed(self) -> bool:
        """Tell whether it was closed here, as it is after any error."""
        return self._connection.closed

    @property
    def has_ended(self) -> bool:
        """Tell, so far as can be seen without asking, whether the other side has closed it."""
        return self._connection.has_ended

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
        self.used_at = time.monotonic()
        return answer

    @property
    def _logs_in(self) -> bool:
        return self._access.security.login is not None

    def _agree(self, deadline: float) -> dict[int, tuple[int, int]]:
        """Ask for the versions served; a broker that has no version 3 of that question in the one that it has (ADM-5)."""
        try:
            with first_request(self.address, encrypted=self._access.security.tls is not None):
                answer = self._ask_versions(_NAMING_SOFTWARE, deadline)
                if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
                    own = (k.max_version for k in answer.api_keys if k.api_key == api_versions.API.key)
                    answer = self._ask_versions(min(next(own, 0), _NAMING_SOFTWARE), deadline)
        except (ProtocolError, BrokerUnreachableError):
            self.close()
            raise
        return {k.api_key: (k.min_version, k.max_version) for k in answer.api_keys}

    def _ask_versions(self, version: int, deadline: float) -> ApiVersionsResponse:
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE, client_software_version=self._access.software_version
        )
        left_ms = max(1, int((deadline - time.monotonic()) * 1000))
        return self._connection.send(api_versions.API, version, request, timeout_ms=left_ms)
