"""What the actions ask of a way to a cluster's ACLs: the nodes in ZooKeeper, or requests to brokers."""

from collections.abc import Collection, Mapping
from typing import Protocol

from kafkatool.commands.shared.output import Output
from kafkatool.core.model.acls import Entry, Filter, FoundAcls, ResourcePattern

Acls = Mapping[ResourcePattern, Collection[Entry]]


class Way(Protocol):
    """Reads and changes ACLs; ``dry_run`` prints what a change would write or send.

    A pattern of which nothing is to be removed is one whose removal may have been cut short before brokers were told.
    """

    def read_cluster_id(self) -> str | None: ...
    def read(self, wanted: Filter) -> FoundAcls: ...
    def add(self, wanted: Acls) -> None: ...
    def remove(self, doomed: Acls) -> None: ...
    def dry_run_add(self, out: Output, wanted: Acls) -> None: ...
    def dry_run_remove(self, out: Output, doomed: Acls) -> None: ...
