"""Flags that the actions of ``kt topics`` share, the text of a refusal, and the question before many are changed."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from kafkatool.commands.completion import complete_configs, complete_topics
from kafkatool.commands.shared.options import F, no_topic_text
from kafkatool.commands.shared.output import Output
from kafkatool.commands.shared.printable import one_line
from kafkatool.core.errors import KafkatoolError, RefusedError
from kafkatool.core.model.topic_configs import ACCEPTED, DOCUMENTED, LATER, unknown_names
from kafkatool.core.model.values import first_of, in_number

if TYPE_CHECKING:
    from kafkatool.core.model.values import Assignment
    from kafkatool.core.zookeeper.session import ZooKeeper

CONFIG_DEFINITIONS: Final = {
    "Configs": [(c.name, f"{c.meaning} ({c.kind})") for c in DOCUMENTED],
    "Configs stored too": [(c.name, f"{c.meaning} ({c.kind})") for c in ACCEPTED],
}

MIN_IN_SYNC: Final = "min.insync.replicas"
SHOWN: Final = 10  # names of topics in a refusal

config_option = click.option(
    "--config",
    "config",
    metavar="NAME=VALUE",
    multiple=True,
    shell_complete=complete_configs,
    help="Override; repeatable.",
)
racks_option = click.option("--disable-rack-aware", is_flag=True, help="Ignore the brokers' racks.")
force_option = click.option("--force", is_flag=True, help="Ask nothing; needed for several topics off a terminal.")
internal_option = click.option("--exclude-internal", is_flag=True, help="Leave out Kafka's own topics.")


def pattern_option(*, required: bool) -> Callable[[F], F]:
    """Make ``--topic`` of the actions other than create: a regex (TOP-19)."""
    return click.option(
        "--topic",
        metavar="REGEX",
        required=required,
        shell_complete=complete_topics,
        help="Topics whose whole name matches; several are joined by commas.",
    )


def failure_text(error: KafkatoolError) -> str:
    """Put the error in Kafka's words (TOP-6)."""
    return f"Error while executing topic command : {error}"


def failed(out: Output, error: RefusedError, **about: Any) -> int:
    """Print the error on stdout as Kafka does. Return the exit code."""
    return out.failed(error, text=failure_text(error), **about)


def note_unwritable(out: Output, configs: Mapping[str, str], assignment: "Assignment") -> None:
    """Warn of a topic with fewer replicas than must be in sync: its producers would only ever see errors."""
    needed, replicas = int(configs.get(MIN_IN_SYNC, "1")), min(map(len, assignment.values()), default=0)
    if needed > replicas:
        has = in_number(replicas, "replica", "replicas")
        out.note(f"WARNING: {MIN_IN_SYNC}={needed}, but a partition has {has}: no write with acks=all can ever succeed")


def known_to_brokers(out: Output, zk: "ZooKeeper", names: Iterable[str]) -> frozenset[str]:
    """Return those of ``names`` that kt itself does not know and brokers do: what a newer Kafka may be told.

    Where no broker can be asked, those of later Kafkas are let pass with a warning.
    """
    unknown = unknown_names(names)
    if not unknown:
        return frozenset()
    from kafkatool.commands.shared.credentials import broker_access
    from kafkatool.core.operations.topics.brokers_configs import read_known_configs

    known = read_known_configs(zk, broker_access())
    if known is not None:
        return known.intersection(unknown)
    passed = [name for name in unknown if name in LATER]
    for name in passed:
        out.note(f"note: no broker could be asked whether it knows {name}, which Kafka has since {LATER[name]}")
    return frozenset(passed)


def matching(zk: "ZooKeeper", pattern: str, zookeeper: str, *, if_exists: bool) -> list[str]:
    """Read the topics to change. Raises RefusedError when there are none (TOP-12), or the pattern is none."""
    from kafkatool.core.model.topic_names import meant
    from kafkatool.core.zookeeper.znodes import TopicsZnode

    existing = zk.children(TopicsZnode.PATH) or []
    found = meant(existing, pattern)
    if not found and not if_exists:
        now = no_topic_text(pattern, existing)
        raise RefusedError(f"Topic {pattern} does not exist on ZK path {zookeeper}", now=now)
    return found


def agree(topics: Sequence[str], question: str, *, force: bool) -> None:
    """Ask before several topics are changed that one pattern matched. Raises RefusedError: no, or nobody to ask."""
    if len(topics) < 2 or force:
        return
    if not sys.stdin.isatty():
        raise RefusedError(
            f"the pattern matches {len(topics)} topics: {first_of(topics, SHOWN)}; nothing was changed",
            now="off a terminal several topics need --force; --dry-run shows what would be written",
        )
    if not click.confirm(f"{question}: {one_line(', '.join(topics))}?", err=True):
        raise RefusedError("nothing was changed")
