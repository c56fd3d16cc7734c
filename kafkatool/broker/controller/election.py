"""The writes of an election: ``/controller`` and the epoch won together, and ``/controller`` given up (CTL-4, 6, 10, 11)."""

import logging
from collections.abc import Callable

from kafkatool.core.errors import (
    ConnectionLostError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    VersionConflictError,
    ZooKeeperError,
)
from kafkatool.core.zookeeper.session import Check, Create, Delete, Op, SetData, TransactionError, ZooKeeper
from kafkatool.core.zookeeper.znodes import ControllerEpochZnode, ControllerZnode

log = logging.getLogger(__name__)

_DELETE_ATTEMPTS = 5


def win(
    zookeeper: ZooKeeper, controller: bytes, session_is_gone: Callable[[], bool], *, depose: bool = False
) -> tuple[int, int]:
    """Make ``/controller`` and raise the epoch, both or neither: step 1 of CTL-24 (CTL-4, CTL-10, CTL-11).

    Returns the epoch and its node's version. With two writes a broker that was held up between them, its node deleted
    meanwhile, could raise the epoch over the head of its rightful successor, whom no broker would obey any more and
    whose place nobody would take. As in Kafka >= 2.2 (KAFKA-6082).
    ``depose``: who rules loses the place in the same transaction, so that nobody comes between. The epoch tells one
    controller's node from another's.
    Raises NodeExistsError when another broker was first, SessionExpiredError when the session is gone before the write.
    """
    while True:
        node = zookeeper.get(ControllerEpochZnode.PATH)
        ruling = zookeeper.get(ControllerZnode.PATH) if depose else None
        if session_is_gone():
            raise SessionExpiredError("the session was lost during the election")
        epoch = 1 if node is None else ControllerEpochZnode.decode(node.data) + 1
        data, path = ControllerEpochZnode.encode(epoch), ControllerEpochZnode.PATH
        raised = Create(path, data) if node is None else SetData(path, data, node.version)
        try:
            made = Create(ControllerZnode.PATH, controller, ephemeral=True)
            deposed: list[Op] = [Delete(ControllerZnode.PATH, ruling.version)] if ruling else []
            version = zookeeper.commit([*deposed, made, raised])[-1]
        except TransactionError as e:
            if isinstance(e.cause, NodeExistsError) and e.index == 0 and not depose:
                raise e.cause from e
            if isinstance(e.cause, NoNodeError) and e.index == len(deposed):
                raise e.cause from e  # what /controller lies in is gone
            if isinstance(e.cause, (NodeExistsError, NoNodeError, VersionConflictError)):
                continue  # raised by one that is gone again, or never had the node: read again
            raise
        if ruling is not None:
            log.info("deposed controller %d", ControllerZnode.decode(ruling.data))
        return epoch, version or 0


def give_up_place(zookeeper: ZooKeeper) -> None:
    """Delete ``/controller`` if it is this session's. Never raises: the node goes with the session at the latest.

    The deletion is bound to the controller epoch as it is now, so that no successor's node is hit.
    """
    for _ in range(_DELETE_ATTEMPTS):
        try:
            node = zookeeper.get(ControllerZnode.PATH)
            if node is None or node.ephemeral_owner != zookeeper.session_id:
                return
            epoch = zookeeper.get(ControllerEpochZnode.PATH)
            operations: list[Op] = [Delete(ControllerZnode.PATH, node.version)]
            if epoch is not None:
                operations.insert(0, Check(ControllerEpochZnode.PATH, epoch.version))
            zookeeper.commit(operations)
            return
        except (TransactionError, ConnectionLostError) as e:
            log.warning("could not delete %s yet: %s", ControllerZnode.PATH, e)
        except ZooKeeperError as e:
            log.warning("could not delete %s; it goes with the session: %s", ControllerZnode.PATH, e)
            return
