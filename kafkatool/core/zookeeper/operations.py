"""A znode as read, the operations of a transaction, and whether a node shows that one was carried out."""

from dataclasses import dataclass
from typing import NamedTuple

from kafkatool.core.errors import ZooKeeperError

ANY_VERSION = -1


class Node(NamedTuple):
    """A znode as read. ``ephemeral_owner`` is the owning session's id, 0 for a persistent node.

    ``czxid`` and ``mzxid``: the transactions that made it and that last wrote it; they tell which of two things
    happened first.
    """

    data: bytes
    version: int
    czxid: int
    mzxid: int
    ephemeral_owner: int
    ctime_ms: int


@dataclass(frozen=True, slots=True)
class Create:
    """``sequential``: ZooKeeper adds a counter to the name."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """``replaces_bytes``: the size of the data that are there. ZooKeeper has taken as much, so it may be written again
    whatever limit this side was told: what could not be made smaller would stand in the way for ever.
    """

    path: str
    data: bytes
    version: int
    replaces_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """``czxid`` of the node that is meant, where another may be made as soon as it is gone; 0: whichever is there."""

    path: str
    version: int = ANY_VERSION
    czxid: int = 0


@dataclass(frozen=True, slots=True)
class Check:
    path: str
    version: int


Op = Create | SetData | Delete | Check


class TransactionError(ZooKeeperError):
    """A transaction was refused as a whole: ``index`` is the operation that failed, ``cause`` why."""

    def __init__(self, index: int, cause: ZooKeeperError) -> None:
        super().__init__(str(cause), now=cause.now)
        self.index = index
        self.cause = cause


def shows(node: Node | None, op: Op) -> bool:
    """Tell whether the node is as that write leaves it."""
    match op:
        case Create(_, data):
            return node is not None and node.data == data
        case SetData(_, data, version, _):
            return node is not None and node.version == version + 1 and node.data == data
        case Delete(_, _, czxid):
            return node is None or (czxid != 0 and node.czxid != czxid)
        case Check():
            return True  # it leaves nothing
