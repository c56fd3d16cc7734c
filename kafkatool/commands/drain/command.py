"""``kt drain``: empty brokers: plan, move under a throttle, prove; go on after an interruption, or go back."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from kafkatool.commands.completion import complete_brokers
from kafkatool.commands.drain.drain_output import COLUMNS, DrainOutput, WaysOn, doubt_lines, proof_item
from kafkatool.commands.drain.open_way import open_way
from kafkatool.commands.drain.way import DrainWay
from kafkatool.commands.shared.bootstrap import Bootstrap
from kafkatool.commands.shared.byte_sizes import ByteCount
from kafkatool.commands.shared.options import (
    KtCommand,
    brokers_flags,
    cluster_options,
    output_option,
    to_type,
    writing_options,
)
from kafkatool.commands.shared.output import Answer, Output, error_item
from kafkatool.commands.shared.termination import interruptions_kept, terminated_like_interrupted
from kafkatool.core.errors import KafkatoolError, RefusedError, UsageError
from kafkatool.core.operations.drain.drain import Drain, Proven, arrived, terms_begun
from kafkatool.core.operations.drain.way import Terms
from kafkatool.core.operations.reassignment.ending_moves import ControllerUnreachableError
from kafkatool.core.operations.reassignment.events import Cancelled, Event
from kafkatool.core.operations.reassignment.runs.run_lock import HeldError

DEFAULT_BATCH: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The flags, as given."""

    brokers: tuple[int, ...]
    zookeeper: str | None
    bootstrap: Bootstrap | None
    throttle: int | None
    no_throttle: bool
    batch_partitions: int
    timeout: float | None
    disable_rack_aware: bool
    resume: bool
    cancel: bool
    rollback: bool
    dry_run: bool
    cluster_id: str | None
    zk_max_bytes: int
    out: Output

    @property
    def again(self) -> str:
        """Return what to type for the same brokers."""
        return to_type(f"drain {' '.join(map(str, self.brokers))}", self.zookeeper, self.cluster_id, self.bootstrap)

    def ways_on(self, terms: Terms) -> WaysOn:
        """Return what to type to move on, or back, on those terms."""
        throttle = " --no-throttle" if terms.throttle is None else f" --throttle {terms.throttle}"
        batch = f" --batch-partitions {terms.batch_partitions}" if terms.batch_partitions != DEFAULT_BATCH else ""
        starting = f"{self.again}{throttle}{batch}{' --disable-rack-aware' * (not terms.rack_aware)}"
        cancelling, back = f"{self.again} --cancel", f"{self.again} --cancel --rollback{throttle}{batch}"
        return WaysOn(f"{starting} --resume", starting, cancelling, back, back if self.rollback else cancelling)

    @property
    def terms(self) -> Terms:
        return Terms(self.throttle, self.batch_partitions, not self.disable_rack_aware)


@click.command(
    cls=KtCommand,
    examples=(
        "kt drain 3 --zookeeper zk1:2181/kafka --throttle 50000000",
        "kt drain 3 --zookeeper zk1:2181/kafka --no-throttle --dry-run",
        "kt drain 3 --bootstrap-server b1:9092,b2:9092 --command-config admin.properties --throttle 50000000",
        "kt drain 3 --zookeeper zk1:2181/kafka --resume",
        "kt drain 3 --zookeeper zk1:2181/kafka --cancel --rollback --throttle 50000000",
    ),
    columns=COLUMNS,
    notes=(
        "Exit code 0 only if proven: no assignment, ISR or leader names the brokers, their log directories hold no replica, "
        "and throttles are as they were. A dead broker's replicas are rebuilt elsewhere. Topics that come, or grow, onto "
        "the brokers meanwhile are moved in further rounds, at most three rounds in all.",
        "--bootstrap-server serves clusters of Kafka 2.4 and later, with and without ZooKeeper. It needs Describe and Alter "
        "on the cluster, Describe on every topic, and with --throttle DescribeConfigs and AlterConfigs on both. Where "
        "brokers may hide a topic or a disk from us nothing is begun, and nothing counts as proven.",
        "The plan, its way back and the state of the drain are files in the working directory: drain-3.json, "
        "drain-3.rollback.json, drain-3.state.json. Ctrl-C leaves them; --resume goes on under the same throttle, --cancel "
        "ends it. --cancel --rollback moves all that has gone back, in batches under the throttle that it is given, also "
        "when the drain has ended.",
    ),
)
@click.argument("brokers", metavar="BROKER…", nargs=-1, required=True, type=int, shell_complete=complete_brokers)
@cluster_options
@click.option("--throttle", type=ByteCount(min=1024), metavar="B/S", help="Bytes per second and broker.")
@click.option("--no-throttle", is_flag=True, help="Move as fast as the brokers can.")
@click.option(
    "--batch-partitions",
    type=click.IntRange(min=0),
    default=DEFAULT_BATCH,
    show_default=True,
    metavar="N",
    help="Partitions of one batch; 0: all at once.",
)
@click.option("--timeout", type=click.FloatRange(min=0), metavar="S", help="Give up waiting after S seconds a round.")
@click.option("--disable-rack-aware", is_flag=True, help="Ignore racks.")
@click.option("--resume", is_flag=True, help="Go on with a drain that was cut short.")
@click.option("--cancel", is_flag=True, help="Send no more, turn round what moves.")
@click.option("--rollback", is_flag=True, help="--cancel: go all back to the replicas from before, under --throttle.")
@writing_options
@output_option
def drain(**flags: Any) -> int:
    """Empty brokers, from a plan to the proof that nothing is left on them."""
    o = Options(**flags)
    _check(o)
    try:
        with (
            terminated_like_interrupted(),
            open_way(o.zookeeper, o.bootstrap, cluster_id=o.cluster_id, zk_max_bytes=o.zk_max_bytes) as way,
        ):
            return _plan_only(o, way) if o.dry_run else _carry_out(o, way)
    except HeldError as e:
        return o.out.failed(RefusedError(f"another kt is draining: {e}"))
    except UsageError:
        raise
    except RefusedError as e:
        return o.out.failed(e)


def _check(o: Options) -> None:
    if o.resume and o.cancel:
        raise UsageError("--resume can't be used with --cancel")
    if o.rollback and not o.cancel:
        raise UsageError("--rollback needs --cancel")
    if o.throttle is not None and o.no_throttle:
        raise UsageError("--throttle can't be used with --no-throttle")
    if o.cancel and o.dry_run:
        raise UsageError("--cancel can't be used with --dry-run")
    if o.cancel and not o.rollback and (o.throttle is not None or o.no_throttle):
        raise UsageError("--cancel takes --throttle and --no-throttle with --rollback alone")
    if o.resume and o.dry_run:
        raise UsageError("--resume can't be used with --dry-run")
    if o.throttle is None and not (o.no_throttle or o.resume or (o.cancel and not o.rollback)):
        what = "way back" if o.rollback else "drain"
        raise UsageError(f"give --throttle B/S, or --no-throttle: an unthrottled {what} may take all of the network")


def _plan_only(o: Options, way: DrainWay) -> int:
    found = Drain(way.way, o.brokers, Path(), on_progress=lambda _: None).plan(o.terms)
    if found is None:
        o.out.note("nothing is assigned to them")
        way.show_planned(o.out, None)
        return 0
    planned, prepared = found
    DrainOutput(o.out, o.ways_on(o.terms)).show_plan(planned)
    way.show_planned(o.out, prepared)
    return 0


def _carry_out(o: Options, way: DrainWay) -> int:
    given = o.no_throttle or o.throttle is not None
    terms = o.terms if given else terms_begun(o.brokers, Path(), o.terms)
    output = DrainOutput(o.out, o.ways_on(terms))
    work = Drain(way.way, o.brokers, Path(), on_progress=output.progress, timeout_s=o.timeout)
    if o.cancel:
        return _cancel(o, way, output, work)
    proven: Proven | None = None
    try:
        with interruptions_kept(), output:
            for event in work.resume(terms) if o.resume else work.start(terms):
                output.show(event)
                if isinstance(event, Proven):
                    proven = event
    except (KafkatoolError, KeyboardInterrupt, OSError):  # OSError: whoever read stdout or stderr has gone
        _show_all(output, work.end_early())
        raise
    _show_answer(o, way, proven)
    return 0 if proven is not None and proven.drained else 1


def _cancel(o: Options, way: DrainWay, output: DrainOutput, work: Drain[Any]) -> int:
    ended = True
    try:
        with interruptions_kept(), output:
            for event in work.cancel(o.terms if o.rollback else None):
                output.show(event)
                if isinstance(event, Cancelled):
                    ended = ended and event.ended and (arrived(event.found.items) or not o.rollback)
    except ControllerUnreachableError as e:  # nothing was begun
        by_request = f"kt reassign{brokers_flags(e.endpoint, o.cluster_id)} --cancel --reassignment-json-file"
        raise RefusedError(str(e), now=f"{by_request} {shlex.quote(work.plan_file)}") from e
    except (KafkatoolError, KeyboardInterrupt, OSError):
        _show_all(output, work.end_cancel())
        raise
    _show_answer(o, way, None)
    return 0 if ended else 1


def _show_all(output: DrainOutput, events: Iterator[Event]) -> None:
    for event in events:
        output.show(event)


def _show_answer(o: Options, way: DrainWay, proven: Proven | None) -> None:
    """Show the proof for programs; as text it was shown as it happened."""
    if not o.out.is_text:
        items = [proof_item(proof) for proof in proven.proofs] if proven else []
        errors = [error_item(RefusedError(line)) for line in doubt_lines(proven)] if proven else []
        o.out.show(Answer((), items, COLUMNS, way.cluster_id(), errors))
