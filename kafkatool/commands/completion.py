"""``kt completion``: the shells' scripts, and live completion of topic names and broker ids (COM-8X).

The scripts in ``completions/`` are this command's output; a test holds them against it.
"""

import threading
from typing import Final

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from kafkatool.commands.shared.options import KAZOO_LOGGER, KtCommand
from kafkatool.core.errors import KafkatoolError

SHELLS: Final = ("bash", "zsh", "fish")
COMPLETE_VARIABLE: Final = "_KT_COMPLETE"
ANSWER_WITHIN_S: Final = 0.8  # with the interpreter's start, a second


@click.command(
    cls=KtCommand,
    examples=(
        "kt completion bash > ~/.local/share/bash-completion/completions/kt",
        "kt completion zsh > ~/.zfunc/_kt",
        "kt completion fish > ~/.config/fish/completions/kt.fish",
    ),
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of a shell. It completes topics and broker ids from ZooKeeper too."""
    click.echo(script(shell), nl=False)


def script(shell: str) -> str:
    """Return the script's text, ending in one newline."""
    cls = get_completion_class(shell)
    assert cls is not None
    # The base class's method: bash's own would run bash to look at its version.
    source = ShellComplete.source(cls(completion, {}, "kt", COMPLETE_VARIABLE))
    return source.strip("\n") + "\n"


# --- live values -----------------------------------------------------------------------------------------------


def complete_topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete names of topics; of a list joined by commas the last one."""
    from kafkatool.core.zookeeper.znodes import TopicsZnode

    return _complete(ctx, incomplete, TopicsZnode.PATH)


def complete_brokers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete ids of registered brokers; of a list joined by commas the last one, by one not in it yet."""
    from kafkatool.core.zookeeper.znodes import BrokersZnode

    return sorted(_complete(ctx, incomplete, BrokersZnode.PATH), key=lambda item: len(item.value))


def _complete(ctx: click.Context, incomplete: str, parent: str) -> list[CompletionItem]:
    before, comma, last = incomplete.rpartition(",")
    used = set(before.split(","))
    connect = ctx.params.get("zookeeper")
    values = sorted(_children(connect, parent)) if isinstance(connect, str) else []
    return [CompletionItem(before + comma + v) for v in values if v.startswith(last) and v not in used]


def _children(connect: str, parent: str) -> list[str]:
    """Ask ZooKeeper; return nothing where it is too slow or fails: completion never prints an error and never hangs."""
    found: list[str] = []

    def ask() -> None:
        import logging

        from kafkatool.core.zookeeper.session import ZooKeeper

        logging.getLogger(KAZOO_LOGGER).setLevel(logging.CRITICAL)
        try:
            with ZooKeeper(connect, connection_timeout_ms=int(ANSWER_WITHIN_S * 1000)) as zk:
                found.extend(zk.children(parent) or ())
        except KafkatoolError:
            return  # no ZooKeeper, no values

    thread = threading.Thread(target=ask, name="kt-completion", daemon=True)
    thread.start()
    thread.join(ANSWER_WITHIN_S)
    return list(found)
