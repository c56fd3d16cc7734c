"""When a cluster is ready: its brokers are registered and know each other, and a controller rules.

Watches tell of what happens in ZooKeeper. What a broker knows has to be asked again and again, for the few milliseconds
until the controller has told it.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from kafkatool.broker.embedded.ports import HOST
from kafkatool.core.client.connection import Connection
from kafkatool.core.errors import BrokerUnreachableError, KafkatoolError
from kafkatool.core.protocol.messages import metadata
from kafkatool.core.zookeeper.session import WatchEvent, ZooKeeper
from kafkatool.core.zookeeper.znodes import BrokersZnode, ControllerZnode

if TYPE_CHECKING:
    from kafkatool.core.security.client_security import ClientSecurity

_METADATA_VERSION = 5
_ASK_AGAIN_S = 0.005
_LOOK_AFTER_S = 0.1


def wait_until_ready(
    zookeeper: ZooKeeper,
    ports: Mapping[int, int],
    brokers: Collection[int],
    timeout_ms: int,
    look_after: Callable[[], None],
    security: "ClientSecurity | None" = None,
) -> None:
    """Wait for those of the brokers at ``ports``; ``look_after`` is called meanwhile, and raises what ends the waiting.

    Raises KafkatoolError, which names what is missing, after ``timeout_ms``.
    """
    deadline = time.monotonic() + timeout_ms / 1000
    changed = threading.Event()
    with zookeeper as zk:
        registered: set[int] = set()
        missing: str | None = "everything"
        while True:
            if missing is not None or changed.is_set():  # else only what brokers know is waited for
                changed.clear()
                registered, missing = _registered(zk, brokers, lambda event: changed.set())
            unknowing = (
                [i for i in sorted(brokers) if not _knows(ports[i], registered, security)] if missing is None else []
            )
            if missing is None and not unknowing:
                return
            changed.wait(_ASK_AGAIN_S if unknowing else _LOOK_AFTER_S)
            look_after()
            if time.monotonic() > deadline:
                what = missing or f"broker {unknowing[0]} to answer with metadata of all"
                raise KafkatoolError(f"after {timeout_ms} ms still waiting for {what}")


def _registered(
    zk: ZooKeeper, brokers: Collection[int], watch: Callable[[WatchEvent], None]
) -> tuple[set[int], str | None]:
    """Return all registered brokers, and what is still missing in ZooKeeper; the watch rings when that has changed."""
    names = zk.children(BrokersZnode.PATH, watch)
    if names is None and zk.get(BrokersZnode.PATH, watch) is not None:
        names = zk.children(BrokersZnode.PATH, watch)
    registered = {int(name) for name in names or () if name.isdecimal()}
    if absent := set(brokers) - registered:
        return registered, f"brokers {sorted(absent)} to register"
    if zk.get(ControllerZnode.PATH, watch) is None:
        return registered, "a controller to be elected"
    return registered, None


def _knows(port: int, brokers: set[int], security: "ClientSecurity | None") -> bool:
    try:
        with Connection(HOST, port, client_id="kt-cluster", timeout_ms=2000, security=security) as connection:
            answer = connection.send(metadata.API, _METADATA_VERSION, metadata.MetadataRequest(topics=[]))
    except BrokerUnreachableError:
        return False
    return brokers <= {b.node_id for b in answer.brokers} and answer.controller_id >= 0
