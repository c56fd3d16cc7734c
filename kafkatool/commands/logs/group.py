"""``kt logs``: merges the state-change logs of many brokers and explains what they tell, on Spark (SCL)."""

from collections.abc import Mapping
from typing import Final

import click

from kafkatool.commands.lazy import LazyGroup

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "merge": ("kafkatool.commands.logs.merge:merge_command", "One log in order of time; or rows as JSON or Parquet."),
    "timeline": ("kafkatool.commands.logs.timeline:timeline", "What happened to a partition, fact by fact."),
    "report": ("kafkatool.commands.logs.report:report", "An outage in figures: text, JSON or a page with plots."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def logs() -> None:
    """Merge and analyse state-change logs of all brokers."""
