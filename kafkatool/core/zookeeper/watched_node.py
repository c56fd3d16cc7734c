"""A znode that is read again and again, at the latest when it changes."""

import threading

from kafkatool.core.zookeeper.session import Node, ZooKeeper


class WatchedNode:
    """A node with one watch until that fires: kazoo keeps every watch until then, and a move may take days.

    An expired session takes its watches with it; the next read then sets one anew. Used by one thread.
    """

    def __init__(self, zk: ZooKeeper, path: str) -> None:
        self._zk, self._path = zk, path
        self._changed = threading.Event()
        self._changed.set()  # not watched yet
        self._session = 0

    def read(self) -> Node | None:
        """Read the node as it is now. Raises ZooKeeperError."""
        session = self._zk.session_id
        if session == self._session and not self._changed.is_set():
            return self._zk.get(self._path)
        self._session = session
        changed = self._changed = threading.Event()
        return self._zk.get(self._path, lambda _: changed.set())

    def wait(self, seconds: float) -> None:
        """Wait until it has changed since it was read, or time is up."""
        self._changed.wait(seconds)
