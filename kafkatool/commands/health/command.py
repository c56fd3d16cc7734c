"""``kt health``: is the cluster well? Exit codes 0 ok, 1 degraded, 2 critical, 3 not known, as monitoring plug-ins have."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import sleep, time
from typing import IO, Any, Final

import click

from kafkatool.commands.health import rendering
from kafkatool.commands.health.kept import Kept
from kafkatool.commands.health.open_way import open_way
from kafkatool.commands.health.way import Way
from kafkatool.commands.shared.bootstrap import Bootstrap
from kafkatool.commands.shared.options import (
    KtCommand,
    cluster_id_option,
    cluster_options,
    dry_run_option,
    output_option,
)
from kafkatool.commands.shared.output import CURRENT_OUTPUT, Answer, Output, error_item, paint
from kafkatool.commands.shared.printable import say
from kafkatool.core.errors import KafkatoolError, RefusedError, UsageError
from kafkatool.core.model.values import in_number
from kafkatool.core.operations.health import checks, forgotten
from kafkatool.core.operations.health.checks import Level
from kafkatool.core.operations.health.forgotten import Entity
from kafkatool.core.operations.health.memory import Memory, remember
from kafkatool.core.operations.health.reading import Reading

EXIT_CODES: Final = {Level.OK: 0, Level.DEGRADED: 1, Level.CRITICAL: 2}
NOT_KNOWN: Final = 3


class NotKnownError(click.ClickException):
    """The health could not be told: no connection, or bad usage."""

    exit_code = NOT_KNOWN

    def show(self, file: IO[Any] | None = None) -> None:
        say(paint(f"kt: {self.format_message()}", "red", err=True), err=True)


class HealthCommand(KtCommand):
    """A command whose errors are told by the exit code that monitoring plug-ins have for them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as e:
            raise NotKnownError(e.format_message()) from e
        except UsageError as e:
            raise NotKnownError(str(e)) from e

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KafkatoolError as e:
            out: Output = ctx.meta[CURRENT_OUTPUT]
            if not (out.is_text or out.shown):
                out.show(Answer((), (), errors=[error_item(e)]))
            raise NotKnownError(str(e)) from e


@click.command(
    cls=HealthCommand,
    examples=(
        "kt health --zookeeper zk1:2181/kafka",
        "kt health --bootstrap-server b1:9092,b2:9092 --command-config monitor.properties",
        "kt health --zookeeper zk1:2181/kafka --watch 60",
        "kt health --zookeeper zk1:2181/kafka --state /var/lib/monitor/kafka.json",
        "kt health --zookeeper zk1:2181/kafka --remove-throttles",
    ),
    columns=rendering.COLUMNS,
    notes=(
        "Exit codes: 0 ok, 1 degraded, 2 critical, 3 not known (no connection, bad usage; or ok, where the file of "
        "--state cannot be used). A check that cannot be made says unknown, which does not change the exit code; "
        "nor does a note.",
        "check: verdict, then each check; one item for each thing found, with every name in JSON. What only time tells "
        "(a move that stands still, a disk that fills, a leader that was not in sync) needs --watch or --state; for a "
        "throttle while nothing moves, and for a missing controller, kt looks a second time after 10 s by itself, for a "
        "partition without leader, which may just have been made, after 2.",
        "--state FILE is for a monitor that runs kt every minute or so: what looks leave is in FILE from one run to the "
        "next, and the exit code tells of it. Each cluster needs a file of its own; one that is damaged or another "
        "cluster's is named, not used and left as it is; one with times to come, of a clock that was ahead, is begun anew. "
        "What looks like an unclean election is told for a day.",
        "--watch goes on after a look that fails, which is shown, with what it knew before; Ctrl-C ends it.",
        "--bootstrap-server serves clusters with and without ZooKeeper. What brokers do not tell is unknown, and said so: "
        "what happened before the first look (--watch and --state tell of later), and with ZooKeeper what waits in /admin. "
        "Of a cluster without, the controller is the leader of the quorum, and voters are watched. It needs Describe on the "
        "cluster and Describe and DescribeConfigs on topics.",
        "--remove-throttles deletes the throttle keys that the check names, each after looking again whether something "
        "moves, and tells the health after it. Defaults of all brokers are left alone.",
    ),
)
@cluster_options
@click.option("--watch", type=click.FloatRange(min=1), metavar="S", help="Look again every S seconds until Ctrl-C.")
@click.option(
    "--state",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Keep in FILE, for the next run, what only time tells.",
)
@click.option("--all", "all_names", is_flag=True, help="Show every name, not just five.")
@click.option("--remove-throttles", is_flag=True, help="Take forgotten throttles off.")
@dry_run_option
@cluster_id_option
@output_option
def health(
    zookeeper: str,
    bootstrap: Bootstrap | None,
    watch: float | None,
    state: Path | None,
    all_names: bool,
    remove_throttles: bool,
    dry_run: bool,
    cluster_id: str | None,
    out: Output,
) -> int:
    """Say on one page whether the cluster is well."""
    if remove_throttles and watch is not None:
        raise UsageError("--remove-throttles can't be used with --watch")
    if dry_run and not remove_throttles:
        raise UsageError("--dry-run needs --remove-throttles: nothing else is written")
    kept = Kept(state)
    with open_way(zookeeper, bootstrap, cluster_id=cluster_id) as way:
        way.note_unreachable(out)
        reading = way.look()
        memory = _remember(kept.recall(reading), reading, out)
        while watch is not None:
            _show(out, reading, memory, kept, all_names)
            reading, memory = _look_again(way, memory, out, every_s=watch)
        if (doubt := checks.doubt(memory)) is not None:
            out.note(f"looking again in {doubt.after_s:g} s: {doubt.why}")
            sleep(max(0.0, reading.at_s + doubt.after_s - time()))
            reading, memory = _look(way, memory, out)
        if remove_throttles and reading.rates_untold is not None:
            raise RefusedError(f"{reading.rates_untold}: which throttles are forgotten cannot be told")
        if remove_throttles and (entities := checks.forgotten(reading, memory)):
            if dry_run:
                way.dry_run_take_off(out, entities, reading)
                return 0
            _remove(way, out, entities)
            reading, memory = _look(way, replace(memory, idle_throttles={}), out)
        elif dry_run:
            out.planned(())
            return 0
        code = EXIT_CODES[_show(out, reading, memory, kept, all_names)]
        return code or (NOT_KNOWN if kept.trouble else 0)


def _look(way: Way, memory: Memory, out: Output) -> tuple[Reading, Memory]:
    reading = way.look()
    return reading, _remember(memory, reading, out)


def _remember(memory: Memory, reading: Reading, out: Output) -> Memory:
    """Keep this look in mind. What is of a time to come would hide what stands still until the clock is there again."""
    if memory.newest_s > reading.at_s:
        out.note("kt: warning: what former looks left is of a time to come, and is not used: was the clock set back?")
        memory = Memory()
    return remember(memory, reading)


def _look_again(way: Way, memory: Memory, out: Output, *, every_s: float) -> tuple[Reading, Memory]:
    """Wait and look, until a look succeeds: one that fails is shown, and what is known from before stays."""
    while True:
        sleep(every_s)
        try:
            return _look(way, memory, out)
        except KafkatoolError as e:
            out.show(rendering.failed(e))


def _show(out: Output, reading: Reading, memory: Memory, kept: Kept, all_names: bool) -> Level:
    kept.keep(reading, memory)
    found = checks.judge(reading, memory)
    errors = [] if kept.trouble is None else [kept.trouble]
    for error in errors:
        out.note(f"kt: {error}")
    out.show(rendering.answer(found, reading.view.cluster_id, all_names=all_names, errors=errors))
    return checks.verdict(found)


def _remove(way: Way, out: Output, entities: Sequence[Entity]) -> None:
    done = forgotten.remove(entities, way.look, way.take_off)
    if done:
        out.note(f"throttles removed from {', '.join(map(checks.entity_name, done))}")
    if left := len(entities) - len(done):
        out.note(f"something began to move: {in_number(left, 'throttle was', 'throttles were')} left")
