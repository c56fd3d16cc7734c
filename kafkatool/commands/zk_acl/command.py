"""``kt zk-acl``: close a cluster's znodes to others, open them, or say which are not as they should be (SEC-31)."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import click

from kafkatool.commands.shared.options import (
    KtCommand,
    cluster_id_option,
    connect,
    dry_run_option,
    output_option,
    read_cluster_id,
    zookeeper_option,
)
from kafkatool.commands.shared.output import Answer, Item, Output, error_item
from kafkatool.core.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from kafkatool.core.operations.znode_acls import Migration
    from kafkatool.core.zookeeper.acls import Acl
    from kafkatool.core.zookeeper.session import ZooKeeper

COLUMNS: Final = ("path", "acl", "expected")


@click.command(
    "zk-acl",
    cls=KtCommand,
    examples=(
        "kt zk-acl --zookeeper zk1:2181/kafka --check",
        "kt zk-acl --zookeeper zk1:2181/kafka --zk-auth-file kafka.jaas --zookeeper.acl secure --dry-run",
        "kt zk-acl --zookeeper zk1:2181/kafka --zk-auth-file kafka.jaas --zookeeper.acl secure",
    ),
    columns=COLUMNS,
    notes=(
        "An item for each node that was changed, or with --check for each that is not as it should be: acl is what it has "
        "(or had), null where it may not be read, expected what belongs there. Nodes below /config/users, /config/brokers "
        "and /delegation_token/tokens are for their owners alone, all others are for all to read; /consumers stays as it "
        "is.",
        "Owner is the identity that kt is logged in as, which must be the brokers'. Only what is not right yet is written, "
        "so that it can be run again. Exit code 1: with --check some node is not right; else some could not be changed.",
        "Where no cluster is, as when the chroot is forgotten, nothing is looked at or written: exit code 1. With --force "
        "what there is of Kafka's paths is, the root not.",
    ),
)
@zookeeper_option
@click.option("--zookeeper.acl", "acl", type=click.Choice(("secure", "unsecure")), help="What to make of all znodes.")
@click.option(
    "--enable.path.check", "path_check", is_flag=True, help="Change nothing where one of the paths is missing."
)
@click.option("--check", is_flag=True, help="List the znodes whose ACL is not what it should be; change nothing.")
@click.option("--force", is_flag=True, help="Although brokers are somebody else's, or there is no cluster.")
@dry_run_option
@cluster_id_option
@output_option
def zk_acl(
    out: Output,
    zookeeper: str,
    acl: str | None,
    path_check: bool,
    check: bool,
    force: bool,
    dry_run: bool,
    cluster_id: str | None,
) -> int:
    """Close a cluster's znodes to others, or open them."""
    from kafkatool.core.operations import znode_acls

    if check == (acl is not None):
        raise UsageError("give --zookeeper.acl secure, --zookeeper.acl unsecure, or --check")
    with connect(zookeeper, cluster_id=cluster_id, cluster_needed=not force) as zk:
        if check:
            found = znode_acls.check(zk)
            _show(out, zk, found, (f"{i['path']} {i['acl']} should be {i['expected']}" for i in _items(found)))
            out.note(f"{len(found.changed)} of {found.nodes} znodes are not as they should be")
            return 1 if found.changed or found.refused else 0
        if not zk.security.has_identity:
            raise RefusedError("kt zk-acl needs a login to ZooKeeper: give --zk-auth-file")
        if missing := znode_acls.missing_roots(zk):
            _tell_missing(out, missing, ends=path_check)
            if path_check:
                return 1 if out.is_text else out.failed(RefusedError(f"missing: {', '.join(missing)}"))
        if acl == "secure" and not force:
            znode_acls.check_owner(zk)
        done = znode_acls.migrate(zk, secure=acl == "secure", dry_run=dry_run)
        if dry_run:
            lines = [f"set acl {item['path']} {item['expected']}" for item in _items(done)]
            planned = [{"operation": "set acl", "path": i["path"], "value": i["expected"]} for i in _items(done)]
            errors = [error_item(e, path=e.path) for e in done.refused]
            out.show(Answer(lines, planned, ("operation", "path", "value"), read_cluster_id(zk), errors))
            out.note("dry run: nothing was written")
        else:
            _show(out, zk, done, ())
            out.note(f"{len(done.changed)} of {done.nodes} znodes changed" if done.changed else "nothing to change")
    return 1 if done.refused else 0


def _show(out: Output, zk: "ZooKeeper", found: "Migration", lines: Iterable[str]) -> None:
    for refused in found.refused:
        out.note(str(refused))
    errors = [error_item(refused, path=refused.path) for refused in found.refused]
    out.show(Answer(lines, _items(found), COLUMNS, None if out.is_text else read_cluster_id(zk), errors))


def _items(found: "Migration") -> list[Item]:
    return [
        {"path": node.path, "acl": None if node.acl is None else _text(node.acl), "expected": _text(node.expected)}
        for node in found.changed
    ]


def _text(acls: "Sequence[Acl]") -> str:
    return ",".join(sorted(map(str, acls)))


def _tell_missing(out: Output, missing: Sequence[str], *, ends: bool) -> None:
    """Warn in Kafka's words: on stdout, as its tool does, where the answer is text."""
    tell = out.line if out.is_text else out.note
    tell(f"Warning: The following secure root paths do not exist in ZooKeeper: {','.join(missing)}")
    tell("That might be due to an incorrect chroot is specified when executing the command.")
    if ends:
        tell("Exit the command.")
