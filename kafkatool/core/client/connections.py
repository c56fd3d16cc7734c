"""The connections of a command: one to each broker, shared by all that it does for as long as it runs (ADM-11)."""

import time
from typing import Self

from kafkatool.core.client.access import PLAINTEXT_ACCESS, BrokerAccess
from kafkatool.core.client.addresses import Address
from kafkatool.core.client.negotiated import NegotiatedConnection
from kafkatool.core.client.settings import MAX_IDLE_MS


class Connections:
    """Each is made when it is asked for first, and made anew once it has ended or nothing was asked for ``max_idle_ms``.

    Any thread may ask for one; one thread at a time uses it. ``close`` ends them under those who wait for an answer.
    """

    def __init__(self, access: BrokerAccess = PLAINTEXT_ACCESS, *, max_idle_ms: int = MAX_IDLE_MS) -> None:
        """Reach brokers by ``access``; -1: however long a connection was idle, it is used again."""
        self.access = access
        self._max_idle_ms = max_idle_ms
        self._made: dict[Address, NegotiatedConnection] = {}
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def open(self) -> dict[Address, NegotiatedConnection]:
        """Return those that nobody here has closed, the newest last."""
        return {address: made for address, made in list(self._made.items()) if not made.closed}

    def to(self, address: Address, *, timeout_ms: int, connect_timeout_ms: int | None = None) -> NegotiatedConnection:
        """Return the connection to there; one that has to be made is so within these times.

        Raises BrokerUnreachableError.
        """
        known = self._made.get(address)
        if known is not None and not known.closed:
            if not self._is_idle(known) and not known.has_ended:
                return known
            known.close()
        self._made.pop(address, None)  # the new one is to be the newest
        made = NegotiatedConnection(
            address, self.access, connect_timeout_ms=connect_timeout_ms or timeout_ms, timeout_ms=timeout_ms
        )
        self._made[address] = made
        if self._closed:  # meanwhile, by another thread
            made.close()
        return made

    def close(self) -> None:
        """End all of them, for good."""
        self._closed = True
        for connection in list(self._made.values()):
            connection.close()

    def _is_idle(self, connection: NegotiatedConnection) -> bool:
        unused_ms = (time.monotonic() - connection.used_at) * 1000
        return 0 <= self._max_idle_ms < unused_ms
