"""``kt drain``: empty brokers: plan, move under a throttle, prove; go on after an interruption, or go back."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from kafkatool.commands.completion import complete_brokers
from kafkatool.commands.drain.drain_output import COLUMNS, DrainOutput, proof_item
from kafkatool.commands.shared.byte_sizes import ByteCount
from kafkatool.commands.shared.credentials import broker_access
from kafkatool.commands.shared.options import (
    KtCommand,
    broker_options,
    brokers_flags,
    connect,
    output_option,
    read_cluster_id,
    to_type,
    writing_options,
    zookeeper_option,
)
from kafkatool.commands.shared.output import Answer, Output
from kafkatool.commands.shared.termination import interruptions_kept, terminated_like_interrupted
from kafkatool.core.errors import KafkatoolError, RefusedError, UsageError
from kafkatool.core.operations.drain.drain import Drain, Proven, Terms
from kafkatool.core.operations.reassignment.cancelling import ControllerUnreachableError
from kafkatool.core.operations.reassignment.events import Cancelled, Event
from kafkatool.core.operations.reassignment.run_lock import HeldError
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigChangeZnode

DEFAULT_BATCH: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The flags, as given."""

    brokers: tuple[int, ...]
    zookeeper: str
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
        return to_type(f"drain {' '.join(map(str, self.brokers))}", self.zookeeper, self.cluster_id)

    @property
    def resuming(self) -> str:
        """Return what to type to go on; further rounds are moved as this one."""
        throttle = f" --throttle {self.throttle}" if self.throttle is not None else " --no-throttle" * self.no_throttle
        batch = f" --batch-partitions {self.batch_partitions}" if self.batch_partitions != DEFAULT_BATCH else ""
        return f"{self.again}{throttle}{batch}{' --disable-rack-aware' * self.disable_rack_aware} --resume"

    @property
    def terms(self) -> Terms:
        return Terms(self.throttle, self.batch_partitions, not self.disable_rack_aware)


@click.command(
    cls=KtCommand,
    examples=(
        "kt drain 3 --zookeeper zk1:2181/kafka --throttle 50000000",
        "kt drain 3 --zookeeper zk1:2181/kafka --no-throttle --dry-run",
        "kt drain 3 --zookeeper zk1:2181/kafka --resume",
        "kt drain 3 --zookeeper zk1:2181/kafka --cancel --rollback",
    ),
    columns=COLUMNS,
    notes=(
        "Exit code 0 only if proven: no assignment, ISR or leader names the brokers, their log directories hold no replica, "
        "and throttles are as they were. A dead broker's replicas are rebuilt elsewhere. Topics that come, or grow, onto "
        "the brokers meanwhile are moved in further rounds, at most three rounds in all.",
        "The plan, its way back and the state of the drain are files in the working directory: drain-3.json, "
        "drain-3.rollback.json, drain-3.state.json. Ctrl-C leaves them; --resume goes on, --cancel ends it.",
    ),
)
@click.argument("brokers", metavar="BROKER…", nargs=-1, required=True, type=int, shell_complete=complete_brokers)
@zookeeper_option
@broker_options
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
@click.option("--rollback", is_flag=True, help="--cancel: go all back to the replicas from before.")
@writing_options
@output_option
def drain(**flags: Any) -> int:
    """Empty brokers, from a plan to the proof that nothing is left on them."""
    o = Options(**flags)
    _check(o)
    try:
        with (
            terminated_like_interrupted(),
            connect(o.zookeeper, cluster_id=o.cluster_id, zk_max_bytes=o.zk_max_bytes) as zk,
        ):
            if not o.cancel:  # nothing is moved whose end could not be proven
                broker_access().check(read_cluster(zk, [], states=False).brokers.values())
            return _plan_only(o, zk) if o.dry_run else _carry_out(o, zk)
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
    if o.cancel and (o.throttle is not None or o.no_throttle or o.dry_run):
        raise UsageError("--cancel can't be used with --throttle, --no-throttle or --dry-run")
    if o.resume and o.dry_run:
        raise UsageError("--resume can't be used with --dry-run")
    if o.throttle is None and not (o.no_throttle or o.cancel or o.resume):
        raise UsageError("give --throttle B/S, or --no-throttle: an unthrottled drain may take all of the network")


def _plan_only(o: Options, zk: ZooKeeper) -> int:
    planned, prepared = Drain(zk, o.brokers, Path(), on_progress=lambda _: None, access=broker_access()).plan(
        1, o.terms
    )
    DrainOutput(o.out, o.again, o.resuming).show_plan(planned)
    o.out.planned(prepared.ops, sequential_paths=(ConfigChangeZnode.PREFIX,))
    return 0


def _carry_out(o: Options, zk: ZooKeeper) -> int:
    output = DrainOutput(o.out, o.again, o.resuming)
    work = Drain(zk, o.brokers, Path(), on_progress=output.progress, timeout_s=o.timeout, access=broker_access())
    if o.cancel:
        return _cancel(o, zk, output, work)
    proven: Proven | None = None
    try:
        with interruptions_kept(), output:
            for event in work.resume(o.terms) if o.resume else work.start(o.terms):
                output.show(event)
                if isinstance(event, Proven):
                    proven = event
    except (KafkatoolError, KeyboardInterrupt, OSError):  # OSError: whoever read stdout or stderr has gone
        _show_all(output, work.end_early())
        raise
    _show_answer(o, zk, proven)
    return 0 if proven is not None and proven.drained else 1


def _cancel(o: Options, zk: ZooKeeper, output: DrainOutput, work: Drain) -> int:
    ended = True
    try:
        with interruptions_kept(), output:
            for event in work.cancel(rollback=o.rollback):
                output.show(event)
                if isinstance(event, Cancelled):
                    ended = ended and event.ended and (event.found.completed or not o.rollback)
    except ControllerUnreachableError as e:  # nothing was begun
        by_request = f"kt reassign{brokers_flags(e.endpoint, o.cluster_id)} --cancel --reassignment-json-file"
        raise RefusedError(str(e), now=f"{by_request} {shlex.quote(work.plan_file)}") from e
    except (KafkatoolError, KeyboardInterrupt, OSError):
        _show_all(output, work.end_cancel())
        raise
    _show_answer(o, zk, None)
    return 0 if ended else 1


def _show_all(output: DrainOutput, events: Iterator[Event]) -> None:
    for event in events:
        output.show(event)


def _show_answer(o: Options, zk: ZooKeeper, proven: Proven | None) -> None:
    """Show the proof for programs; as text it was shown as it happened."""
    if not o.out.is_text:
        items = [proof_item(proof) for proof in proven.proofs] if proven else []
        o.out.show(Answer((), items, COLUMNS, read_cluster_id(zk)))
