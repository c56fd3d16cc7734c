"""``kt users``: the group; each action is a command of its own (SEC-93, 94)."""

from typing import Final

import click

from kafkatool.commands.lazy import ActionGroup

ACTIONS: Final = {
    "list": ("kafkatool.commands.users.actions:list_", "Users that have credentials, with mechanisms and iterations."),
    "describe": ("kafkatool.commands.users.actions:describe", "One user's credentials, without their secrets."),
    "alter": ("kafkatool.commands.users.actions:alter", "Set and delete credentials."),
}


@click.command(cls=ActionGroup, lazy=ACTIONS)
def users() -> None:
    """List and alter the users that log in to brokers with SCRAM."""
