"""``kt acls list``, ``add`` and ``remove``, by either way, in Kafka 2.8's words; entries are sorted (SEC-91, 92)."""

import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import click

from kafkatool.commands.acls.flags import NO_RESOURCE, Meant, entry_options, resource_options
from kafkatool.commands.acls.open_way import open_way
from kafkatool.commands.acls.way import Acls, Way
from kafkatool.commands.shared.options import KtCommand, output_option, to_type, writing_options
from kafkatool.commands.shared.output import Answer, Output, error_item
from kafkatool.commands.shared.printable import say
from kafkatool.core.errors import (
    BrokerUnreachableError,
    DeadlineError,
    KafkatoolError,
    NoPermissionError,
    RefusedError,
    UsageError,
    ZooKeeperError,
)
from kafkatool.core.model.acls import (
    Binding,
    Entry,
    Filter,
    FoundAcls,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    as_sorted,
    check_binding,
    check_changeable,
    why_from_nowhere,
)

COLUMNS: Final = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
NOTE: Final = "Brokers go by ACLs where authorizer.class.name is set, and hear of a change within a second."


@click.command(
    "list",
    cls=KtCommand,
    examples=(
        "kt acls list --zookeeper zk1:2181/kafka",
        "kt acls list --zookeeper zk1:2181/kafka --topic orders --resource-pattern-type match",
        "kt acls list --zookeeper zk1:2181/kafka --principal User:alice",
    ),
    columns=COLUMNS,
)
@resource_options
@click.option("--principal", multiple=True, metavar="User:NAME", help="Only entries of this principal; repeatable.")
@output_option
def list_(out: Output, principal: Sequence[str], **flags: Any) -> int:
    """Show the ACLs of the resources named, or all."""
    meant = Meant(**flags)
    with open_way(meant.zookeeper, meant.bootstrap) as way:
        found = _read(way, meant.filters or [Filter()])
        cluster_id = None if out.is_text else way.read_cluster_id()
    if not principal:
        return _show(out, found, cluster_id)
    chosen: dict[ResourcePattern, frozenset[Entry]] = {}
    for who in principal:
        his = {p: frozenset(e for e in entries if e.principal == who) for p, entries in found.entries.items()}
        his = {p: entries for p, entries in his.items() if entries}
        out.line(f"ACLs for principal `{who}`")
        out.lines(_lines(his))
        for pattern, entries in his.items():
            chosen[pattern] = chosen.get(pattern, frozenset()) | entries
    return _show(out, FoundAcls({} if out.is_text else chosen, found.unreadable), cluster_id)


@click.command(
    cls=KtCommand,
    examples=(
        "kt acls add --zookeeper zk1:2181/kafka --allow-principal User:alice --operation Read --topic orders",
        "kt acls add --zookeeper zk1:2181/kafka --allow-principal User:bob --producer --topic orders",
        "kt acls add --zookeeper zk1:2181/kafka --allow-principal User:carol --consumer --topic pay- --group pay- \\",
        "    --resource-pattern-type prefixed",
    ),
    columns=COLUMNS,
    notes=("Items are all ACLs of the resources named, as they are afterwards.", NOTE),
)
@resource_options
@entry_options
@click.option("--force", is_flag=True, help="As kafka-acls takes it: nothing is asked here.")
@writing_options
@output_option
def add(out: Output, dry_run: bool, cluster_id: str | None, zk_max_bytes: int, force: bool, **flags: Any) -> int | None:
    """Allow or deny something to principals."""
    meant = Meant(**flags)
    bindings = meant.bindings()
    if not meant.names_entries:
        raise UsageError("add needs --allow-principal or --deny-principal")
    for binding in bindings:
        try:
            check_binding(binding)
        except ValueError as e:
            raise UsageError(str(e)) from e
    wanted = as_sorted(bindings)
    with open_way(meant.zookeeper, meant.bootstrap, cluster_id=cluster_id, zk_max_bytes=zk_max_bytes) as way:
        _warn_of_consequences(out, way, wanted)
        if dry_run:
            way.dry_run_add(out, wanted)
            return None
        for pattern, entries in wanted.items():
            out.line(f"Adding ACLs for resource `{pattern}`: ")
            out.lines(_entry_lines(entries))
        with _repeatable(out):
            way.add(wanted)
        return _show(out, _read(way, meant.filters), None if out.is_text else way.read_cluster_id())


@click.command(
    cls=KtCommand,
    examples=(
        "kt acls remove --zookeeper zk1:2181/kafka --allow-principal User:alice --operation Read --topic orders",
        "kt acls remove --zookeeper zk1:2181/kafka --topic orders --force",
    ),
    columns=COLUMNS,
    notes=("Items are the ACLs of the resources named that are left. Without a principal all of a resource go.", NOTE),
)
@resource_options
@entry_options
@click.option("--force", is_flag=True, help="Do not ask.")
@writing_options
@output_option
def remove(
    out: Output, dry_run: bool, cluster_id: str | None, zk_max_bytes: int, force: bool, **flags: Any
) -> int | None:
    """Take ACLs away; the command that puts them back is printed."""
    meant = Meant(**flags)
    if not meant.filters:
        raise UsageError(NO_RESOURCE)
    if (meant.operation or meant.allow_host or meant.deny_host) and not meant.names_entries:
        raise UsageError("say whose ACLs: --operation and hosts need --allow-principal or --deny-principal")
    doomed = {one: frozenset(meant.entries(one.type)) if meant.names_entries else None for one in meant.filters}
    with open_way(meant.zookeeper, meant.bootstrap, cluster_id=cluster_id, zk_max_bytes=zk_max_bytes) as way:
        found: dict[ResourcePattern, frozenset[Entry]] = {p: frozenset() for one in doomed for p in one.named}
        for one, entries in doomed.items():
            for pattern, there in way.read(one).all().items():
                gone = there if entries is None else there & entries
                if gone:
                    found[pattern] = found.get(pattern, frozenset()) | gone
        _check_removable(found)
        if dry_run:
            way.dry_run_remove(out, found)
            return None
        there_are = {pattern: gone for pattern, gone in found.items() if gone}
        if meant.pattern_type is PatternType.MATCH and there_are:
            out.note("these would go:\n" + "\n".join(_lines(there_are)).rstrip())
        if force or _agreed(out, doomed):
            if not there_are:
                out.note("nothing is removed: no such ACL is there")
            for line in _ways_back(meant, cluster_id, there_are):
                out.note(f"to put it back: {line}")
            with _repeatable(out):
                way.remove(found)
        return _show(out, _read(way, meant.filters), None if out.is_text else way.read_cluster_id())


@contextmanager
def _repeatable(out: Output) -> Iterator[None]:
    """Say what to do where a change is cut short: brokers that were not told go by what they know."""
    try:
        yield
    except NoPermissionError:  # nor would it be permitted again
        raise
    except (ZooKeeperError, BrokerUnreachableError, DeadlineError, KeyboardInterrupt):
        out.note("cut short: part of it may be done; the same command again does the rest, and tells brokers of it all")
        raise


def _check_removable(found: Acls) -> None:
    """Raise RefusedError for what could not be put back."""
    for pattern, entries in sorted(found.items()):
        for entry in sorted(entries):
            try:
                check_changeable(Binding(pattern, entry))
            except ValueError as e:
                raise RefusedError(
                    f"{e}; name --operation and principals to remove others", now=f"{pattern} has it"
                ) from e


def _read(way: Way, filters: Iterable[Filter]) -> FoundAcls:
    found: dict[ResourcePattern, frozenset[Entry]] = {}
    unreadable: dict[str, KafkatoolError] = {}
    for one in filters:
        of_one = way.read(one)
        found |= of_one.entries
        unreadable |= of_one.unreadable
    return FoundAcls(found, unreadable)


def _show(out: Output, found: FoundAcls, cluster_id: str | None) -> int:
    """Show what was read, and tell what could not be. Return the exit code."""
    for error in found.unreadable.values():
        out.note(str(error))
    items = [
        {
            "resource_type": pattern.type.name,
            "resource_name": pattern.name,
            "pattern_type": pattern.pattern_type.name,
            "principal": entry.principal,
            "host": entry.host,
            "operation": entry.operation.name,
            "permission": entry.permission.name,
        }
        for pattern, entries in sorted(found.entries.items())
        for entry in sorted(entries)
    ]
    errors = [error_item(error, path=path) for path, error in found.unreadable.items()]
    out.show(Answer(_lines(found.entries), items, cluster_id=cluster_id, errors=errors))
    return 1 if errors else 0


def _lines(found: Acls) -> Iterable[str]:
    for pattern, entries in sorted(found.items()):
        yield f"Current ACLs for resource `{pattern}`: "
        yield from _entry_lines(entries)


def _entry_lines(entries: Iterable[Entry]) -> list[str]:
    """Write them with the blanks that Kafka's tool puts before the first and behind the last."""
    return [" " + "\n".join(f"\t{entry}" for entry in sorted(entries)) + " ", ""]


def _agreed(out: Output, doomed: Mapping[Filter, frozenset[Entry] | None]) -> bool:
    """Ask in Kafka's words. Raises UsageError where there is nobody to ask."""
    if not sys.stdin.isatty():
        raise UsageError("off a terminal remove needs --force; --dry-run shows what would be written")
    for one, entries in doomed.items():
        resource = (
            f"ResourcePattern(resourceType={one.type.name}, name={one.name}, patternType={one.pattern_type.name})"
        )
        if entries is None:
            question = f"Are you sure you want to delete all ACLs for resource filter `{resource}`? (y/n)"
        else:
            listed = "\n".join(_entry_lines(entries)).rstrip("\n")
            question = f"Are you sure you want to remove ACLs: \n{listed}\n from resource filter `{resource}`? (y/n)"
        say(question, err=not out.is_text)
        if sys.stdin.readline().strip().lower() != "y":
            return False
    return True


def _ways_back(meant: Meant, cluster_id: str | None, removed: Acls) -> Iterable[str]:
    """Write the commands that add what was removed."""
    for (kind, name, pattern_type), entries in sorted(removed.items()):
        flag = kind.name.lower().replace("_", "-")
        resource = "--cluster" if kind is ResourceType.CLUSTER else f"--{flag} {shlex.quote(name)}"
        if pattern_type is PatternType.PREFIXED:
            resource += " --resource-pattern-type prefixed"
        for principal, host, operation, permission in sorted(entries):
            side = permission.name.lower()
            who = f"--{side}-principal {shlex.quote(principal)} --{side}-host {shlex.quote(host)}"
            entry = f"{who} --operation {operation.word} {resource}"
            yield to_type("acls add", meant.zookeeper, cluster_id, meant.bootstrap, entry)


def _warn_of_consequences(out: Output, way: Way, wanted: Acls) -> None:
    """Tell what an entry changes for others, or does not change at all (SEC-92).

    The first on a resource, a Read without a group to read in, a host that nobody comes from.
    """
    for host, permission in sorted({(e.host, e.permission) for entries in wanted.values() for e in entries}):
        if why := why_from_nowhere(host):
            means = "denies" if permission is Permission.DENY else "allows"
            out.note(f"no client comes from host {host}: {why}; the entry {means} nothing to anybody")
    for pattern in wanted:
        kind, name, pattern_type = pattern
        if not way.read(Filter(kind, name, pattern_type)).all():
            out.note(
                f"the first ACL about {kind.word} {name}: where allow.everyone.if.no.acl.found is set, everybody else "
                "loses it"
            )
    readers = {
        entry.principal
        for pattern, entries in wanted.items()
        for entry in entries
        if pattern.type is ResourceType.TOPIC and entry.permission is Permission.ALLOW and entry.operation in _READING
    }
    if not readers:
        return
    groups = way.read(Filter(ResourceType.GROUP))
    in_groups = [*groups.entries.items(), *wanted.items()]
    doubt = f", as far as is known ({', '.join(groups.unreadable)} cannot be read)" if groups.unreadable else ""
    for reader in sorted(readers):
        entries = [e for p, found in in_groups if p.type is ResourceType.GROUP for e in found]
        if not any(e.principal in (reader, "User:*") and e.operation in _READING for e in entries):
            out.note(
                f"{reader} may read in no group yet{doubt}: consumers that commit need --operation Read --group NAME"
            )


_READING: Final = (Operation.READ, Operation.ALL)
