"""A click group that imports a subcommand when it is named, and not before."""

import importlib
import shlex
from collections.abc import Mapping
from typing import Any, Final

import click

from kafkatool.core.collecting import collected_rarely
from kafkatool.core.errors import UsageError

COMPLETE_VARIABLE: Final = "_KT_COMPLETE"  # set by the shells' scripts while a line is being completed


class LazyGroup(click.Group):
    """A group that knows its subcommands by name -> ("module:attribute", one line of help), and imports one on use.

    So ``kt --help`` imports no command, and ``kt topics`` neither Spark nor the broker.
    """

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lazy)

    def one_line(self, name: str) -> str:
        """Return the line of help of a subcommand, without importing it."""
        return self._lazy[name][1]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if not ctx.resilient_parsing and self.get_command(ctx, name) is None and not name.startswith("-"):
            import difflib

            near = difflib.get_close_matches(name, self._lazy, n=1)
            meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(self._lazy)}"
            raise click.UsageError(f"no command {name!r}: {meant}", ctx)
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return None
        module, _, attribute = self._lazy[cmd_name][0].partition(":")
        with collected_rarely():
            command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_line) for name, (_, help_line) in self._lazy.items()])


class ActionGroup(LazyGroup):
    """Answers Kafka's own spelling, where actions are flags, with the kt form of the same command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = self.list_commands(ctx)
        actions = [a[2:] for a in args if a.startswith("--") and a[2:] in known]
        if actions and args[0].startswith("-"):
            if len(actions) > 1:
                raise UsageError(f"exactly one action, please: {ctx.command_path} {'|'.join(known)}")
            rest = [a for a in args if a != f"--{actions[0]}"]
            form = f"{ctx.command_path} {shlex.join([actions[0], *rest])}"
            raise UsageError(f"kt takes the action as a word; write: {form}")
        return super().parse_args(ctx, args)
