"""``kt transactions``: the group; each action is a command of its own (KIP-664)."""

from typing import Final

import click

from kafkatool.commands.lazy import ActionGroup

ACTIONS: Final = {
    "list": ("kafkatool.commands.transactions.show:list_", "Transactional ids, with coordinator and state."),
    "describe": ("kafkatool.commands.transactions.show:describe", "One transactional id and its transaction."),
    "describe-producers": (
        "kafkatool.commands.transactions.show:describe_producers",
        "Who writes to a partition, and in which transaction.",
    ),
    "find-hanging": ("kafkatool.commands.transactions.hanging:find_hanging", "Transactions that nobody will end."),
    "abort": ("kafkatool.commands.transactions.hanging:abort", "End a hanging transaction in one partition."),
}


@click.command(cls=ActionGroup, lazy=ACTIONS)
def transactions() -> None:
    """Look at transactions; find and abort hanging ones."""
