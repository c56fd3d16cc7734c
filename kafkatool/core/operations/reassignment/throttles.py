"""Replication throttles of a reassignment: which replicas, which rate, and how they are removed (RSN-13, 14, 23X, 24X).

They live in the configs of the plan's topics and of brokers. Every node is written on the version it was read at, and
remembered, so that what stood there before can be put back as long as nobody else wrote since.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from kafkatool.core.errors import NoNodeError, VersionConflictError, ZooKeeperError
from kafkatool.core.operations.config_writes import ConfigWrite, read_configs
from kafkatool.core.planner.plan_files import Moves
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigZnode

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
REPLICAS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
MIN_SAFE_RATE: Final = 1024  # bytes/s; below it a move may never end (RSN-24X)


# --- setting and removing --------------------------------------------------------------------------------------


def plan_rates(zk: ZooKeeper, brokers: Iterable[int], rate: int) -> list[ConfigWrite]:
    """Plan to set both rates of those brokers to ``rate`` bytes/s, other keys kept."""
    reads = read_configs(zk, [("brokers", str(b)) for b in sorted(set(brokers))])
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
        for read in read_configs(zk, [("topics", t) for t in topics])
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
    reads = read_configs(zk, [("brokers", b) for b in brokers] + [("topics", t) for t in sorted(set(topics))])
    return [read.dropping(_keys(read.entity_type)) for read in reads if _throttle(read.entity_type, read.config)]


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
    return [
        SavedThrottle(w.entity_type, w.name, _throttle(w.entity_type, w.stored), _throttle(w.entity_type, w.config))
        for w in writes
    ]


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
    (read,) = read_configs(zk, [(throttle.entity_type, throttle.name)])
    found = _throttle(read.entity_type, read.config)
    if found == new:
        if read.before is not None:  # whoever wrote it may have been killed before it told the brokers
            read.notify(zk)
        return True
    if found != old and not (always and throttle.entity_type == "brokers"):
        return False
    try:
        read.dropping(_keys(read.entity_type)).setting(new).write(zk)
    except (VersionConflictError, NoNodeError):
        return False
    return True


# --- writing configs -------------------------------------------------------------------------------------------


def apply(zk: ZooKeeper, writes: Sequence[ConfigWrite]) -> list[ConfigWrite]:
    """Write each config and its notification. Return what undoes them.

    Raises VersionConflictError and other ZooKeeperErrors, after undoing what it had written.
    """
    done: list[ConfigWrite] = []
    try:
        for write in writes:
            before = write.stored
            done.append(replace(write, before=write.write(zk), config=before))
    except ZooKeeperError:
        undo(zk, done)
        raise
    return done


def undo(zk: ZooKeeper, writes: Sequence[ConfigWrite]) -> None:
    """Put back what ``apply`` replaced, but for what somebody else has changed since."""
    for write in writes:
        with suppress(VersionConflictError, NoNodeError):
            write.write(zk)


def _keys(entity_type: str) -> tuple[str, str]:
    return RATES if entity_type == "brokers" else REPLICAS


def _throttle(entity_type: str, config: Mapping[str, str]) -> dict[str, str]:
    return {k: config[k] for k in _keys(entity_type) if k in config}
