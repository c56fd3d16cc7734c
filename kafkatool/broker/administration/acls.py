"""ACLs changed on behalf of clients; any broker does it, and answers when it goes by them itself (SEC-88, 89)."""

from collections.abc import Callable, Iterable, Sequence

from kafkatool.broker.administration.topics import AdminError
from kafkatool.broker.security.acl_following import AclFollower
from kafkatool.broker.security.authorizer import Authorizer
from kafkatool.core.errors import RefusedError, ZnodeFormatError, ZooKeeperError
from kafkatool.core.model.acls import Binding, Entry, Filter, ResourcePattern, as_sorted, check_binding
from kafkatool.core.operations.acls import change_acls
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.zookeeper.acl_znodes import AclZnode
from kafkatool.core.zookeeper.session import ZooKeeper


class AclAdmin:
    """Reads the table that decisions go by; writes to ZooKeeper, then has that table follow."""

    def __init__(
        self, zookeeper: ZooKeeper, authorizer: Authorizer, follower: AclFollower, *, prefixed_allowed: bool
    ) -> None:
        self._zookeeper = zookeeper
        self._authorizer = authorizer
        self._follower = follower
        self._prefixed_allowed = prefixed_allowed

    def find(self, wanted: Filter) -> dict[ResourcePattern, list[Entry]]:
        """Return the entries that a filter selects, sorted, by pattern."""
        return as_sorted(
            Binding(pattern, entry)
            for pattern, entries in self._authorizer.table
            if wanted.meets(pattern)
            for entry in entries
            if wanted.selects(entry)
        )

    def add(self, bindings: Sequence[Binding | AdminError]) -> list[AdminError | None]:
        """Add entries; return what went wrong with each, in order. One that cannot be made is given as its error."""
        outcomes: dict[Binding, AdminError | None] = {}
        wanted: dict[ResourcePattern, set[Entry]] = {}
        for binding in bindings:
            if isinstance(binding, AdminError):
                continue
            try:
                check_binding(binding, prefixed_allowed=self._prefixed_allowed)
                wanted.setdefault(binding.pattern, set()).add(binding.entry)
            except ValueError as e:
                outcomes[binding] = AdminError(ErrorCode.INVALID_REQUEST, str(e))
        for pattern, entries in wanted.items():
            error = self._change(pattern, lambda before, added=frozenset(entries): before | added)  # type: ignore[misc]
            outcomes |= {Binding(pattern, entry): error for entry in entries}
        self._follow(wanted)
        return [one if isinstance(one, AdminError) else outcomes[one] for one in bindings]

    def remove(self, filters: Iterable[Filter]) -> list[list[tuple[Binding, AdminError | None]]]:
        """Remove what each filter selects; return that, with what went wrong, by filter."""
        found = [[Binding(p, e) for p, entries in self.find(one).items() for e in entries] for one in filters]
        errors: dict[ResourcePattern, AdminError | None] = {}
        for pattern, entries in as_sorted(binding for bindings in found for binding in bindings).items():
            errors[pattern] = self._change(pattern, lambda before, gone=frozenset(entries): before - gone)  # type: ignore[misc]
        self._follow(errors)
        return [[(binding, errors[binding.pattern]) for binding in bindings] for bindings in found]

    def _change(
        self, pattern: ResourcePattern, update: Callable[[frozenset[Entry]], frozenset[Entry]]
    ) -> AdminError | None:
        def understood(before: frozenset[Entry]) -> frozenset[Entry]:
            AclZnode.check_known(pattern, before)  # nobody would be let in by what is added
            return update(before)

        known = self._authorizer.table.entries(pattern)
        untold = update(known) != known  # if the node is so already, whoever made it so may have died before it told
        try:
            change_acls(self._zookeeper, pattern, understood, always_told=untold)
        except (RefusedError, ZnodeFormatError, ZooKeeperError) as e:
            return AdminError(ErrorCode.UNKNOWN_SERVER_ERROR, str(e))
        return None

    def _follow(self, patterns: Iterable[ResourcePattern]) -> None:
        self._follower.read_again(patterns)
