"""SCRAM users in ZooKeeper: who has which credentials, and changing them (SEC-90, 93, 94).

Quotas, and the other mechanism, in a user's node stay as they are. What is read of a credential is its iterations alone.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from kafkatool.core.errors import NoPermissionError, RefusedError, ZnodeFormatError
from kafkatool.core.operations.config_writes import change_config
from kafkatool.core.security.scram import MECHANISMS, MIN_ITERATIONS, Credential, ScramError, make_salt
from kafkatool.core.zookeeper.session import Node, ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigZnode

USERS: Final = "users"
MAX_ITERATIONS: Final = 16_384
_AT_ONCE: Final = 256  # users asked for: a question under way takes some kilobytes, and a request may name 200,000


@dataclass(frozen=True, slots=True)
class ScramUser:
    """A user and the iterations of his credentials by mechanism. ``unreadable``: why they are not known."""

    name: str
    iterations: Mapping[str, int]
    unreadable: str | None = None


class NoSuchCredentialError(RefusedError):
    """A credential that is to be deleted is not there."""


def read_users(zk: ZooKeeper, names: Collection[str] | None = None) -> list[ScramUser]:
    """Read the users that have credentials, sorted; or those named, who may have none."""
    if names is None:
        children = zk.children(ConfigZnode.path_of(USERS)) or ()
        names = sorted(unquote(child) for child in children if child != ConfigZnode.DEFAULT)
        return [user for user in _users(zk, names) if user.iterations or user.unreadable]
    return _users(zk, sorted(set(names)))


def _users(zk: ZooKeeper, names: Sequence[str]) -> list[ScramUser]:
    found = []
    for start in range(0, len(names), _AT_ONCE):
        some = names[start : start + _AT_ONCE]
        paths: dict[str, str] = {}
        for name in some:
            with suppress(RefusedError):  # whom nobody can have made
                paths[name] = ConfigZnode.path(USERS, name)
        nodes = dict(zip(paths, zk.get_where_permitted(list(paths.values())), strict=True))
        found += [_user(zk, name, paths.get(name, ""), nodes.get(name)) for name in some]
    return found


def _user(zk: ZooKeeper, name: str, path: str, node: Node | NoPermissionError | None) -> ScramUser:
    try:
        if isinstance(node, NoPermissionError):
            node = zk.get(path)  # says whose it is
        config = ConfigZnode.decode(path, node.data) if node is not None else {}
        return ScramUser(name, {m: Credential.decode(config[m]).iterations for m in MECHANISMS if m in config})
    except (NoPermissionError, ZnodeFormatError, ScramError) as e:
        return ScramUser(name, {}, str(e))


def check_iterations(mechanism: str, iterations: int) -> None:
    """Raise RefusedError, in Kafka's words, for what brokers would not take, or take too long for."""
    if iterations < MIN_ITERATIONS:
        raise RefusedError(
            f"Iterations {iterations} is less than the minimum {MIN_ITERATIONS} required for {mechanism}"
        )
    if iterations > MAX_ITERATIONS:
        raise RefusedError(f"Iterations {iterations} is more than the maximum {MAX_ITERATIONS} allowed for {mechanism}")


def make_credential(mechanism: str, password: bytes, iterations: int = MIN_ITERATIONS) -> Credential:
    """Make a credential with a salt of its own. Raises RefusedError."""
    check_iterations(mechanism, iterations)
    return MECHANISMS[mechanism].credential(password, salt=make_salt(), iterations=iterations)


def check_deleted(config: Mapping[str, str], deleted: Collection[str]) -> None:
    """Raise NoSuchCredentialError, in Kafka's words, for what is to be deleted and not there."""
    if absent := [mechanism for mechanism in deleted if mechanism not in config]:
        raise NoSuchCredentialError(f"Invalid config(s): {','.join(absent)}")


def alter_user(zk: ZooKeeper, name: str, credentials: Mapping[str, Credential], deleted: Collection[str] = ()) -> None:
    """Set and delete credentials of a user, all in one write, and tell the brokers. Raises NoSuchCredentialError."""
    entity = ConfigZnode.entity_path(USERS, name)
    change_config(zk, entity, lambda before: _altered(before, credentials, deleted))


def _altered(config: dict[str, str], credentials: Mapping[str, Credential], deleted: Collection[str]) -> dict[str, str]:
    check_deleted(config, deleted)
    for mechanism in deleted:
        del config[mechanism]
    return config | {mechanism: credential.encode() for mechanism, credential in credentials.items()}
