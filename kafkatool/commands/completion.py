"""``kt completion``: the shells' scripts, and completion of files, configs, and live topic names and broker ids (COM-8X).

The scripts in ``completions/`` are this command's output; a test holds them against it.
"""

import threading
from typing import Final

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from kafkatool.commands.lazy import COMPLETE_VARIABLE
from kafkatool.commands.shared.local_cluster import only_local_zookeeper
from kafkatool.commands.shared.options import KAZOO_LOGGER, KtCommand
from kafkatool.commands.shared.printable import one_line
from kafkatool.core.errors import KafkatoolError

SHELLS: Final = ("bash", "zsh", "fish")
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

    if ctx.params.get("broker_list"):  # of kt replica-verify: that cluster's ZooKeeper is not known
        return []
    return _complete(ctx, incomplete, TopicsZnode.PATH)


def complete_brokers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete ids of registered brokers; of a list joined by commas the last one, by one not in it yet."""
    from kafkatool.core.zookeeper.znodes import BrokersZnode

    return sorted(_complete(ctx, incomplete, BrokersZnode.PATH), key=lambda item: len(item.value))


def complete_files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Leave names of files to the shell, for flags that take - for stdin too."""
    return [CompletionItem(incomplete, type="file")]


def complete_configs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete names of topic configs, with the = that a value follows where the flag takes one."""
    from kafkatool.core.model.topic_configs import CONFIGS, LATER

    end = "=" if param.name == "config" else ""
    return [CompletionItem(name + end) for name in (*CONFIGS, *LATER) if name.startswith(incomplete)]


def _complete(ctx: click.Context, incomplete: str, parent: str) -> list[CompletionItem]:
    before, comma, last = incomplete.rpartition(",")
    used = set(before.split(","))
    connect = ctx.params.get("zookeeper")
    values = sorted(_children(connect, parent))
    return [CompletionItem(before + comma + v) for v in values if v.startswith(last) and v not in used]


def _children(connect: str | None, parent: str) -> list[str]:
    """Ask ZooKeeper, that of the only cluster here if none is named; return nothing where it is too slow or fails.

    Completion never prints an error and never hangs.
    """
    found: list[str] = []

    def ask() -> None:
        import logging

        from kafkatool.core.zookeeper.session import ZooKeeper

        logging.getLogger(KAZOO_LOGGER).setLevel(logging.CRITICAL)
        address = connect or only_local_zookeeper()
        if address is None:
            return
        try:
            with ZooKeeper(address, connection_timeout_ms=int(ANSWER_WITHIN_S * 1000)) as zk:
                found.extend(zk.children(parent) or ())
        except KafkatoolError:
            return  # no ZooKeeper, no values

    thread = threading.Thread(target=ask, name="kt-completion", daemon=True)
    thread.start()
    thread.join(ANSWER_WITHIN_S)
    return [name for name in found if one_line(name) == name]  # others would drive the terminal as they are offered
