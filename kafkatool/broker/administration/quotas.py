"""Quotas of users, clients and addresses, read and changed on behalf of clients (ADM-77, 78; KIP-546).

All that Kafka knows are kept and shown; this broker holds clients to the two byte rates (BRK-22).
"""

import logging
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote

from kafkatool.broker.administration.topics import AdminError
from kafkatool.core.errors import ZnodeFormatError
from kafkatool.core.operations.config_writes import change_config
from kafkatool.core.protocol.messages.describe_client_quotas import ANY, DEFAULT, EXACT
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigZnode

log = logging.getLogger(__name__)

USER, CLIENT, IP = "user", "client-id", "ip"
_KINDS: Final = {USER: "users", CLIENT: "clients", IP: "ips"}  # types of entities, and of their nodes
_WHOLE: Final = frozenset({"producer_byte_rate", "consumer_byte_rate", "connection_creation_rate"})
_KEYS: Final[Mapping[str, frozenset[str]]] = {
    USER: frozenset({"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"}),
    IP: frozenset({"connection_creation_rate"}),
}

Entity = Mapping[str, str | None]
"""Names by type; None: the default of the type."""


class Wanted(NamedTuple):
    """What a description asks of one type."""

    type: str
    match: int
    name: str | None


class Change(NamedTuple):
    """A quota to set. ``value`` None: to remove."""

    key: str
    value: float | None


class QuotaAdmin:
    """The quotas in ZooKeeper. All methods raise AdminError, ZooKeeperError."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper

    def find(self, wanted: Sequence[Wanted], *, strict: bool) -> list[tuple[Entity, Mapping[str, float]]]:
        """Return the entities that have quotas and are of all types wanted, ``strict``: and of no other."""
        _check_filter(wanted)
        found: list[tuple[Entity, Mapping[str, float]]] = []
        for entity, path in self._entities():
            if strict and entity.keys() != {one.type for one in wanted}:
                continue
            if all(_meets(entity, one) for one in wanted) and (quotas := self._quotas(path)):
                found.append((entity, quotas))
        return found

    def change(
        self, entity: Sequence[tuple[str, str | None]], changes: Sequence[Change], *, validate_only: bool
    ) -> None:
        """Change an entity's quotas in one write; whatever else is in its node stays."""
        names = _check_entity(entity)
        _check_changes(names, changes)
        if validate_only:
            return
        path = "/".join(
            ConfigZnode.entity_path(_KINDS[kind], _node_name(names[kind])) for kind in _KINDS if kind in names
        )

        def changed(before: dict[str, str]) -> dict[str, str]:
            for key, value in changes:
                if value is None:
                    before.pop(key, None)
                else:
                    before[key] = str(int(value)) if key in _WHOLE else repr(value)
            return before

        change_config(self._zookeeper, path, changed)

    def _entities(self) -> Iterator[tuple[Entity, str]]:
        for kind, node_type in _KINDS.items():
            for child in sorted(self._zookeeper.children(ConfigZnode.path_of(node_type)) or ()):
                path = ConfigZnode.path_of(f"{node_type}/{child}")
                yield {kind: _entity_name(child)}, path
                if kind is not USER:
                    continue
                for client in sorted(self._zookeeper.children(f"{path}/clients") or ()):
                    yield {USER: _entity_name(child), CLIENT: _entity_name(client)}, f"{path}/clients/{client}"

    def _quotas(self, path: str) -> dict[str, float]:
        """Read what is a quota in a node and a number: what cannot be read must not hide the others."""
        node = self._zookeeper.get(path)
        found: dict[str, float] = {}
        try:
            config = ConfigZnode.decode(path, node.data) if node is not None else {}
        except ZnodeFormatError as e:
            log.warning("%s; it counts as having no quotas", e)
            return {}
        for key in sorted(config.keys() & (_KEYS[USER] | _KEYS[IP])):
            try:
                found[key] = float(config[key])
            except ValueError:
                log.warning("%s of %s is no number and is not shown", key, path)
        return found


def _entity_name(child: str) -> str | None:
    return None if child == ConfigZnode.DEFAULT else unquote(child)


def _node_name(name: str | None) -> str:
    return ConfigZnode.DEFAULT if name is None else name


def _meets(entity: Entity, wanted: Wanted) -> bool:
    if wanted.type not in entity:
        return False
    name = entity[wanted.type]
    return wanted.match == ANY or (name is None if wanted.match == DEFAULT else name == wanted.name)


def _check_types(types: Sequence[str]) -> None:
    if "" in types:
        raise AdminError(ErrorCode.INVALID_REQUEST, "Unexpected empty entity type")
    if unknown := sorted(set(types) - _KINDS.keys()):
        raise AdminError(ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{unknown[0]}' not supported")
    if twice := [kind for kind, count in Counter(types).items() if count > 1]:
        raise AdminError(ErrorCode.INVALID_REQUEST, f"Duplicate {twice[0]} entity type")
    if IP in types and len(types) > 1:
        raise AdminError(ErrorCode.INVALID_REQUEST, "An ip entity should not be used with user or client-id")


def _check_filter(wanted: Sequence[Wanted]) -> None:
    _check_types([one.type for one in wanted])
    for one in wanted:
        if one.match not in (EXACT, DEFAULT, ANY) or (one.match == EXACT) != (one.name is not None):
            raise AdminError(ErrorCode.INVALID_REQUEST, f"no such match of {one.type}: {one.match} {one.name!r}")


def _check_entity(entity: Sequence[tuple[str, str | None]]) -> dict[str, str | None]:
    if not entity:
        raise AdminError(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    _check_types([kind for kind, _ in entity])
    for kind, name in entity:
        if name == "":
            raise AdminError(ErrorCode.INVALID_REQUEST, f"Empty {kind} not supported")
        if kind == IP and name is not None and "/" in name:
            raise AdminError(ErrorCode.INVALID_REQUEST, f"{name} is not an address")
    return dict(entity)


def _check_changes(names: Mapping[str, str | None], changes: Sequence[Change]) -> None:
    known = _KEYS[IP if IP in names else USER]
    if twice := [key for key, count in Counter(change.key for change in changes).items() if count > 1]:
        raise AdminError(ErrorCode.INVALID_REQUEST, f"quota {twice[0]} is listed twice")
    for key, value in changes:
        if key not in known:
            raise AdminError(ErrorCode.INVALID_REQUEST, f"Invalid configuration key {key}")
        if value is None:
            continue
        if not math.isfinite(value) or value <= 0:
            raise AdminError(ErrorCode.INVALID_REQUEST, f"quota {key} must be above 0, not {value}")
        if key in _WHOLE and value != int(value):
            raise AdminError(ErrorCode.INVALID_REQUEST, f"Configuration {key} must be a whole number, not {value}")
