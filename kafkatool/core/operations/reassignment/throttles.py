"""Replication throttles of a reassignment: which replicas, which rate, and how they are removed (RSN-13, 14, 23X, 24X).

They live in the configs of the plan's topics and of brokers. Every node is written on the version it was read at, and
remembered, so that what stood there before can be put back as long as nobody else wrote since. The rates are of brokers,
so two plans share them: the lists on the other plan's topics tell whether it still needs them.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from kafkatool.core.errors import NoNodeError, VersionConflictError, ZooKeeperError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.config_writes import ConfigWrite, read_configs
from kafkatool.core.planner.plan_files import Moves
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigZnode, TopicZnode

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
REPLICAS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
MIN_SAFE_RATE: Final = 1024  # bytes/s; below it a move may never end (RSN-24X)
CUT_SHORT: Final = (ZooKeeperError, KeyboardInterrupt, RuntimeError)
"""What ends a series of writes before its end. The last may stand for an interruption that came in a lock."""
_OF_A_MOVE: Final = re.compile(r"\d+:\d+(,\d+:\d+)*")  # a list as plans have it; * is an administrator's


# --- setting and removing --------------------------------------------------------------------------------------


def plan_rates(zk: ZooKeeper, brokers: Iterable[int], rate: int) -> list[ConfigWrite]:
    """Plan to set both rates of those brokers to ``rate`` bytes/s, other keys kept."""
    reads = read_configs(zk, [("brokers", str(b)) for b in sorted(set(brokers))])
    return [read.setting(dict.fromkeys(RATES, str(rate))) for read in reads]


def plan_replicas(
    zk: ZooKeeper, moves: Moves, current: Moves, others: Collection[TopicPartition] = ()
) -> list[ConfigWrite]:
    """Plan the replica lists of the plan's topics; both empty where no partition gains a replica (RSN-14).

    What stands there of ``others`` stays: they are being moved under it.
    """
    topics = sorted({p.topic for p in moves})
    lists: dict[str, tuple[list[str], list[str]]] = {t: ([], []) for t in topics}
    for partition, replicas in moves.items():
        gained = [b for b in replicas if b not in current[partition]]
        if gained:
            leaders, followers = lists[partition.topic]
            leaders += [f"{partition.partition}:{b}" for b in current[partition]]
            followers += [f"{partition.partition}:{b}" for b in gained]
    reads = read_configs(zk, [("topics", t) for t in topics])
    for read in reads:
        staying = {str(p.partition) for p in others if p.topic == read.name}
        for key, own in zip(REPLICAS, lists[read.name], strict=True):
            own += [entry for entry in read.config.get(key, "").split(",") if entry.partition(":")[0] in staying]
    return [
        read.setting({key: ",".join(own) for key, own in zip(REPLICAS, lists[read.name], strict=True)})
        for read in reads
    ]


def throttled_brokers(moves: Moves, topics: Mapping[str, Mapping[int, Sequence[int]]]) -> set[int]:
    """Return the brokers in the plan or in any current assignment of its topics (RSN-14)."""
    named = {b for replicas in moves.values() for b in replicas}
    return named.union(*(replicas for assignment in topics.values() for replicas in assignment.values()))


def plan_removal(zk: ZooKeeper, topics: Iterable[str]) -> list[ConfigWrite]:
    """Plan to take the rates off every broker, registered or not, and the lists off those topics (RSN-13, RSN-24X)."""
    reads = read_configs(zk, [*_broker_entities(zk), *(("topics", t) for t in sorted(set(topics)))])
    return [read.dropping(keys_of(read.entity_type)) for read in reads if _throttle(read.entity_type, read.config)]


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


def merged(earlier: Iterable[SavedThrottle], later: Iterable[SavedThrottle]) -> tuple[SavedThrottle, ...]:
    """Return all of them, as set by the later ones; what stood there before the earlier ones is what comes back."""
    found = {(t.entity_type, t.name): t for t in earlier}
    for throttle in later:
        entity = throttle.entity_type, throttle.name
        found[entity] = replace(found[entity], set=throttle.set) if entity in found else throttle
    return tuple(found.values())


def set_again(zk: ZooKeeper, throttles: Iterable[SavedThrottle]) -> None:
    """See that every throttle of a resumed run is set; other keys, and what somebody else has set since, are kept."""
    for throttle in throttles:
        _replace(zk, throttle, throttle.before, throttle.set)


def listed_topics(zk: ZooKeeper) -> list[str]:
    """Return the topics on which the throttle of some plan stands: that of one under way, or not verified yet."""
    topics = zk.children(ConfigZnode.path_of("topics")) or []
    reads = read_configs(zk, [("topics", t) for t in sorted(topics)])
    return [r.name for r in reads if any(_OF_A_MOVE.fullmatch(v) for v in _throttle("topics", r.config).values())]


def rates_by_broker(zk: ZooKeeper, keys: Collection[str] = RATES) -> dict[int, dict[str, str]]:
    """Return the rates that stand on brokers, registered or not; those without are left out."""
    found = {int(read.name): read.config for read in read_configs(zk, _broker_entities(zk))}
    rates = {broker: {key: config[key] for key in keys if key in config} for broker, config in found.items()}
    return {broker: set_there for broker, set_there in rates.items() if set_there}


def find_unlisted(zk: ZooKeeper, topics: Iterable[str]) -> list[str]:
    """Return those of the topics that have no list of throttled replicas, not even an empty one: rates do not slow them."""
    reads = read_configs(zk, [("topics", t) for t in sorted(topics)])
    return [r.name for r in reads if not _throttle("topics", r.config)]


class Restored(NamedTuple):
    """How throttles were put back: ``changed`` are the paths that somebody else has changed since, left as they are.

    ``rates_stay``: those of brokers too, as another plan goes on under them, whose end takes them off.
    """

    changed: tuple[str, ...]
    rates_stay: bool


def restore(
    zk: ZooKeeper, throttles: Iterable[SavedThrottle], earlier: Collection[str], others: Collection[TopicPartition]
) -> Restored:
    """Put back what stood there before; ``others``: partitions that other plans are moving.

    Rates are put back whatever they are now: changing them is how a running reassignment is sped up (RSN-10). Those found
    at the start with lists on the topics ``earlier`` were another plan's: they go if that has ended meanwhile.
    """
    rates, lists = _divided(throttles)
    changed = [t.name for t in lists if not _replace(zk, t, t.set, t.before)]
    listed = frozenset(listed_topics(zk) if rates else ())
    ending = _ending(rates, frozenset(t.name for t in lists), listed, earlier, others, changed)
    paths = [ConfigZnode.path("topics", name) for name in changed]
    for rate in ending or ():
        if not _replace(zk, rate, rate.set, rate.before, always=True):
            paths.append(ConfigZnode.path("brokers", rate.name))
    return Restored(tuple(paths), rates_stay=ending is None)


def _divided(throttles: Iterable[SavedThrottle]) -> tuple[list[SavedThrottle], list[SavedThrottle]]:
    """Return the brokers' rates and the topics' lists."""
    every = list(throttles)
    return [t for t in every if t.entity_type == "brokers"], [t for t in every if t.entity_type != "brokers"]


def _ending(
    rates: Sequence[SavedThrottle],
    own: frozenset[str],
    listed: frozenset[str],
    earlier: Collection[str],
    others: Collection[TopicPartition],
    changed: Collection[str] = (),
) -> list[SavedThrottle] | None:
    """Return the rates with what is to stand there, once the run's lists are back; None: they stay as they are.

    ``own``: topics whose lists the run has set; ``listed``: those that have lists then; ``changed``: by somebody else.
    """
    if others and (listed - own - set(earlier) or listed.intersection(changed)):
        return None
    ended = bool(earlier) and not listed.intersection(earlier) - (own - {p.topic for p in others})
    return [replace(rate, before={}) if ended else rate for rate in rates]


def not_restored(zk: ZooKeeper, throttles: Iterable[SavedThrottle]) -> list[str]:
    """Return the config znodes whose throttle is not what it was before; that of a topic that is gone is."""
    return [read.path for _, read in _find_differing(zk, throttles)]


def restore_lists(zk: ZooKeeper, throttles: Iterable[SavedThrottle]) -> None:
    """Put back the lists that stood there before, but for those that somebody else has changed since."""
    for throttle in throttles:
        if throttle.entity_type != "brokers":
            _replace(zk, throttle, throttle.set, throttle.before)


def plan_restoration(
    zk: ZooKeeper, throttles: Iterable[SavedThrottle], earlier: Collection[str], others: Collection[TopicPartition]
) -> list[ConfigWrite]:
    """Plan what ``restore`` would write, as if nobody else had changed those lists since: for showing it (COM-6X)."""
    rates, lists = _divided(throttles)
    own = frozenset(t.name for t in lists)
    listed = (frozenset(listed_topics(zk)) - own).union(t.name for t in lists if t.before)
    back = [*lists, *(_ending(rates, own, listed, earlier, others) or ())]
    return [read.dropping(keys_of(read.entity_type)).setting(t.before) for t, read in _find_differing(zk, back)]


def _find_differing(zk: ZooKeeper, throttles: Iterable[SavedThrottle]) -> list[tuple[SavedThrottle, ConfigWrite]]:
    """Return those that are not what they were before, each with its config as it is now."""
    saved = list(throttles)
    reads = read_configs(zk, [(t.entity_type, t.name) for t in saved])
    differing = [(t, r) for t, r in zip(saved, reads, strict=True) if _throttle(r.entity_type, r.config) != t.before]
    return [(t, read) for t, read in differing if not _is_of_deleted_topic(zk, read)]


def _is_of_deleted_topic(zk: ZooKeeper, read: ConfigWrite) -> bool:
    """Tell whether the config went with its topic: made anew, it would be that of the next topic of this name."""
    return read.entity_type == "topics" and read.before is None and zk.get(TopicZnode.path(read.name)) is None


def _replace(
    zk: ZooKeeper, throttle: SavedThrottle, old: Mapping[str, str], new: Mapping[str, str], *, always: bool = False
) -> bool:
    """Replace the keys ``old`` by ``new``. Return whether the entity has those now; it may have had them already.

    ``always``: they may have been something else. Of a topic that was deleted meanwhile nothing is wanted any more.
    """
    (read,) = read_configs(zk, [(throttle.entity_type, throttle.name)])
    found = _throttle(read.entity_type, read.config)
    if found == new:
        if read.before is not None:  # whoever wrote it may have been killed before it told the brokers
            read.notify(zk)
        return True
    if _is_of_deleted_topic(zk, read):
        return True
    if found != old and not always:
        return False
    try:
        read.dropping(keys_of(read.entity_type)).setting(new).write(zk)
    except (VersionConflictError, NoNodeError):
        return False
    return True


# --- writing configs -------------------------------------------------------------------------------------------


def apply(zk: ZooKeeper, writes: Sequence[ConfigWrite]) -> list[ConfigWrite]:
    """Write each config and its notification. Return what undoes them.

    Raises VersionConflictError and other ZooKeeperErrors, after undoing what it had written, as after an interruption.
    """
    done: list[ConfigWrite] = []
    begun: ConfigWrite | None = None
    try:
        for write in writes:
            begun = write
            done.append(replace(write, before=write.write(zk), config=write.stored))
    except CUT_SHORT as e:
        with suppress(ZooKeeperError):
            if begun is not None and not isinstance(e, VersionConflictError | NoNodeError):
                _undo_unanswered(zk, begun)
            undo(zk, done)
        raise
    return done


def _undo_unanswered(zk: ZooKeeper, write: ConfigWrite) -> None:
    """Put back what stood there before a write of which it is not known whether it was made."""
    (read,) = read_configs(zk, [(write.entity_type, write.name)])
    if read.config == write.config != write.stored:
        undo(zk, [replace(read, config=write.stored)])


def undo(zk: ZooKeeper, writes: Sequence[ConfigWrite]) -> None:
    """Put back what ``apply`` replaced, but for what somebody else has changed since."""
    for write in writes:
        with suppress(VersionConflictError, NoNodeError):
            write.write(zk)


def _broker_entities(zk: ZooKeeper) -> list[tuple[str, str]]:
    # The children of /config/brokers cover brokers that are down; <default> is not a throttle of ours.
    names = zk.children(ConfigZnode.path_of("brokers")) or []
    return [("brokers", name) for name in sorted((n for n in names if n.isdecimal()), key=int)]


def keys_of(entity_type: str) -> tuple[str, str]:
    """Return the keys of a throttle on entities of that type."""
    return RATES if entity_type == "brokers" else REPLICAS


def _throttle(entity_type: str, config: Mapping[str, str]) -> dict[str, str]:
    return {k: config[k] for k in keys_of(entity_type) if k in config}
