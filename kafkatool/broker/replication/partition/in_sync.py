"""The in-sync replicas of one partition, with the change of them that is on its way to ZooKeeper (BRK-50 to 56).

The state node is written outside the partition's lock, so that a slow ZooKeeper delays no append. Until the outcome
is known the high watermark waits for the members of the old *and* the new set, whichever turns out to hold.
"""

from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class InSyncReplicas:
    """The set as last agreed with ZooKeeper, ordered. Changed under the partition's lock, read without one."""

    members: tuple[int, ...] = ()
    waited_for: frozenset[int] = frozenset()  # whose log end holds the high watermark back
    version: int = -1
    frozen: bool = False  # another has written the node: leave the set alone until LeaderAndIsr comes
    _pending: tuple[int, ...] | None = None
    _unconfirmed: list[tuple[int, ...]] = field(default_factory=list)  # sent, outcome not known: any may hold

    @property
    def may_change(self) -> bool:
        """Tell whether no change is on its way and this term still holds."""
        return self._pending is None and not self.frozen

    def adopt(self, members: tuple[int, ...], version: int) -> None:
        """Take over what the node holds, or a leadership decision says: nothing when this broker follows."""
        self.members, self.version = members, version
        self._pending, self._unconfirmed = None, []
        self.frozen = False
        self.waited_for = frozenset(members)

    def propose(self, members: tuple[int, ...]) -> None:
        """Note that a change is on its way."""
        self._pending = members
        self._refresh()

    def give_up(self, *, outcome_known: bool) -> None:
        """Keep the set; with an unknown outcome the change may still turn out to have been made."""
        if not outcome_known and self._pending is not None and self._pending not in self._unconfirmed:
            self._unconfirmed.append(self._pending)
        self._pending = None
        self._refresh()

    def sent_before(self, members: tuple[int, ...]) -> bool:
        """Tell whether the node holding ``members`` means a write of ours got through without its reply (BRK-54)."""
        return members == self._pending or members in self._unconfirmed

    def _refresh(self) -> None:
        self.waited_for = frozenset(self.members).union(self._pending or (), *self._unconfirmed)
