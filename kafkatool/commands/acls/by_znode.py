"""ACLs in the nodes that brokers go by; brokers need not be up."""

from collections.abc import Callable, Collection, Iterable

from kafkatool.commands.acls.way import Acls
from kafkatool.commands.shared.options import read_cluster_id, show_planned
from kafkatool.commands.shared.output import Output
from kafkatool.core.model.acls import Entry, Filter, FoundAcls, ResourcePattern
from kafkatool.core.operations import acls as operations
from kafkatool.core.operations.acls import AclChange, Entries
from kafkatool.core.zookeeper.acl_znodes import AclChangeZnode
from kafkatool.core.zookeeper.session import ZooKeeper


class AclsByZnode:
    """One node for each pattern, and a change node for each write."""

    def __init__(self, zk: ZooKeeper) -> None:
        self._zk = zk

    def read_cluster_id(self) -> str | None:
        return read_cluster_id(self._zk)

    def read(self, wanted: Filter) -> FoundAcls:
        return operations.read_acls(self._zk, wanted)

    def add(self, wanted: Acls) -> None:
        for pattern, entries in wanted.items():
            operations.change_acls(self._zk, pattern, _adding(entries), always_told=True)

    def remove(self, doomed: Acls) -> None:
        for pattern, entries in doomed.items():
            operations.change_acls(self._zk, pattern, _removing(entries), always_told=True)

    def dry_run_add(self, out: Output, wanted: Acls) -> None:
        self._show(out, (self._planned(pattern, _adding(entries)) for pattern, entries in wanted.items()))

    def dry_run_remove(self, out: Output, doomed: Acls) -> None:
        self._show(out, (self._planned(pattern, _removing(entries)) for pattern, entries in doomed.items()))

    def _planned(self, pattern: ResourcePattern, update: Callable[[Entries], Entries]) -> AclChange:
        return operations.plan_change(self._zk, pattern, update, always_told=True)

    def _show(self, out: Output, changes: Iterable[AclChange]) -> None:
        told = [f"{path}/acl_changes_" for path in AclChangeZnode.PATHS.values()]
        show_planned(out, self._zk, [op for change in changes for op in change.ops], sequential_paths=told)


def _adding(entries: Collection[Entry]) -> Callable[[Entries], Entries]:
    return lambda before: before | set(entries)


def _removing(entries: Collection[Entry]) -> Callable[[Entries], Entries]:
    return lambda before: before - set(entries)
