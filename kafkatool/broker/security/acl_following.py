"""The ACLs in ZooKeeper, read at the start and after each change (SEC-77 to 79).

A change node names the pattern whose node is read again; one that cannot be read may mean any. While ZooKeeper is away
the last state holds; after a new session, or a reconnection, everything is read again.
Source: Kafka 2.8.0 security/authorizer/AclAuthorizer.scala, common/ZkNodeChangeNotificationListener.scala.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Iterable
from typing import Final

from kafkatool.broker.runtime.woken_thread import WokenThread
from kafkatool.broker.security.acl_table import AclTable
from kafkatool.broker.security.authorizer import Authorizer
from kafkatool.core.errors import NodeExistsError, NoNodeError, VersionConflictError, ZnodeFormatError, ZooKeeperError
from kafkatool.core.model.acls import Entry, ResourcePattern, ResourceType
from kafkatool.core.zookeeper.acl_znodes import ACL_PATHS, ACL_ROOTS, AclChangeZnode, AclZnode
from kafkatool.core.zookeeper.session import Node, SessionState, WatchEvent, ZooKeeper

log = logging.getLogger(__name__)

_EXPIRY_MS: Final = 15 * 60 * 1000


class AclFollower:
    """The thread that keeps the authorizer's table as ZooKeeper has it.

    ``_lock`` is held while nodes are read and the table is made: two that read one node would put the older one last.
    No decision takes it.
    """

    def __init__(self, zookeeper: ZooKeeper, authorizer: Authorizer, *, name: str = "acls") -> None:
        self._zookeeper = zookeeper
        self._authorizer = authorizer
        self._lock = threading.Lock()
        self._seen: set[str] = set()  # change nodes
        self._unknown: set[str] = set()  # types of resources that a line has told of
        self._all_anew = True
        self._thread = WokenThread(self._pass, name=name, expected=ZooKeeperError, on_error=self._on_error)

    def start(self) -> None:
        """Make the nodes that are missing, read all ACLs, then follow. Raises ZooKeeperError."""
        for path in ACL_PATHS:
            with contextlib.suppress(NodeExistsError):
                self._zookeeper.create(path, make_parents=True)
        self._zookeeper.add_session_listener(self._on_session)
        self._pass()
        self._thread.start()

    def stop(self) -> None:
        """Follow no more."""
        self._thread.stop()

    def read_again(self, patterns: Iterable[ResourcePattern]) -> None:
        """Have decisions go by what these nodes hold now. Raises ZooKeeperError."""
        with self._lock:
            self._authorizer.follow(self._authorizer.table.with_entries(self._read(list(patterns))))

    # --- the thread -------------------------------------------------------------------------------------------------

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._all_anew = True
            self._thread.wake()

    def _on_watch(self, event: WatchEvent) -> None:
        self._thread.wake()

    def _on_error(self, error: Exception) -> None:
        log.warning("ACLs could not be read, those known hold until then: %s", error)
        self._all_anew = True

    def _pass(self) -> None:
        """Look for change nodes, which also watches for the next ones, then read what they name."""
        anew = self._all_anew
        if anew:  # one that is asked for between these lines is done here, too
            self._all_anew = False
        changed: set[ResourcePattern] = set()
        seen: set[str] = set()
        for pattern_type, root in AclChangeZnode.PATHS.items():
            children = sorted(self._zookeeper.children(root, self._on_watch) or ())
            paths = [f"{root}/{child}" for child in children]
            for path, node in zip(paths, self._zookeeper.get_many(paths), strict=True):
                if node is None:
                    continue
                if path not in self._seen:
                    try:
                        changed.add(AclChangeZnode.decode(pattern_type, node.data))
                    except ZnodeFormatError as e:
                        log.error("%s: %s; all ACLs are read again", path, e)
                        anew = True
                if node.ctime_ms < time.time() * 1000 - _EXPIRY_MS:
                    with contextlib.suppress(NoNodeError, VersionConflictError):  # another broker was quicker
                        self._zookeeper.delete(path)
            seen.update(paths)
        self._seen = seen
        if anew:
            self._read_all()
        elif changed:
            self.read_again(changed)

    def _read_all(self) -> None:
        with self._lock:
            patterns: list[ResourcePattern] = []
            for pattern_type, root in ACL_ROOTS.items():
                kinds = [kind for word in self._zookeeper.children(root) or () if (kind := self._type_of(root, word))]
                paths = [AclZnode.type_path(kind, pattern_type) for kind in kinds]
                for kind, names in zip(kinds, self._zookeeper.children_many(paths), strict=True):
                    patterns += (ResourcePattern(kind, name, pattern_type) for name in names or ())
            self._authorizer.follow(AclTable().with_entries(self._read(patterns)))

    def _type_of(self, root: str, word: str) -> ResourceType | None:
        kind = next((kind for kind in ResourceType if kind.word == word and kind is not ResourceType.ANY), None)
        if kind is None and word not in self._unknown:
            self._unknown.add(word)
            log.warning("ACLs below %s/%s are of an unknown type of resource and are ignored", root, word)
        return kind

    def _read(self, patterns: list[ResourcePattern]) -> dict[ResourcePattern, frozenset[Entry] | None]:
        nodes = self._zookeeper.get_many([AclZnode.path(pattern) for pattern in patterns])
        return {pattern: _entries(pattern, node) for pattern, node in zip(patterns, nodes, strict=True)}


def _entries(pattern: ResourcePattern, node: Node | None) -> frozenset[Entry] | None:
    if node is None:
        return frozenset()
    try:
        entries = AclZnode.decode(pattern, node.data)
        AclZnode.check_known(pattern, entries)
    except ZnodeFormatError as e:
        log.error("%s: nobody but super users may use what it is about", e)
        return None
    return entries
