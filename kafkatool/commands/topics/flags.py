"""What the actions of ``kt topics`` share: flags, and how a refusal is told."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from kafkatool.commands.completion import complete_topics
from kafkatool.commands.shared.options import F
from kafkatool.commands.shared.output import Output
from kafkatool.core.errors import RefusedError
from kafkatool.core.model.topic_configs import ACCEPTED, DOCUMENTED, MESSAGE_FORMAT_VERSION

if TYPE_CHECKING:
    from kafkatool.core.zookeeper.session import ZooKeeper

CONFIG_DEFINITIONS: Final = {
    "Configs": [(c.name, f"{c.meaning} ({c.kind})") for c in DOCUMENTED],
    "Configs stored too": [(c.name, f"{c.meaning} ({c.kind})") for c in ACCEPTED],
}

config_option = click.option("--config", "config", metavar="NAME=VALUE", multiple=True, help="Override; repeatable.")
racks_option = click.option("--disable-rack-aware", is_flag=True, help="Ignore the brokers' racks.")
internal_option = click.option("--exclude-internal", is_flag=True, help="Leave out Kafka's own topics.")


def pattern_option(*, required: bool) -> Callable[[F], F]:
    """``--topic`` outside create: a regex (TOP-19)."""
    return click.option(
        "--topic",
        metavar="REGEX",
        required=required,
        shell_complete=complete_topics,
        help="Topics whose whole name matches; several are joined by commas.",
    )


def failure_text(error: RefusedError) -> str:
    """Kafka's words for any failure (TOP-6)."""
    return f"Error while executing topic command : {error}"


def fail(out: Output, error: RefusedError, **about: Any) -> NoReturn:
    """Tell it on stdout as Kafka does, and end with exit code 1."""
    out.failure(error, text=failure_text(error), **about)


def note_ignored_configs(out: Output, configs: dict[str, str]) -> None:
    """TOP-22: stored, but without effect on the bundled broker."""
    if MESSAGE_FORMAT_VERSION in configs:
        out.note(f"note: brokers of kt ignore {MESSAGE_FORMAT_VERSION}")


def matching(out: Output, zk: "ZooKeeper", pattern: str, zookeeper: str, *, if_exists: bool) -> list[str]:
    """The topics to change; ends the command when there are none (TOP-12)."""
    from kafkatool.core.model.topic_names import select
    from kafkatool.core.zookeeper.znodes import TopicsZnode

    existing = zk.children(TopicsZnode.PATH) or []
    try:
        found = select(existing, pattern)
    except RefusedError as e:
        fail(out, e, topic=pattern)
    if not found and not if_exists:
        error = RefusedError(f"Topic {pattern} does not exist on ZK path {zookeeper}", now=near(pattern, existing))
        fail(out, error, topic=pattern)
    return found


def near(pattern: str, existing: Sequence[str]) -> str:
    """Where to look when no topic matches: names that look alike, or how many there are."""
    import difflib

    if alike := difflib.get_close_matches(pattern, existing, n=3):
        return f"no topic matches {pattern!r}; near: {', '.join(alike)}"
    return f"no topic of {len(existing)} matches {pattern!r}; kt topics list shows them"
