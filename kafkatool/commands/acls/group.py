"""``kt acls``: the group; each action is a command of its own (SEC-91, 92)."""

from typing import Final

import click

from kafkatool.commands.lazy import ActionGroup
from kafkatool.commands.shared.credentials import go_by_authorizers_properties

ACTIONS: Final = {
    "list": ("kafkatool.commands.acls.actions:list_", "Show ACLs, of a resource or of a principal."),
    "add": ("kafkatool.commands.acls.actions:add", "Allow or deny something."),
    "remove": ("kafkatool.commands.acls.actions:remove", "Take ACLs away."),
}


@click.command(cls=ActionGroup, lazy=ACTIONS)
@click.pass_context
def acls(ctx: click.Context) -> None:
    """List, add and remove the ACLs that brokers with an authorizer go by."""
    go_by_authorizers_properties(ctx)
