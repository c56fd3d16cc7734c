"""Who may do what with a znode, by its path, as Kafka's brokers and tools set it (SEC-28 to SEC-30). Pure values.

A node is made with a list of rights, each for one identity; ``auth`` stands for every identity of the session that makes
it. Source: Kafka 2.8.0 zk/ZkData.scala.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

ALL_RIGHTS: Final = 31
READ: Final = 1
_LETTERS: Final = ((4, "c"), (8, "d"), (READ, "r"), (2, "w"), (16, "a"))
_SENSITIVE: Final = ("/config/users", "/config/brokers", "/delegation_token/tokens")
_ALWAYS_OPEN: Final = "/consumers"  # old consumers write below it

SECURED_ROOTS: Final = (
    *("/admin", "/brokers", "/cluster", "/config", "/controller", "/controller_epoch", "/isr_change_notification"),
    *("/latest_producer_id_block", "/log_dir_event_notification", "/delegation_token", "/kafka-acl-extended"),
    *("/kafka-acl", "/kafka-acl-changes", "/kafka-acl-extended/prefixed", "/kafka-acl-extended-changes"),
    *("/feature", "/migration"),
)
"""What zookeeper-security-migration goes through, each with all below it (SEC-31). Source: Kafka 2.8.0 and 3.9.1."""

ROOTS_NOT_ALWAYS_THERE: Final = frozenset({"/controller", "/feature", "/migration"})
"""Nobody rules for a moment, or the version has none."""


class Acl(NamedTuple):
    """One entry: rights, and whose."""

    rights: int
    scheme: str
    id: str

    @property
    def owner(self) -> str:
        """Return whom it means; of a password's digest only the name."""
        shown = self.id.partition(":")[0] if self.scheme == "digest" else self.id
        return f"{self.scheme}:{shown}"

    def __str__(self) -> str:
        return f"{self.owner}:{''.join(letter for bit, letter in _LETTERS if self.rights & bit)}"


OPEN: Final = (Acl(ALL_RIGHTS, "world", "anyone"),)
_CREATOR: Final = (Acl(ALL_RIGHTS, "auth", ""),)
_WORLD_READS: Final = Acl(READ, "world", "anyone")


@dataclass(frozen=True, slots=True)
class NodeAcls:
    """What new nodes get. ``owners`` have all rights; None: everybody has."""

    owners: tuple[Acl, ...] | None = None

    def of(self, path: str) -> Sequence[Acl]:
        """Return the entries of the node at that path, below the chroot."""
        if self.owners is None or path == _ALWAYS_OPEN:
            return OPEN
        return self.owners if is_sensitive(path) else (*self.owners, _WORLD_READS)


OPEN_NODES: Final = NodeAcls()
OWN_NODES: Final = NodeAcls(_CREATOR)
"""Secure nodes of who makes them."""


def is_sensitive(path: str) -> bool:
    """Tell whether only owners may read the node; by the beginning of its path, as Kafka does."""
    return path.startswith(_SENSITIVE)


def is_world_readable(acls: Iterable[Acl]) -> bool:
    """Tell whether everybody may read the node."""
    return any(acl.scheme == "world" and acl.rights & READ for acl in acls)


def is_open(acls: Iterable[Acl]) -> bool:
    """Tell whether everybody may do everything."""
    return OPEN[0] in acls


def acls_like(acls: Sequence[Acl]) -> NodeAcls:
    """Return what new nodes get beside one with those entries: open, or its owners' (SEC-29, SEC-30)."""
    owners = tuple(acl for acl in acls if acl.rights == ALL_RIGHTS)
    return OPEN_NODES if is_open(acls) or not owners else NodeAcls(owners)
