"""Who kt is, to ZooKeeper and to brokers: flags that name files, and what is read from them (SEC-1, SEC-2, SEC-33).

No flag, variable or setting holds a secret; each names a file. What is chosen is kept with the run, so that a command
need not carry it from its flags to its session.
"""

import os
import re
import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from kafkatool import __version__
from kafkatool.commands.shared.printable import say
from kafkatool.commands.shared.settings import SettingOption
from kafkatool.core.errors import ConfigError, RefusedError, UsageError

if TYPE_CHECKING:
    from kafkatool.core.client.access import BrokerAccess
    from kafkatool.core.client.connections import Connections
    from kafkatool.core.security.client_security import ClientSecurity
    from kafkatool.core.security.zookeeper_security import ZooKeeperSecurity
    from kafkatool.core.zookeeper.session import ZooKeeper

F = TypeVar("F", bound=Callable[..., Any])

KAFKA_OPTS: Final = "KAFKA_OPTS"
_CHOSEN: Final = "kafkatool.credentials."  # where click keeps what the flags say
_OF_ZOOKEEPER: Final = ("zk-auth-file", "zk-tls-config-file", "zk-set-acl")
_OF_BROKERS: Final = ("command-config", "listener")
_FOR_ACLS: Final = "for-acls"
_SECRET = re.compile(r"password\s*=|SCRAM-SHA-\d+\s*=\s*\[(?!\s*(iterations\s*=\s*\d+)?\s*\])", re.IGNORECASE)


def refuse_secrets(arguments: Sequence[str]) -> None:
    """Raise UsageError where an argument holds a password; the text does not repeat it (SEC-2)."""
    if any(_SECRET.search(argument) for argument in arguments):
        raise UsageError(
            "a password on the command line is seen by every user of this machine: use --password-file FILE, or - for "
            "standard input"
        )


def _kept(name: str, **attributes: Any) -> Callable[[F], F]:
    """Make a flag whose value is kept with the run; the command's function does not get it."""

    def keep(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        ctx.meta[_CHOSEN + name] = value

    return click.option(f"--{name}", cls=SettingOption, expose_value=False, callback=keep, **attributes)


zk_auth_file_option = _kept(
    "zk-auth-file",
    metavar="FILE",
    help="Login to ZooKeeper: a JAAS file, or properties. [default: KAFKA_OPTS; env KAFKATOOL_ZK_AUTH_FILE]",
)
zk_tls_config_file_option = _kept(
    "zk-tls-config-file",
    metavar="FILE",
    help="TLS to ZooKeeper: properties zookeeper.ssl.… [env KAFKATOOL_ZK_TLS_CONFIG_FILE]",
)
zk_set_acl_option = _kept(
    "zk-set-acl",
    type=click.Choice(("auto", "true", "false")),
    fallback="auto",
    help="New znodes are for their owners to change: as the cluster's are, always, never. [default: auto]",
)
broker_command_config_option = _kept(
    "command-config",
    metavar="FILE",
    help="Properties of a Kafka client, for connections to brokers. [env KAFKATOOL_COMMAND_CONFIG]",
)
listener_option = _kept(
    "listener",
    metavar="NAME",
    help="Brokers' listener to connect to. [default: the only one of the protocol of --command-config]",
)


def _chosen(name: str) -> str | None:
    ctx = click.get_current_context(silent=True)
    value: str | None = None if ctx is None else ctx.meta.get(_CHOSEN + name)
    return value


def login_flags(*, by_zookeeper: bool) -> str:
    """Write the flags that name logins and listeners, for a command that a person is told to type."""
    names = (*(_OF_ZOOKEEPER if by_zookeeper else ()), *_OF_BROKERS)
    given = {name: value for name in names if (value := _chosen(name)) is not None}
    if given.get("zk-set-acl") == "auto":
        del given["zk-set-acl"]
    return "".join(f" --{name} {shlex.quote(value)}" for name, value in given.items())


def _once(key: str, make: Callable[[], Any]) -> Any:
    """Return what was made in this run, else make it: a file may be a pipe, which is read once."""
    ctx = click.get_current_context(silent=True)
    if ctx is None:
        return make()
    if _CHOSEN + key not in ctx.meta:
        ctx.meta[_CHOSEN + key] = make()
    return ctx.meta[_CHOSEN + key]


def _warn(notes: Sequence[str]) -> None:
    for note in dict.fromkeys(notes):
        say(f"kt: warning: {note}", err=True)


def _log(text: str, *about: object) -> None:
    import logging  # who names no credentials starts without

    logging.getLogger(__name__).debug(text, *about)


def _once_warning() -> Callable[[str], None]:
    """Return what warns the first time it is called, whichever thread does, and then no more."""
    told = threading.Lock()

    def warn(note: str) -> None:
        if told.acquire(blocking=False):  # for good
            _warn((note,))

    return warn


# --- ZooKeeper -------------------------------------------------------------------------------------------------------


def go_by_authorizers_properties(ctx: click.Context) -> None:
    """Have ``authorizer.zookeeper.ssl.*`` of --zk-tls-config-file go before the others in this run: it is about ACLs."""
    ctx.meta[_CHOSEN + _FOR_ACLS] = True


def zookeeper_security() -> "ZooKeeperSecurity":
    """Read the login and TLS to ZooKeeper that flags, environment or settings name. Raises UsageError."""
    found: ZooKeeperSecurity = _once("zookeeper", _read_zookeeper_security)
    return found


def _read_zookeeper_security() -> "ZooKeeperSecurity":
    from kafkatool.core.security.zookeeper_security import read_zookeeper_security

    try:
        security = read_zookeeper_security(
            auth_file=_chosen("zk-auth-file"),
            tls_file=_chosen("zk-tls-config-file"),
            java_options=os.environ.get(KAFKA_OPTS, ""),
            for_acls=_chosen(_FOR_ACLS) is not None,
        )
    except ConfigError as e:
        raise UsageError(str(e)) from e
    _warn(security.notes)
    for line in security.described:
        _log("zookeeper: %s", line)
    return security


def choose_node_acls(zk: "ZooKeeper") -> None:
    """Have the session make its nodes as --zk-set-acl says; a command without that flag makes none (SEC-29, SEC-30)."""
    from kafkatool.core.errors import NoNodeError, NoPermissionError
    from kafkatool.core.zookeeper.acls import OWN_NODES, acls_like
    from kafkatool.core.zookeeper.znodes import TopicsZnode

    how = _chosen("zk-set-acl")
    if how == "true":
        if not zk.security.has_identity:
            raise RefusedError("--zk-set-acl true needs a login to ZooKeeper: give --zk-auth-file")
        zk.make_nodes_as(OWN_NODES)
    elif how == "auto":
        try:
            zk.make_nodes_as(acls_like(zk.acls(TopicsZnode.PATH)))
        except NoNodeError:
            pass  # no cluster: nothing will be made
        except NoPermissionError:
            if zk.security.has_identity:
                zk.make_nodes_as(OWN_NODES)


# --- brokers ---------------------------------------------------------------------------------------------------------


def command_config() -> Path | None:
    """Return the file that --command-config names."""
    file = _chosen("command-config")
    return None if file is None else Path(file)


def client_properties(file: Path) -> "tuple[Mapping[str, str], ClientSecurity]":
    """Read --command-config: all of it, and what it says of security. Raises UsageError."""
    from kafkatool.core.client.java_keys import mistakes, unheeded
    from kafkatool.core.java_properties import parse_properties
    from kafkatool.core.security.client_security import read_client_security
    from kafkatool.core.security.credential_files import read_credential_file
    from kafkatool.core.security.zookeeper_security import login_file_of, read_client_section

    def read() -> "tuple[Mapping[str, str], ClientSecurity]":
        try:
            found = read_credential_file(file, encoding="latin-1")  # as Java reads properties
            properties = parse_properties(found.text)
            section = None
            if "sasl.jaas.config" not in properties and (login := login_file_of(os.environ.get(KAFKA_OPTS, ""))):
                section = read_client_section(login, "KafkaClient")
            security = read_client_security(properties, str(file), section=section)
        except ConfigError as e:
            raise UsageError(f"--command-config: {e}") from e
        secret = any("password" in key or key.startswith("sasl.jaas") or key.endswith(".key") for key in properties)
        wrong = [f"{file}: {mistake}" for mistake in (*mistakes(properties), unheeded(properties)) if mistake]
        _warn((*(found.notes if secret else ()), *security.notes, *wrong))
        security.warn = _once_warning()
        _log("brokers: %s, from %s", security.identity, file)
        return properties, security

    made: tuple[Mapping[str, str], ClientSecurity] = _once(f"brokers {file}", read)
    return made


def client_id_of(command: str) -> str:
    """Return what a command, by its path from ``kt`` on, calls itself to brokers unless it is told another name."""
    return "-".join(["kt", *command.split()[1:2]])


def broker_access() -> "BrokerAccess":
    """Return how brokers are reached, by --command-config and --listener. Raises UsageError."""
    from kafkatool.core.client.access import BrokerAccess
    from kafkatool.core.security.client_security import ClientSecurity

    file, listener = command_config(), _chosen("listener")
    properties, security = ({}, ClientSecurity()) if file is None else client_properties(file)
    context = click.get_current_context(silent=True)
    own = client_id_of("" if context is None else context.command_path)
    return BrokerAccess(security, listener, properties.get("client.id") or own, __version__)


def broker_connections() -> "Connections":
    """Return the connections to brokers of this run of a command, which end with it. Raises UsageError."""
    from kafkatool.core.client.connections import Connections

    def make() -> "Connections":
        connections = Connections(broker_access())
        if (context := click.get_current_context(silent=True)) is not None:
            context.call_on_close(connections.close)
        return connections

    found: Connections = _once("connections", make)
    return found
