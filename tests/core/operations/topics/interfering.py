"""A session under which somebody else writes first."""

from collections.abc import Callable, Sequence
from typing import Any

from kafkatool.core.zookeeper.session import Op, ZooKeeper


class Interfering:
    """A session that lets ``act`` write first, ``times`` times, whenever a write is about to go out."""

    def __init__(self, zk: ZooKeeper, act: Callable[[], object], times: int = 1) -> None:
        self._zk, self._act, self._left = zk, act, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._zk, name)

    def _interfere(self) -> None:
        if self._left:
            self._left -= 1
            self._act()

    def set(self, path: str, content: bytes, version: int) -> int:
        self._interfere()
        return self._zk.set(path, content, version)

    def commit(self, ops: Sequence[Op]) -> list[int | None]:
        self._interfere()
        return self._zk.commit(ops)


def interfering(zk: ZooKeeper, act: Callable[[], object], times: int = 1) -> ZooKeeper:
    return Interfering(zk, act, times)  # type: ignore[return-value]
