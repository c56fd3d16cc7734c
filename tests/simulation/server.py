"""The ZooKeeper server of the simulation: the ensemble in memory, which may be down, and who wrote what to it."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafkatool.core.zookeeper.session import Op
from tests.core.zookeeper.ensemble import Ensemble
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.client import Client


class Writer(NamedTuple):
    """Who asked for a write: the client, which part of its process, and the controller epoch it ruled by then."""

    client: "Client | None"
    part: str  # "controller", "broker" or "operator"
    epoch: int | None


OPERATOR = Writer(None, "operator", None)


class Server(Ensemble[Writer]):
    """The tree that all share. ``on_write(writer, op, before, after)`` is called behind each write of a transaction."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.is_up = True
        self.on_write: Callable[[Writer, Op, bytes | None, bytes | None], None] = lambda *_: None
        self.after_transaction: Callable[[Writer], None] = lambda _: None

    def written(self, writer: Writer, op: Op, before: bytes | None, after: bytes | None) -> None:
        self.world.count(op.path.encode())
        self.world.count(after or b"-")
        if self.world.trace is not None:
            who = writer.part if writer.client is None else f"{writer.part} {writer.client.name}"
            self.world.note("zookeeper  %s: %s = %s", who, op.path, "gone" if after is None else after.decode())
        self.on_write(writer, op, before, after)

    def committed(self, writer: Writer, ops: Sequence[Op]) -> None:
        self.after_transaction(writer)
