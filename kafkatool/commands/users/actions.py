"""``kt users list``, ``describe`` and ``alter``: SCRAM users, in kafka-configs' words (SEC-93, 94).

By ZooKeeper they need no running broker, so that the users that brokers log in as can be made before the first start.
Salts and keys are never shown.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from kafkatool.commands.shared.bootstrap import Bootstrap
from kafkatool.commands.shared.options import KtCommand, cluster_options, output_option, writing_options
from kafkatool.commands.shared.output import Answer, Output, error_item
from kafkatool.commands.users.open_way import open_way
from kafkatool.commands.users.passwords import read_password
from kafkatool.commands.users.way import Change, Way
from kafkatool.core.errors import RefusedError, UsageError
from kafkatool.core.security.scram import MECHANISMS, MIN_ITERATIONS

if TYPE_CHECKING:
    from kafkatool.core.operations.users import ScramUser

COLUMNS: Final = ("user", "mechanism", "iterations")
_ADDED: Final = re.compile(r"\s*(?P<mechanism>[^=\[\],]+)=\[(?P<settings>[^\[\]]*)\]\s*(?:,|$)")


@click.command("list", cls=KtCommand, examples=("kt users list --zookeeper zk1:2181/kafka",), columns=COLUMNS)
@cluster_options
@output_option
def list_(out: Output, zookeeper: str | None, bootstrap: Bootstrap | None) -> None:
    """Show all users that have SCRAM credentials."""
    with open_way(zookeeper, bootstrap) as way:
        _show(out, way, None)


@click.command(
    cls=KtCommand, examples=("kt users describe --zookeeper zk1:2181/kafka --entity-name alice",), columns=COLUMNS
)
@cluster_options
@click.option("--entity-name", "name", required=True, metavar="USER", help="The user.")
@output_option
def describe(out: Output, zookeeper: str | None, bootstrap: Bootstrap | None, name: str) -> int:
    """Show one user's SCRAM credentials."""
    with open_way(zookeeper, bootstrap) as way:
        if _show(out, way, name):
            return 0
    return out.failed(RefusedError(f"user {name} has no SCRAM credential"), user=name)


@click.command(
    cls=KtCommand,
    examples=(
        "kt users alter --zookeeper zk1:2181/kafka --entity-name alice --add-config 'SCRAM-SHA-256=[iterations=8192]' \\",
        "    --password-file alice.password",
        "kt users alter --zookeeper zk1:2181/kafka --entity-name alice --delete-config SCRAM-SHA-512",
    ),
    columns=COLUMNS,
    notes=(
        "Items are the user's credentials as they are afterwards. Quotas of the user, and credentials that are not named, "
        "stay. Brokers take a change at once; it ends no connection.",
    ),
)
@cluster_options
@click.option("--entity-name", "name", required=True, metavar="USER", help="The user.")
@click.option(
    "--add-config",
    multiple=True,
    metavar="MECHANISM=[iterations=N],…",
    help="SCRAM-SHA-256=[] and SCRAM-SHA-512=[] set a credential, of 4096 iterations unless told.",
)
@click.option("--delete-config", multiple=True, metavar="MECHANISM,…", help="Credentials to delete.")
@click.option("--password-file", metavar="FILE", help="Holds the password; - is stdin. [default: asked for]")
@writing_options
@output_option
def alter(
    out: Output,
    zookeeper: str | None,
    bootstrap: Bootstrap | None,
    name: str,
    add_config: Sequence[str],
    delete_config: Sequence[str],
    password_file: str | None,
    dry_run: bool,
    cluster_id: str | None,
    zk_max_bytes: int,
) -> int:
    """Set and delete SCRAM credentials of a user."""
    from kafkatool.core.operations.users import check_iterations

    if not name:
        raise UsageError("--entity-name is empty")
    added = {mechanism: n for text in add_config for mechanism, n in _added(text)}
    deleted = [_mechanism(part.strip()) for text in delete_config for part in text.split(",")]
    if not added and not deleted:
        raise UsageError("alter needs --add-config or --delete-config")
    if both := sorted(added.keys() & set(deleted)):
        raise UsageError(f"{both[0]} cannot be set and deleted at once")
    try:
        for mechanism, iterations in added.items():
            check_iterations(mechanism, iterations)
        password = read_password(password_file, name) if added else b""
        with open_way(zookeeper, bootstrap, cluster_id=cluster_id, zk_max_bytes=zk_max_bytes) as way:
            change = Change(name, added, deleted)
            if added and not way.is_hidden(name):
                out.note(
                    f"kt: warning: the cluster's znodes are open: who reaches ZooKeeper can read {name}'s credential"
                )
            if dry_run:
                way.dry_run(out, change)
                return 0
            way.alter(change, password)
            out.line(way.altered(name))
            if not out.is_text:
                _show(out, way, name)
    except UsageError:
        raise
    except RefusedError as e:
        return out.failed(e, user=name)
    return 0


def _show(out: Output, way: Way, name: str | None) -> bool:
    """Show a user, or all; tell whether there was any. What cannot be read is told, the others are shown."""
    found = way.read(name)
    unreadable = [user for user in found if user.unreadable]
    for user in unreadable:
        out.note(f"user {user.name} cannot be read: {user.unreadable}")
    shown = [user for user in found if user.iterations]
    if not shown and name is not None:
        return False
    items = [
        {"user": user.name, "mechanism": mechanism, "iterations": iterations}
        for user in shown
        for mechanism, iterations in user.iterations.items()
    ]
    errors = [error_item(RefusedError(user.unreadable or ""), user=user.name) for user in unreadable]
    out.show(Answer(map(_line, shown), items, cluster_id=None if out.is_text else way.read_cluster_id(), errors=errors))
    return True


def _line(user: "ScramUser") -> str:
    configs = ", ".join(f"{mechanism}=iterations={n}" for mechanism, n in user.iterations.items())
    return f"SCRAM credential configs for user-principal '{user.name}' are {configs}"


def _added(text: str) -> list[tuple[str, int]]:
    """Read ``SCRAM-SHA-256=[iterations=8192],SCRAM-SHA-512=[]``. Raises UsageError, which never repeats the text."""
    found: list[tuple[str, int]] = []
    position = 0
    while position < len(text):
        match = _ADDED.match(text, position)
        if match is None:
            raise UsageError("--add-config: expected SCRAM-SHA-256=[iterations=8192],SCRAM-SHA-512=[]")
        found.append((_mechanism(match["mechanism"].strip()), _iterations(match["settings"])))
        position = match.end()
    return found


def _iterations(settings: str) -> int:
    name, _, value = settings.partition("=")
    if not settings.strip():
        return MIN_ITERATIONS
    if name.strip() != "iterations" or not value.strip().isdecimal():
        raise UsageError("--add-config: between the brackets there may be iterations=NUMBER")
    return int(value)


def _mechanism(name: str) -> str:
    if name not in MECHANISMS:
        raise UsageError(f"no SCRAM mechanism {name!r}: there are {', '.join(MECHANISMS)}")
    return name
