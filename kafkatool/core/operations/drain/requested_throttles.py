"""Throttles that a run sets by requests and puts back at its end as they were, whoever carries it out then (RSN-23X).

What stood there is saved in the form that runs by ZooKeeper save it in. A broker learns of configs a while after they were
set, so what it tells of itself is no reason to leave out a write, and may be told again a moment later.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.operations.reassignment.throttles import RATES, REPLICAS, SavedThrottle, keys_of
from kafkatool.core.operations.requests.throttles import (
    BROKER,
    OF_BROKER,
    OF_TOPIC,
    TOPIC,
    Change,
    Throttle,
    carry_out,
    config_request,
    read_configs,
)

SETTLE_S = 10.0  # for brokers to learn of configs
SETTLE_PAUSE_S: Final = 0.2
_BROKERS: Final = "brokers"  # the type of an entity; the other one is topics


class Restored(NamedTuple):
    """How throttles were put back: ``changed`` were left as somebody else has made them, ``down`` cannot be asked."""

    changed: tuple[str, ...] = ()
    down: tuple[int, ...] = ()


class NotAsBefore(NamedTuple):
    """The entities whose throttle ``differs`` from what it was, and those that cannot be asked about themselves."""

    differs: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()


def plan(client: ClusterClient, throttle: Throttle, rate: int) -> tuple[SavedThrottle, ...]:
    """Read what is there now of what is to be set, on brokers that are up. Raises NotPermittedError."""
    wanted = {(_BROKERS, str(b)): dict.fromkeys(RATES, str(rate)) for b in throttle.brokers if b in client.brokers}
    wanted |= {("topics", t): dict(zip(REPLICAS, lists, strict=True)) for t, lists in throttle.lists.items()}
    found = _read(client, wanted)
    return tuple(SavedThrottle(*entity, found.get(entity, {}), values) for entity, values in wanted.items())


def setting_changes(client: ClusterClient, saved: Iterable[SavedThrottle]) -> list[Change]:
    """Make the requests that set throttles, rates first; brokers that are down are left out."""
    return _changes(client, [(t, t.set) for t in saved])


def set_again(client: ClusterClient, saved: Sequence[SavedThrottle]) -> None:
    """Set those of a run that is gone on with; topics that were deleted meanwhile are left out.

    Raises NotPermittedError, BrokerAnswerError, BrokerUnreachableError.
    """
    there = _read(client, [(t.entity_type, t.name) for t in saved if t.entity_type != _BROKERS])
    left = [t for t in saved if t.entity_type == _BROKERS or (t.entity_type, t.name) in there]
    carry_out(client, setting_changes(client, left))


def put_back(client: ClusterClient, saved: Sequence[SavedThrottle], *, others_move: bool) -> Restored:
    """Put back what was there before; ``others_move``: others move under the same rates, which stay (ADM-38).

    Lists that somebody else has replaced since are left alone. Raises BrokerAnswerError, BrokerUnreachableError.
    """
    lists = [t for t in saved if t.entity_type != _BROKERS]
    found = _read(client, [(t.entity_type, t.name) for t in lists])
    now = {t.name: found.get((t.entity_type, t.name)) for t in lists}
    changed = {t.name for t in lists if (is_now := now[t.name]) is not None and is_now not in (t.set, t.before)}
    there = [t for t in lists if t.name not in changed and now[t.name] is not None]
    rates = [] if others_move else [t for t in saved if t.entity_type == _BROKERS]
    carry_out(client, _changes(client, [(t, t.before) for t in (*rates, *there)]))
    down = sorted(int(t.name) for t in rates if int(t.name) not in client.brokers)
    return Restored(tuple(f"topic {name}" for name in sorted(changed)), tuple(down))


def find_not_as_before(client: ClusterClient, saved: Sequence[SavedThrottle]) -> NotAsBefore:
    """Look until all is as it was, or for ``SETTLE_S``; a topic that is gone is as it was."""
    down = tuple(f"broker {t.name}" for t in saved if t.entity_type == _BROKERS and int(t.name) not in client.brokers)
    deadline = time.monotonic() + SETTLE_S
    while True:
        found = _read(client, [(t.entity_type, t.name) for t in saved])
        differing = [t for t in saved if (now := found.get((t.entity_type, t.name))) is not None and now != t.before]
        if not differing or time.monotonic() >= deadline:
            return NotAsBefore(tuple(f"{t.entity_type.removesuffix('s')} {t.name}" for t in differing), down)
        time.sleep(SETTLE_PAUSE_S)


def _read(client: ClusterClient, entities: Iterable[tuple[str, str]]) -> dict[tuple[str, str], dict[str, str]]:
    """Read the throttle keys set on topics that exist and on brokers that are up. Raises NotPermittedError."""
    names: dict[str, list[str]] = {_BROKERS: [], "topics": []}
    for kind, name in entities:
        names[kind].append(name)
    found = {
        ("topics", t): _set(entries, OF_TOPIC)
        for t, entries in read_configs(client, [(TOPIC, t) for t in names["topics"]], [*REPLICAS], needed=True).items()
    }
    for name in names[_BROKERS]:
        if (broker := int(name)) in client.brokers:
            entries = read_configs(client, [(BROKER, name)], [*RATES], broker, needed=True).get(name, {})
            found[_BROKERS, name] = _set(entries, OF_BROKER)
    return found


def _set(entries: Mapping[str, tuple[str | None, int]], source: int) -> dict[str, str]:
    return {key: value for key, (value, of) in entries.items() if of == source and value is not None}


def _changes(client: ClusterClient, wanted: Iterable[tuple[SavedThrottle, Mapping[str, str]]]) -> list[Change]:
    """Make the requests after which those entities have just those keys of a throttle."""
    changes: list[Change] = []
    topics = []
    for throttle, values in wanted:
        keys = [(key, values.get(key)) for key in keys_of(throttle.entity_type)]
        if throttle.entity_type != _BROKERS:
            topics.append((TOPIC, throttle.name, keys))
        elif (broker := int(throttle.name)) in client.brokers:
            changes.append((broker, config_request([(BROKER, throttle.name, keys)])))
    return [*changes, (None, config_request(topics))] if topics else changes
