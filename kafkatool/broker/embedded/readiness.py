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
from kafkatool.core.model.values import TopicPartition, join_ids
from kafkatool.core.protocol.messages import metadata
from kafkatool.core.zookeeper.session import WatchEvent, ZooKeeper
from kafkatool.core.zookeeper.znodes import BrokersZnode, ControllerZnode

if TYPE_CHECKING:
    from kafkatool.core.security.client_security import ClientSecurity

_METADATA_VERSION = 5
_ASK_AGAIN_S = 0.005
_LOOK_AFTER_S = 0.1
_LOOK_AGAIN_S = 0.02


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


def wait_until_in_sync(zookeeper: ZooKeeper, brokers: Collection[int], timeout_ms: int) -> None:
    """Wait until each partition is led and has all its replicas on those brokers in sync.

    Raises KafkatoolError, which names one that has not, after ``timeout_ms``.
    """
    from kafkatool.core.zookeeper.cluster_view import read_cluster  # no start needs it

    deadline = time.monotonic() + timeout_ms / 1000
    with zookeeper as zk:
        while True:
            seen = read_cluster(zk)
            behind = [
                f"{partition} has the leader {state.leader}, and in sync {join_ids(state.isr)} of {join_ids(replicas)}"
                for topic, found in seen.topics.items()
                for number, replicas in found.assignment.items()
                if (partition := TopicPartition(topic, number)) in seen.states
                and (state := seen.states[partition].leader_and_isr)
                and (state.leader not in brokers or set(replicas) & set(brokers) - set(state.isr))
            ]
            if not behind:
                return
            if time.monotonic() > deadline:
                raise KafkatoolError(f"after {timeout_ms} ms {behind[0]}, and {len(behind) - 1} partitions more")
            time.sleep(_LOOK_AGAIN_S)


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
