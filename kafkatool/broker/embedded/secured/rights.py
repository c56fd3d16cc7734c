"""Users and rights of a secured cluster, written where its brokers read them (SEC-107)."""

import time
from collections.abc import Callable, Iterable
from typing import Final

from kafkatool.broker.embedded.ports import HOST
from kafkatool.core.client.connection import Connection
from kafkatool.core.errors import BrokerUnreachableError, KafkatoolError, LoginRefusedError, RefusedError
from kafkatool.core.model.acls import (
    Binding,
    Entry,
    Filter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from kafkatool.core.operations.acls import change_acls
from kafkatool.core.operations.requests.acls import description
from kafkatool.core.protocol.messages import describe_acls
from kafkatool.core.security.client_security import ClientSecurity
from kafkatool.core.zookeeper.session import ZooKeeper

OPEN_AT_FIRST: Final = ("/", "/zookeeper", "/zookeeper/quota")
"""The nodes that a new ZooKeeper has, which everybody may change."""
_DESCRIBE_ACLS_VERSION: Final = 2
_TIMEOUT_MS: Final = 30_000
_ASK_AGAIN_S: Final = 0.02


def allow(zookeeper: ZooKeeper, principal: str, operation: str, kind: str, name: str, *, prefixed: bool) -> Binding:
    """Add one right from every host, and tell the brokers; return it."""
    pattern_type = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    pattern = ResourcePattern(ResourceType.read(kind), name, pattern_type)
    try:
        entry = Entry(principal, "*", Operation.read(operation), Permission.ALLOW)
    except (ValueError, KeyError) as e:
        raise RefusedError(f"no operation {operation!r}") from e
    change_acls(zookeeper, pattern, lambda before: before | {entry})
    return Binding(pattern, entry)


def await_right(ports: Iterable[int], right: Binding, security: ClientSecurity) -> None:
    """Return when every broker that answers goes by it. Raises KafkatoolError when that takes too long."""
    request = description(Filter.just(right))

    def goes_by_it(port: int) -> bool:
        try:
            with _connect(port, security) as connection:
                return bool(connection.send(describe_acls.API, _DESCRIBE_ACLS_VERSION, request).resources)
        except BrokerUnreachableError:
            return True  # it is down: no client will ask it

    _await(ports, goes_by_it, f"the right of {right.entry.principal}")


def await_user(ports: Iterable[int], user: str, security: ClientSecurity) -> None:
    """Return when that user can log in at every broker that answers. Raises KafkatoolError when that takes too long."""

    def lets_in(port: int) -> bool:
        try:
            _connect(port, security).close()
        except LoginRefusedError:
            return False
        except BrokerUnreachableError:
            return True
        return True

    _await(ports, lets_in, f"user {user}")


def _await(ports: Iterable[int], knows: Callable[[int], bool], what: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_MS / 1000
    for port in ports:
        while not knows(port):
            if time.monotonic() > deadline:
                raise KafkatoolError(f"after {_TIMEOUT_MS} ms the broker at port {port} does not know {what} yet")
            time.sleep(_ASK_AGAIN_S)


def _connect(port: int, security: ClientSecurity) -> Connection:
    return Connection(HOST, port, client_id="kt-cluster", timeout_ms=_TIMEOUT_MS, security=security)
