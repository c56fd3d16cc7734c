"""``kt topics``: the group; each action is a module beside this one (TOP-1 to TOP-30X)."""

import shlex
from typing import Final

import click

from kafkatool.commands.lazy import LazyGroup
from kafkatool.core.errors import UsageError

ACTIONS: Final = {
    "create": ("kafkatool.commands.topics.create:create", "Create a topic."),
    "list": ("kafkatool.commands.topics.show:list_", "Names of topics."),
    "describe": ("kafkatool.commands.topics.show:describe", "Leader, replicas and ISR of each partition; overrides."),
    "alter": ("kafkatool.commands.topics.change:alter", "Change overrides, or add partitions."),
    "delete": ("kafkatool.commands.topics.change:delete", "Mark topics for deletion."),
}


class TopicsGroup(LazyGroup):
    """Answers Kafka's own spelling, where actions are flags, with the kt form of the same command (section 7, 29)."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        actions = [a[2:] for a in args if a.startswith("--") and a[2:] in ACTIONS]
        if actions and args[0].startswith("-"):
            if len(actions) > 1:
                raise UsageError(f"exactly one action, please: kt topics {'|'.join(ACTIONS)}")
            rest = [a for a in args if a != f"--{actions[0]}"]
            raise UsageError(f"kt takes the action as a word; write: kt topics {shlex.join([actions[0], *rest])}")
        return super().parse_args(ctx, args)


@click.command(cls=TopicsGroup, lazy=ACTIONS)
def topics() -> None:
    """Create, list, describe, alter and delete topics."""
