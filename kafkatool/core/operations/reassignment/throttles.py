"""Replication throttles of a reassignment: which replicas, which rate, and how they are removed (RSN-13, 14, 23X, 24X).

They live in the configs of the plan's topics and of brokers. Every node is written on the version it was read at, and
remembered, so that what stood there before can be put back as long as nobody else wrote since.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from kafkatool.core.errors import NodeExistsError, NoNodeError, VersionConflictError, ZooKeeperError
from kafkatool.core.planner.plan_files import Moves
from kafkatool.core.zookeeper.session import Create, Node, Op, SetData, ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigChangeZnode, ConfigZnode

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
REPLICAS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
MIN_SAFE_RATE: Final = 1024  # bytes/s; below it a move may never end (RSN-24X)


@dataclass(frozen=True, slots=True)
class ConfigWrite:
    """The config of one entity as it was read and as it shall be. ``before`` None: the node is not there yet."""

    entity_type: str
    name: str
    before: Node | None
    config: Mapping[str, str]

    @property
    def path(self) -> str:
        return ConfigZnode.path(self.entity_type, self.name)

    @property
    def stored(self) -> Mapping[str, str]:
        """Return the config as it was read."""
        return ConfigZnode.decode(self.path, self.before.data) if self.before else {}

    @property
    def keys(self) -> tuple[str, str]:
        """Return the keys that throttle an entity of this type."""
        return RATES if self.entity_type == "brokers" else REPLICAS

    @property
    def data(self) -> bytes:
        return ConfigZnode.encode(self.config, self.before.data if self.before else b"")

    @property
    def notification(self) -> Create:
        """Return the change notification that follows (TOP-14); its node is sequential."""
        change = ConfigChangeZnode.encode(ConfigZnode.entity_path(self.entity_type, self.name))
        return Create(ConfigChangeZnode.PREFIX, change)

    @property
    def ops(self) -> tuple[Op, Op]:
        """Return both writes, for showing them (COM-6X)."""
        if self.before is None:
            return Create(self.path, self.data), self.notification
        return SetData(self.path, self.data, self.before.version), self.notification

    def setting(self, changes: Mapping[str, str]) -> Self:
        """Return the write that sets those keys and keeps the others."""
        return replace(self, config={**self.config, **changes})

    def unthrottled(self) -> Self:
        """Return the write that drops the throttling keys."""
        return replace(self, config={k: v for k, v in self.config.items() if k not in self.keys})

    def throttle(self, config: Mapping[str, str]) -> dict[str, str]:
        """Return the throttling keys in ``config``."""
        return {k: config[k] for k in self.keys if k in config}


# --- setting and removing --------------------------------------------------------------------------------------


def plan_rates(zk: ZooKeeper, brokers: Iterable[int], rate: int) -> list[ConfigWrite]:
    """Plan to set both rates of those brokers to ``rate`` bytes/s, other keys kept."""
    reads = _read(zk, [("brokers", str(b)) for b in sorted(set(brokers))])
    return [read.setting(dict.fromkeys(RATES, str(rate))) for read in reads]


def plan_replicas(zk: ZooKeeper, moves: Moves, current: Moves) -> list[ConfigWrite]:
    """Plan the replica lists of the plan's topics; both empty where no partition gains a replica (RSN-14)."""
    topics = sorted({p.topic for p in moves})
    leaders: dict[str, list[str]] = {t: [] for t in topics}
    followers: dict[str, list[str]] = {t: [] for t in topics}
    for partition, replicas in moves.items():
        gained = [b for b in replicas if b not in current[partition]]
        if gained:
            leaders[partition.topic] += [f"{partition.partition}:{b}" for b in current[partition]]
            followers[partition.topic] += [f"{partition.partition}:{b}" for b in gained]
    return [
        read.setting({REPLICAS[0]: ",".join(leaders[read.name]), REPLICAS[1]: ",".join(followers[read.name])})
        for read in _read(zk, [("topics", t) for t in topics])
    ]


def throttled_brokers(moves: Moves, topics: Mapping[str, Mapping[int, Sequence[int]]]) -> set[int]:
    """Return the brokers in the plan or in any current assignment of its topics (RSN-14)."""
    named = {b for replicas in moves.values() for b in replicas}
    return named.union(*(replicas for assignment in topics.values() for replicas in assignment.values()))


def plan_removal(zk: ZooKeeper, topics: Iterable[str]) -> list[ConfigWrite]:
    """Plan to take the rates off every broker, registered or not, and the lists off those topics (RSN-13, RSN-24X)."""
    # The children of /config/brokers cover brokers that are down; <default> is not a throttle of ours.
    names = zk.children(ConfigZnode.path("brokers", "").rstrip("/")) or []
    brokers = sorted((n for n in names if n.isdecimal()), key=int)
    reads = _read(zk, [("brokers", b) for b in brokers] + [("topics", t) for t in sorted(set(topics))])
    return [read.unthrottled() for read in reads if read.throttle(read.config)]


# --- saving and restoring, over the end of a process ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SavedThrottle:
    """The throttle keys of one entity: what stood there before (absent: nothing), and what a run sets (RSN-22X)."""

    entity_type: str
    name: str
    before: Mapping[str, str]
    set: Mapping[str, str]


def saved(writes: Iterable[ConfigWrite]) -> list[SavedThrottle]:
    """Return what is to be remembered before those writes are made."""
    return [SavedThrottle(w.entity_type, w.name, w.throttle(w.stored), w.throttle(w.config)) for w in writes]


def set_again(zk: ZooKeeper, throttles: Iterable[SavedThrottle]) -> None:
    """See that every throttle of a resumed run is set; other keys, and what somebody else has set since, are kept."""
    for throttle in throttles:
        _replace(zk, throttle, throttle.before, throttle.set)


def restore(zk: ZooKeeper, throttles: Iterable[SavedThrottle]) -> list[str]:
    """Put back what stood there before. Return the paths that somebody else has changed since, left as they are.

    Rates are put back whatever they are now: changing them is how a running reassignment is sped up (RSN-10).
    """
    return [
        ConfigZnode.path(t.entity_type, t.name) for t in throttles if not _replace(zk, t, t.set, t.before, always=True)
    ]


def _replace(
    zk: ZooKeeper, throttle: SavedThrottle, old: Mapping[str, str], new: Mapping[str, str], *, always: bool = False
) -> bool:
    """Replace the keys ``old`` by ``new``. Return whether the entity has those now; it may have had them already.

    ``always``: a broker's rates may have been something else.
    """
    (read,) = _read(zk, [(throttle.entity_type, throttle.name)])
    found = read.throttle(read.config)
    if found == new:
        if read.before is not None:  # whoever wrote it may have been killed before it told the brokers
            zk.create(read.notification.path, read.notification.data, sequential=True, make_parents=True)
        return True
    if found != old and not (always and throttle.entity_type == "brokers"):
        return False
    try:
        _write(zk, read.unthrottled().setting(new))
    except (VersionConflictError, NoNodeError):
        return False
    return True


# --- reading and writing configs -------------------------------------------------------------------------------


def apply(zk: ZooKeeper, writes: Sequence[ConfigWrite]) -> list[ConfigWrite]:
    """Write each config and its notification. Return what undoes them.

    Raises VersionConflictError and other ZooKeeperErrors, after undoing what it had written.
    """
    done: list[ConfigWrite] = []
    try:
        for write in writes:
            before = write.stored
            done.append(replace(write, before=_write(zk, write), config=before))
    except ZooKeeperError:
        undo(zk, done)
        raise
    return done


def undo(zk: ZooKeeper, writes: Sequence[ConfigWrite]) -> list[str]:
    """Put back what ``apply`` replaced. Return the paths that somebody else has changed since, left as they are."""
    kept = []
    for write in writes:
        try:
            _write(zk, write)
        except (VersionConflictError, NoNodeError):
            kept.append(write.path)
    return kept


def _write(zk: ZooKeeper, write: ConfigWrite) -> Node:
    """Write it. Return the node as it is then, so that the next write can be bound to it."""
    if write.before is None:
        try:
            zk.create(write.path, write.data, make_parents=True)
        except NodeExistsError as e:
            raise VersionConflictError(f"znode {write.path} was created by somebody else meanwhile; try again") from e
        version = 0
    else:
        version = zk.set(write.path, write.data, write.before.version)
    zk.create(write.notification.path, write.notification.data, sequential=True, make_parents=True)
    return Node(write.data, version, 0, 0, 0, 0)


def _read(zk: ZooKeeper, entities: Sequence[tuple[str, str]]) -> list[ConfigWrite]:
    """Read configs by type and name of their entity, as writes that change nothing."""
    nodes = zk.get_many([ConfigZnode.path(entity_type, name) for entity_type, name in entities])
    reads = [ConfigWrite(*entity, node, {}) for entity, node in zip(entities, nodes, strict=True)]
    return [read.setting(read.stored) for read in reads]
