"""Flags that several commands share, the command class that prints their contract, and the session they open."""

import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from kafkatool.commands.shared.bootstrap import (
    NAMED_ZOOKEEPER,
    PARAMETER,
    Bootstrap,
    bootstrap_option,
    choose_way,
    command_config_option,
    is_typed,
    only_bootstrap_option,
)
from kafkatool.commands.shared.credentials import (
    choose_node_acls,
    command_config,
    listener_option,
    login_flags,
    zk_auth_file_option,
    zk_set_acl_option,
    zk_tls_config_file_option,
    zookeeper_security,
)
from kafkatool.commands.shared.local_cluster import local_zookeeper
from kafkatool.commands.shared.output import CURRENT_OUTPUT, FORMATS, Output
from kafkatool.commands.shared.printable import say
from kafkatool.commands.shared.settings import SettingOption, chosen_context
from kafkatool.core.errors import (
    NotZooKeeperError,
    RefusedError,
    UsageError,
    ZooKeeperRefusedError,
    ZooKeeperUnavailableError,
)
from kafkatool.core.zookeeper.connect_string import without_spaces

if TYPE_CHECKING:
    from kafkatool.core.model.values import Endpoint
    from kafkatool.core.planner.plan_files import PartitionName
    from kafkatool.core.zookeeper.session import Op, ZooKeeper

F = TypeVar("F", bound=Callable[..., Any])

TIMEOUT_MS: Final = 30_000  # both, as Kafka's tools (COM-1)
SLOW_S: Final = 3.0  # after which a person wonders
DEFAULT_ZK_MAX_BYTES: Final = 1_048_575
KAZOO_LOGGER: Final = "kafkatool.core.zookeeper.kazoo"


class KtCommand(click.Command):
    """A command whose help ends with an example and with the JSON keys and TSV columns it promises (COM-4X).

    ``sections`` puts flags, by their names without dashes, under headings of their own.
    """

    def __init__(
        self,
        *args: Any,
        examples: Sequence[str] = (),
        columns: Sequence[str] = (),
        json_keys: Sequence[str] | None = None,
        notes: Sequence[str] = (),
        definitions: Mapping[str, Sequence[tuple[str, str]]] | None = None,
        sections: Mapping[str, Sequence[str]] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples
        self.columns = columns
        self._json_keys = columns if json_keys is None else json_keys
        self._notes = notes
        self._definitions = definitions or {}
        self._sections = sections or {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the flags, each once unless it takes several values, and leave one way to the cluster where there are two."""
        if not ctx.resilient_parsing:
            _, _, given = self.make_parser(ctx).parse_args(args=list(args))
            for option in given:
                if isinstance(option, click.Option) and _takes_one(option) and given.count(option) > 1:
                    raise UsageError(
                        f"{option.opts[0]} is given twice: it takes one value, and the first would be lost"
                    )
        rest = super().parse_args(ctx, args)
        if PARAMETER in ctx.params:
            choose_way(ctx)
        return rest

    def sections(self, ctx: click.Context) -> Iterator[tuple[str, list[click.Option]]]:
        """Yield the flags under their headings, by what one wants to do; those of no heading at the end."""
        left = {p.opts[0].removeprefix("--"): p for p in self.get_params(ctx) if isinstance(p, click.Option)}
        for title, names in self._sections.items():
            yield title, [left.pop(name) for name in names]
        yield "Options", list(left.values())

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, options in self.sections(ctx):
            with formatter.section(title):
                formatter.write_dl([record for option in options if (record := option.get_help_record(ctx))])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{example}\n")
        if self.columns:
            with formatter.section("Output"):
                keys = ", ".join(self._json_keys)
                formatter.write_text(
                    f"--output json, yaml: one document tool, cluster_id, items, errors; items hold {keys}."
                )
                columns = " ".join(c.upper() for c in (*self.columns, "error", "message"))
                formatter.write_text(f"--output tsv: a heading and one row per item: {columns}.")
        for note in self._notes:
            formatter.write_paragraph()
            formatter.write_text(note)
        for title, rows in self._definitions.items():
            with formatter.section(title):
                formatter.write_dl(rows)


def _takes_one(option: click.Option) -> bool:
    return not (option.multiple or option.is_flag or option.count)


# --- flags -----------------------------------------------------------------------------------------------------


def all_of(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return what adds those options to a command, shown in this order."""

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def _zookeeper(needed: bool) -> Callable[[F], F]:
    def check(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
        if NAMED_ZOOKEEPER in ctx.meta:
            named, flag = ctx.meta[NAMED_ZOOKEEPER]
            if is_typed("zookeeper", ctx):
                raise UsageError(f"give --zookeeper or {flag}, not both")
            return without_spaces(named)
        if value is None:
            return local_zookeeper() if needed and not ctx.resilient_parsing else None
        return without_spaces(value)

    where = click.option(
        "--zookeeper",
        metavar="HOST:PORT[,HOST:PORT…][/CHROOT]",
        cls=SettingOption,
        callback=check,
        help="Where the cluster keeps its metadata. [default: the cluster of kt cluster up, if one runs; env "
        "KAFKATOOL_ZOOKEEPER]",
    )
    return all_of(where, zk_auth_file_option, zk_tls_config_file_option)


zookeeper_option = _zookeeper(needed=True)
"""``--zookeeper``; passes ``zookeeper: str``. Where none is given, the only cluster of this machine serves."""

optional_zookeeper_option = _zookeeper(needed=False)
"""The same for tools that have another way to the cluster; passes ``zookeeper: str | None``."""


cluster_options = all_of(optional_zookeeper_option, bootstrap_option, command_config_option, listener_option)
"""Both ways to a cluster; passes ``zookeeper: str | None`` and ``bootstrap: Bootstrap | None``, one of which is given."""


brokers_only_options = all_of(only_bootstrap_option, command_config_option)
"""The way of commands that ask brokers only; passes ``bootstrap: Bootstrap``."""


broker_options = all_of(command_config_option, listener_option)
"""How brokers are reached; get it by ``credentials.broker_access``."""


def output_option(function: F) -> F:
    """Add ``--output text|json|yaml|tsv``; passes ``out: Output``."""

    def make(ctx: click.Context, param: click.Parameter, value: str) -> Output:
        columns = ctx.command.columns if isinstance(ctx.command, KtCommand) else ()
        out = ctx.meta[CURRENT_OUTPUT] = Output(value, tool=ctx.command_path, columns=columns)
        return out

    return click.option(
        "--output",
        "out",
        type=click.Choice(FORMATS),
        cls=SettingOption,
        fallback="text",
        callback=make,
        help="Form of the answer on stdout. [default: text; env KAFKATOOL_OUTPUT]",
    )(function)


dry_run_option = click.option(
    "--dry-run",
    is_flag=True,
    help="Print operation, path and value of each write to ZooKeeper; write nothing. Refused where the run would be.",
)
"""``--dry-run``; passes ``dry_run: bool``. Render with ``show_planned``."""

cluster_id_option = click.option(
    "--cluster-id",
    metavar="ID",
    cls=SettingOption,
    help="Write only if this is the cluster's id. [env KAFKATOOL_CLUSTER_ID]",
)
"""``--cluster-id``; passes ``cluster_id: str | None``. Give it to ``connect`` (COM-5X)."""

zk_max_bytes_option = click.option(
    "--zk-max-bytes",
    type=click.IntRange(min=1024),
    cls=SettingOption,
    fallback=DEFAULT_ZK_MAX_BYTES,
    help=f"Largest packet ZooKeeper takes (its jute.maxbuffer). [default: {DEFAULT_ZK_MAX_BYTES}]",
)
"""``--zk-max-bytes``; passes ``zk_max_bytes: int``. Give it to ``connect`` (COM-10X)."""


writing_options = all_of(dry_run_option, cluster_id_option, zk_max_bytes_option, zk_set_acl_option)
"""The flags of every writing command."""


def partition_form_option(default: str) -> Callable[[F], F]:
    """Make ``--partition-form bracket|dash`` (COM-9X); passes ``name_of: Callable[[TopicPartition], str]``."""

    def choose(ctx: click.Context, param: click.Parameter, value: str) -> "PartitionName":
        from kafkatool.core.planner.plan_files import bracketed, dashed

        return bracketed if value == "bracket" else dashed

    return click.option(
        "--partition-form",
        "name_of",
        type=click.Choice(("bracket", "dash")),
        cls=SettingOption,
        fallback=default,
        callback=choose,
        help=f"Name a partition as [t,0] or as t-0. [default: {default}]",
    )


def to_type(
    command: str, zookeeper: str | None, cluster_id: str | None, bootstrap: Bootstrap | None = None, rest: str = ""
) -> str:
    """Write a command that a person is told to type, to be pasted as it is: the connection's flags, guard, logins and all.

    What the environment or a settings file gave is written too: it may be another shell's. ``rest`` follows (COM-5X).
    """
    context = chosen_context()
    kt = "kt" if context is None else f"kt --context {shlex.quote(context)}"
    if bootstrap is not None:
        way = f" {bootstrap.flag} {shlex.quote(bootstrap.text)}"
    else:
        way = f" --zookeeper {shlex.quote(zookeeper or '')}"
    flags = f"{way}{login_flags(by_zookeeper=bootstrap is None)}{_packet_flag()}{_guard(cluster_id)}"
    return f"{kt} {command}{flags}" + (f" {rest}" if rest else "")


def _packet_flag() -> str:
    """Write --zk-max-bytes, where it is not what it is by itself."""
    ctx = click.get_current_context(silent=True)
    given = DEFAULT_ZK_MAX_BYTES if ctx is None else ctx.params.get("zk_max_bytes", DEFAULT_ZK_MAX_BYTES)
    by_zookeeper = ctx is not None and ctx.params.get("bootstrap") is None
    return f" --zk-max-bytes {given}" if by_zookeeper and int(given) != DEFAULT_ZK_MAX_BYTES else ""


def brokers_flags(endpoint: "Endpoint", cluster_id: str | None) -> str:
    """Write the flags of the way by brokers, for a command to be typed instead; it needs a login where they want one."""
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    file = command_config()
    config = " --command-config FILE" if file is None and endpoint.protocol != "PLAINTEXT" else ""
    if file is not None:
        config = f" --command-config {shlex.quote(str(file))}"
    return f" --bootstrap-server {shlex.quote(f'{host}:{endpoint.port}')}{config}{_guard(cluster_id)}"


def _guard(cluster_id: str | None) -> str:
    return "" if cluster_id is None else f" --cluster-id {shlex.quote(cluster_id)}"


def parse_broker_ids(text: str, flag: str) -> tuple[int, ...]:
    """Parse ``4,5,6`` -> (4, 5, 6). Raises UsageError on anything but numbers; duplicates are the caller's business."""
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"\d+", part) for part in parts):
        raise UsageError(f"{flag} {text!r} is not a list of broker ids such as 1,2,3")
    return tuple(map(int, parts))


def no_topic_text(pattern: str, existing: Sequence[str]) -> str:
    """Say that no topic matches, and name those that look alike, or how many there are."""
    import difflib

    if alike := difflib.get_close_matches(pattern, existing, n=3):
        return f"no topic matches {pattern!r}; near: {', '.join(alike)}"
    return f"no topic of {len(existing)} matches {pattern!r}; kt topics list shows them"


# --- session ---------------------------------------------------------------------------------------------------


@contextmanager
def connect(
    zookeeper: str,
    *,
    cluster_id: str | None = None,
    zk_max_bytes: int | str = DEFAULT_ZK_MAX_BYTES,
    cluster_needed: bool = False,
) -> Iterator["ZooKeeper"]:
    """Open a session for one command.

    Raises RefusedError when ``cluster_id`` is given and not the cluster's (COM-5X), or there is none and it is needed.
    """
    import logging

    from kafkatool.core.zookeeper.session import ZooKeeper
    from kafkatool.core.zookeeper.unreachable import refusing_servers, unknown_hosts, why_unreachable

    if not logging.getLogger().isEnabledFor(logging.DEBUG):
        # Reconnects are resolved by retrying; an error that stays is raised and told once.
        logging.getLogger(KAZOO_LOGGER).setLevel(logging.CRITICAL)
    zk = ZooKeeper(
        zookeeper,
        session_timeout_ms=TIMEOUT_MS,
        connection_timeout_ms=TIMEOUT_MS,
        max_packet_bytes=int(zk_max_bytes),
        security=zookeeper_security(),
    )
    if unknown := unknown_hosts(zookeeper):
        zk.close()
        raise ZooKeeperUnavailableError(f"no such host: {', '.join(unknown)}; check the address of --zookeeper")
    if refusing := refusing_servers(zookeeper):
        zk.close()
        raise ZooKeeperUnavailableError(f"no ZooKeeper: nothing listens at {', '.join(refusing)}")
    try:
        with _told_when_slow(zookeeper):
            zk.start()
    except (NotZooKeeperError, ZooKeeperRefusedError):
        raise
    except ZooKeeperUnavailableError as e:
        raise ZooKeeperUnavailableError(f"{e} ({why_unreachable(zookeeper)})") from e
    with closing(zk):
        if cluster_id is not None and (found := read_cluster_id(zk)) != cluster_id:
            raise RefusedError(
                f"--cluster-id is {cluster_id}, but the cluster at {zk.connect} has "
                f"{f'id {found}' if found else 'no id'}; nothing was written"
            )
        if (told := _no_cluster(zk)) is not None:
            if cluster_needed:
                raise RefusedError(told)
            say(f"kt: {told}", err=True)
        choose_node_acls(zk)
        yield zk


@contextmanager
def _told_when_slow(zookeeper: str) -> Iterator[None]:
    """Tell a person at a terminal, after some seconds, that kt is waiting, and for which ZooKeeper."""
    import threading

    text = f"kt: waiting up to {TIMEOUT_MS // 1000} s for ZooKeeper at {zookeeper}; Ctrl-C ends"
    timer = threading.Timer(SLOW_S, say, (text,), {"err": True})
    if sys.stderr.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _no_cluster(zk: "ZooKeeper") -> str | None:
    """Say that there is no cluster, and which chroot there may be: without the chroot everything looks empty.

    Brokers make the node they look for at their start, and it stays when they are all down. None: there is a cluster;
    nodes that may not be read are there.
    """
    from kafkatool.core.zookeeper.znodes import BrokersZnode

    if zk.children_where_permitted([BrokersZnode.PATH]) != [None]:
        return None
    found = [f"{zk.connect.rstrip('/')}/{name}" for name in _clusters_below(zk)]
    there = f"is the chroot missing? There is {', '.join(found)}" if found else "is the chroot right?"
    return f"no Kafka cluster at {zk.connect}, where {BrokersZnode.PATH} is missing: {there}"


def _clusters_below(zk: "ZooKeeper") -> list[str]:
    from kafkatool.core.zookeeper.znodes import BrokersZnode

    (below,) = zk.children_where_permitted(["/"])
    names = sorted(below) if isinstance(below, list) else []
    inside = zk.children_where_permitted([f"/{name}{BrokersZnode.PATH}" for name in names])
    return [name for name, ids in zip(names, inside, strict=True) if ids is not None]


def show_planned(
    out: Output,
    zk: "ZooKeeper",
    ops: "Iterable[Op]",
    *,
    sequential_paths: Sequence[str] = (),
    errors: Sequence[dict[str, Any]] = (),
) -> None:
    """Show what a dry run would write, if it may be written. Raises NoPermissionError, as the run itself would (SEC-25)."""
    shown = list(ops)
    zk.check_permitted(shown)
    out.planned(shown, sequential_paths=sequential_paths, errors=errors)


def read_cluster_id(zk: "ZooKeeper") -> str | None:
    """Read the cluster's id; None before 0.10.1."""
    from kafkatool.core.zookeeper.znodes import ClusterIdZnode

    node = zk.get(ClusterIdZnode.PATH)
    return ClusterIdZnode.decode(node.data) if node else None
