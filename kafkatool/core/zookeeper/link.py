"""The seam between the session and what carries its requests: kazoo's client, or the ensemble in memory of the tests.

Below it, requests and answers may be lost and sessions may expire; above it (``session``) a write returns its true outcome.
"""

import enum
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from kafkatool.core.errors import ConnectionLostError, ZooKeeperError
from kafkatool.core.zookeeper.acls import Acl, NodeAcls
from kafkatool.core.zookeeper.operations import Node, Op

T_co = TypeVar("T_co", covariant=True)

LinkWatch = Callable[[str | None], None]
"""A one-shot watch; called with created, deleted, changed or children, or with None when the connection drops."""


class SessionState(enum.Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"  # no connection, the session may live on
    EXPIRED = "expired"  # told before the next session is used


class UnknownRequestError(ZooKeeperError):
    """The server is too old for the request."""


class LateError(ConnectionLostError):
    """The answer did not come in time; it may still be waited for."""


class Reply(Protocol[T_co]):
    """The answer to one request, which may still be on its way."""

    def get(self, timeout_s: float, /) -> T_co:
        """Wait for it. Raises ZooKeeperError: LateError when it does not come in time."""


class Link(Protocol):
    """One session's requests, sent in the order asked, without waiting. Paths are below ``chroot``. Thread-safe.

    A request made while there is no connection is sent on the next one. One that was sent when the connection broke fails
    with ConnectionLostError, whether or not it took effect; all fail with SessionExpiredError once the session is over.
    """

    @property
    def chroot(self) -> str: ...  # empty for the root
    @property
    def session_id(self) -> int: ...  # 0 while there is none

    # ``is_late`` is asked now and then: True ends the wait. Raises ZooKeeperUnavailableError, ChrootMissingError.
    def start(self, timeout_s: float, *, create_chroot: bool, is_late: Callable[[], bool]) -> None: ...
    def close(self) -> None: ...  # safe to call twice
    def add_listener(self, listener: Callable[[SessionState], None], /) -> None: ...
    def wait_until_connected(self, timeout_s: float) -> bool: ...
    def call_soon(self, callback: Callable[[], None]) -> None: ...  # on the thread of watches, behind those that fired
    def held(self) -> AbstractContextManager[None]: ...  # requests made in it by this thread leave together, at its end

    # A node that is absent is watched by ``exists`` alone.
    def get(self, path: str, watch: LinkWatch | None) -> Reply[Node]: ...
    def exists(self, path: str, watch: LinkWatch | None) -> Reply[bool]: ...
    def children(self, path: str, watch: LinkWatch | None) -> Reply[list[str]]: ...

    # What asks for the nodes of one pass, one by one or several in a request; None: the server does not know such requests.
    def reads(self) -> Callable[[str], Reply[Node]]: ...
    def reads_together(self) -> Callable[[Sequence[str]], Reply[list[Node | None]]] | None: ...

    # Rights: asked for, said of a node, and those of the nodes that are made from now on.
    def acls(self, path: str) -> Reply[list[Acl]]: ...
    def set_acls(self, path: str, acls: Sequence[Acl]) -> Reply[object]: ...
    def make_nodes_as(self, acls: NodeAcls) -> None: ...

    # The answers are the path made, the version written, and the new version for each SetData, or TransactionError.
    def create(
        self, path: str, data: bytes, *, ephemeral: bool, sequential: bool, make_parents: bool
    ) -> Reply[str]: ...
    def set(self, path: str, data: bytes, version: int) -> Reply[int]: ...
    def delete(self, path: str, version: int) -> Reply[object]: ...
    def commit(self, ops: Sequence[Op]) -> Reply[list[int | None]]: ...
