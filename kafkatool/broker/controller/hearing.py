"""Whether anybody would hear and obey a controller that is about to take another's place: asked before it does (SEC-39)."""

import logging
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from kafkatool.core.client.connection import Connection
from kafkatool.core.errors import BrokerUnreachableError, ProtocolError, RefusedError
from kafkatool.core.model.values import BrokerInfo, TopicPartition
from kafkatool.core.protocol.messages import stop_replica
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.security.client_security import ClientSecurity
from kafkatool.core.zookeeper.session import ANY_VERSION, Create, Delete, Op, SetData, ZooKeeper
from kafkatool.core.zookeeper.znodes import ControllerEpochZnode, ControllerZnode, PartitionStateZnode, TopicZnode

log = logging.getLogger(__name__)

_TIMEOUT_MS = 10_000
_AT_ONCE = 16


def check_heard(
    brokers: Collection[BrokerInfo], listener: str, security: ClientSecurity | None, *, client_id: str
) -> None:
    """Log in at each broker and see whether it obeys. Raises RefusedError if none does; the others are warned of."""
    ask = partial(_hindrance, listener=listener, security=security, client_id=client_id)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        failures = [failure for failure in pool.map(ask, brokers) if failure is not None]
    if failures and len(failures) == len(brokers):
        raise RefusedError(
            f"no broker could be told anything: {'; '.join(failures)}",
            now="give the brokers' inter.broker.listener.name or security.inter.broker.protocol, and their login, "
            "by --config or -o",
        )
    for failure in failures:
        log.warning("%s: it will not hear this controller", failure)


def _hindrance(broker: BrokerInfo, listener: str, security: ClientSecurity | None, client_id: str) -> str | None:
    """Return why the broker would not obey; None: it would."""
    endpoint = broker.endpoint(listener)
    if endpoint is None:
        there = ", ".join(f"{e.listener} ({e.protocol})" for e in broker.endpoints)
        return f"broker {broker.id} has no listener {listener} but {there}"
    # Of an epoch before all controllers': who may tell brokers what to do is told that it is stale, and nothing is done.
    stale = stop_replica.StopReplicaRequest(
        controller_id=-1, controller_epoch=0, delete_partitions=False, partitions=[]
    )
    try:
        with Connection(
            endpoint.host, endpoint.port, client_id=client_id, timeout_ms=_TIMEOUT_MS, security=security
        ) as connection:
            answer = connection.send(stop_replica.API, 0, stale)
    except (BrokerUnreachableError, ProtocolError) as e:
        return f"broker {broker.id}: {e}"
    if answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return f"broker {broker.id}: this login lacks ClusterAction on the cluster"
    return None


def check_may_rule(zk: ZooKeeper, topics: Collection[str]) -> None:
    """Raise NoPermissionError where ZooKeeper would refuse what a controller writes; nothing is written (SEC-25)."""
    states = [PartitionStateZnode.path(TopicPartition(topic, 0)) for topic in topics]  # all of a topic's are alike
    nodes = zk.get_many(states)
    writes: list[Op] = [SetData(TopicZnode.path(topic), b"", ANY_VERSION) for topic in topics]
    writes += [SetData(path, b"", ANY_VERSION) for path, node in zip(states, nodes, strict=True) if node is not None]
    if zk.get(ControllerEpochZnode.PATH) is not None:
        writes.append(SetData(ControllerEpochZnode.PATH, b"", ANY_VERSION))
    rules = zk.get(ControllerZnode.PATH) is not None
    writes.append(Delete(ControllerZnode.PATH) if rules else Create(ControllerZnode.PATH))
    zk.check_permitted(writes)
