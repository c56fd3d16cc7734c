"""Flags that several commands share, the command class that prints their contract, and the session they open."""

import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from kafkatool.commands.shared.output import CURRENT_OUTPUT, FORMATS, Output
from kafkatool.commands.shared.settings import SettingOption
from kafkatool.core.errors import NoPermissionError, RefusedError, UsageError, ZooKeeperUnavailableError
from kafkatool.core.zookeeper.connect_string import without_spaces

if TYPE_CHECKING:
    from kafkatool.core.planner.plan_files import PartitionName
    from kafkatool.core.zookeeper.session import ZooKeeper

F = TypeVar("F", bound=Callable[..., Any])

TIMEOUT_MS: Final = 30_000  # both, as Kafka's tools (COM-1)
SLOW_S: Final = 3.0  # after which a person wonders
DEFAULT_ZK_MAX_BYTES: Final = 1_048_575
KAZOO_LOGGER: Final = "kafkatool.core.zookeeper.kazoo"


class KtCommand(click.Command):
    """A command whose help ends with an example and with the JSON keys and TSV columns it promises (COM-4X)."""

    def __init__(
        self,
        *args: Any,
        examples: Sequence[str] = (),
        columns: Sequence[str] = (),
        json_keys: Sequence[str] | None = None,
        notes: Sequence[str] = (),
        definitions: Mapping[str, Sequence[tuple[str, str]]] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples
        self.columns = columns
        self._json_keys = columns if json_keys is None else json_keys
        self._notes = notes
        self._definitions = definitions or {}

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{example}\n")
        if self.columns:
            with formatter.section("Output"):
                keys = ", ".join(self._json_keys)
                formatter.write_text(f"--output json: one document tool, cluster_id, items, errors; items hold {keys}.")
                columns = " ".join(c.upper() for c in (*self.columns, "error", "message"))
                formatter.write_text(f"--output tsv: a heading and one row per item: {columns}.")
        for note in self._notes:
            formatter.write_paragraph()
            formatter.write_text(note)
        for title, rows in self._definitions.items():
            with formatter.section(title):
                formatter.write_dl(rows)


# --- flags -----------------------------------------------------------------------------------------------------


def _zookeeper(required: bool) -> Callable[[F], F]:
    def check(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
        if value is None:
            if required and not ctx.resilient_parsing:  # click takes a default of None for a value
                raise click.MissingParameter(ctx=ctx, param=param)
            return None
        return without_spaces(value)

    return click.option(
        "--zookeeper",
        metavar="HOST:PORT[,HOST:PORT…][/CHROOT]",
        cls=SettingOption,
        callback=check,
        help=f"Where the cluster keeps its metadata. [{'required; ' if required else ''}env KAFKATOOL_ZOOKEEPER]",
    )


zookeeper_option = _zookeeper(required=True)
"""``--zookeeper``, required; passes ``zookeeper: str``."""

optional_zookeeper_option = _zookeeper(required=False)
"""The same for tools that have another way to the cluster; passes ``zookeeper: str | None``."""


def output_option(function: F) -> F:
    """Add ``--output text|json|tsv``; passes ``out: Output``."""

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
    "--dry-run", is_flag=True, help="Print each znode that would be written, with its value; write nothing."
)
"""``--dry-run``; passes ``dry_run: bool``. Render with ``Output.planned``."""

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


def writing_options(function: F) -> F:
    """Add what every writing command has: ``--dry-run``, ``--cluster-id``, ``--zk-max-bytes``."""
    return dry_run_option(cluster_id_option(zk_max_bytes_option(function)))


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


def same_cluster(zookeeper: str, cluster_id: str | None) -> str:
    """Write these flags for a command that a person is told to type: it keeps the guard (COM-5X)."""
    guard = "" if cluster_id is None else f" --cluster-id {shlex.quote(cluster_id)}"
    return f" --zookeeper {shlex.quote(zookeeper)}{guard}"


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
    zookeeper: str, *, cluster_id: str | None = None, zk_max_bytes: int | str = DEFAULT_ZK_MAX_BYTES
) -> Iterator["ZooKeeper"]:
    """Open a session for one command. Raises RefusedError when ``cluster_id`` is given and not the cluster's (COM-5X)."""
    import logging

    from kafkatool.core.zookeeper.session import ZooKeeper
    from kafkatool.core.zookeeper.unreachable import unknown_hosts, why_unreachable

    if not logging.getLogger().isEnabledFor(logging.DEBUG):
        # Reconnects are resolved by retrying; an error that stays is raised and told once.
        logging.getLogger(KAZOO_LOGGER).setLevel(logging.CRITICAL)
    zk = ZooKeeper(
        zookeeper,
        session_timeout_ms=TIMEOUT_MS,
        connection_timeout_ms=TIMEOUT_MS,
        max_packet_bytes=int(zk_max_bytes),
    )
    if unknown := unknown_hosts(zookeeper):
        zk.close()
        raise ZooKeeperUnavailableError(f"no such host: {', '.join(unknown)}; check the address of --zookeeper")
    try:
        with _told_when_slow(zookeeper):
            zk.start()
    except ZooKeeperUnavailableError as e:
        raise ZooKeeperUnavailableError(f"{e} ({why_unreachable(zookeeper)})") from e
    with closing(zk):
        if cluster_id is not None:
            _check_cluster_id(zk, cluster_id)
        with suppress(NoPermissionError):  # then the command's own reads say what is closed, if it needs it
            _note_no_cluster(zk)
        yield zk


@contextmanager
def _told_when_slow(zookeeper: str) -> Iterator[None]:
    """Tell a person at a terminal, after some seconds, that kt is waiting, and for which ZooKeeper."""
    import threading

    text = f"kt: waiting up to {TIMEOUT_MS // 1000} s for ZooKeeper at {zookeeper}; Ctrl-C ends"
    timer = threading.Timer(SLOW_S, click.echo, (text,), {"err": True})
    if sys.stderr.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _note_no_cluster(zk: "ZooKeeper") -> None:
    """Say that there is no cluster, and which chroot there may be: without the chroot everything looks empty."""
    from kafkatool.core.zookeeper.znodes import BrokersZnode

    if zk.children(BrokersZnode.PATH) is not None:
        return
    names = sorted(zk.children("/") or ())
    inside = zk.children_many([f"/{name}{BrokersZnode.PATH}" for name in names])
    found = [f"{zk.connect.rstrip('/')}/{name}" for name, ids in zip(names, inside, strict=True) if ids is not None]
    there = f"is the chroot missing? There is {', '.join(found)}" if found else "is the chroot right?"
    click.echo(f"kt: no Kafka cluster at {zk.connect}, where {BrokersZnode.PATH} is missing: {there}", err=True)


def read_cluster_id(zk: "ZooKeeper") -> str | None:
    """Read the cluster's id; None before 0.10.1."""
    from kafkatool.core.zookeeper.znodes import ClusterIdZnode

    node = zk.get(ClusterIdZnode.PATH)
    return ClusterIdZnode.decode(node.data) if node else None


def _check_cluster_id(zk: "ZooKeeper", wanted: str) -> None:
    found = read_cluster_id(zk)
    if found != wanted:
        raise RefusedError(
            f"--cluster-id is {wanted}, but the cluster at {zk.connect} has "
            f"{f'id {found}' if found else 'no id'}; nothing was written"
        )
