"""The group ``kt migrate``; it only looks, and carries nothing out."""

import click

from kafkatool.commands.lazy import LazyGroup


@click.group(
    cls=LazyGroup,
    lazy={
        "check": ("kafkatool.commands.migrate.check:check", "Is the cluster ready for KRaft? How far is a migration?")
    },
)
def migrate() -> None:
    """Look at a migration from ZooKeeper to KRaft."""
