"""``kt topics``: the group; each action is a module beside this one (TOP-1 to TOP-30X)."""

from typing import Final

import click

from kafkatool.commands.lazy import ActionGroup

ACTIONS: Final = {
    "create": ("kafkatool.commands.topics.create:create", "Create a topic."),
    "list": ("kafkatool.commands.topics.show:list_", "Names of topics."),
    "describe": ("kafkatool.commands.topics.show:describe", "Leader, replicas and ISR of each partition; overrides."),
    "alter": ("kafkatool.commands.topics.change:alter", "Change overrides, or add partitions."),
    "delete": ("kafkatool.commands.topics.change:delete", "Mark topics for deletion."),
}


@click.command(cls=ActionGroup, lazy=ACTIONS)
def topics() -> None:
    """Create, list, describe, alter and delete topics."""
