"""``kt reassign --execute``: start a plan in one batch or several, follow it, or go on with it (RSN-7 to RSN-23X)."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from kafkatool.commands.reassign.modes import PlanMode
from kafkatool.commands.reassign.rows import COLUMNS, item, items
from kafkatool.commands.reassign.run_output import NUMBERED, SHOWN, RunOutput
from kafkatool.commands.shared.credentials import broker_access
from kafkatool.commands.shared.options import read_cluster_id
from kafkatool.commands.shared.output import Answer
from kafkatool.commands.shared.plan_table import throttled_line
from kafkatool.commands.shared.termination import interruptions_kept, terminated_like_interrupted
from kafkatool.core.errors import KafkatoolError, RefusedError, UsageError
from kafkatool.core.model.moves import Status
from kafkatool.core.model.values import first_of
from kafkatool.core.operations.reassignment import submission, throttles
from kafkatool.core.operations.reassignment.copy_progress import read_largest_share, to_copy
from kafkatool.core.operations.reassignment.events import Ended, Event
from kafkatool.core.operations.reassignment.runs.run import Run
from kafkatool.core.operations.reassignment.runs.run_lock import HeldError
from kafkatool.core.operations.reassignment.runs.saved_run import RunState
from kafkatool.core.operations.reassignment.submission import MAX_BATCH_BYTES, SHOWN_BY_LIST, Prepared
from kafkatool.core.planner.plan_files import Moves
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper

ZNODE_OVERHEAD_BYTES: Final = 512  # of a write beside the znode's value: path, ACL, headers


@dataclass(frozen=True, slots=True, kw_only=True)
class Execute(PlanMode):
    """The flags of ``--execute``."""

    LACKING = (
        "If --execute option is used, command must include --reassignment-json-file that was output during the "
        "--generate option"
    )

    throttle: int | None
    skip_unchanged: bool
    force: bool
    wait: bool
    resume: bool
    max_json_size: int | None
    batch_partitions: int | None
    dry_run: bool

    def carry_out(self) -> int:
        """Start the plan, or go on with it. Raises UsageError, and RefusedError in Kafka's words."""
        plan = self.read_plan()
        with terminated_like_interrupted():
            return self._resume(plan) if self.resume else self._execute(plan)

    def _execute(self, plan: Moves) -> int:
        with self.session() as zk:
            prepared = submission.prepare(
                zk,
                plan,
                throttle=self.throttle,
                skip_unchanged=self.skip_unchanged,
                force=self.force,
                max_bytes=self.max_json_size or MAX_BATCH_BYTES,
                max_count=self.batch_partitions or 0,
                name_of=self.name_of,
            )
            self._check_batches_fit(prepared)
            self._note_time(zk, prepared)
            if prepared.running is not None:
                return self._only_throttle(zk, prepared)
            if prepared.moves:
                self._note_uncancellable(zk)
            if self.dry_run:
                self.out.planned(prepared.ops, sequential_paths=NUMBERED)
                return 0
            return self._start(zk, plan, prepared)

    def _resume(self, plan: Moves) -> int:
        with self._alone():
            state = RunState.read(self.files.state, plan)
            with self.session() as zk:
                self._note_uncancellable(zk)
                cluster_id = None if self.out.is_text else read_cluster_id(zk)
                output = RunOutput(self, brief=True)
                run = Run(zk, plan, self.files, name_of=self.name_of, on_progress=output.progress)
                return self._follow(
                    run,
                    run.resume(state, broker_access(), force=self.force, timeout_s=self.timeout),
                    output,
                    cluster_id,
                )

    def _check_batches_fit(self, prepared: Prepared) -> None:
        """Refuse batches that may be too large for ZooKeeper before others were carried out already (RSN-20X)."""
        largest = prepared.max_bytes
        if len(prepared.batches) > 1 and largest + ZNODE_OVERHEAD_BYTES > self.zk_max_bytes:
            raise UsageError(
                f"batches of {largest} bytes may not fit into ZooKeeper's limit of {self.zk_max_bytes} bytes "
                "(--zk-max-bytes): give a smaller --max-json-size"
            )

    def _note_time(self, zk: ZooKeeper, prepared: Prepared) -> None:
        """Tell how long it takes under the throttle, before anything is written; brokers may be slow to be asked."""
        if self.throttle and prepared.moves:
            share = read_largest_share(to_copy(zk, prepared.moves), broker_access())
            if (line := throttled_line(share, self.throttle)) is not None:
                self.out.note(line)

    def _note_uncancellable(self, zk: ZooKeeper) -> None:
        """Warn, while there is nothing to cancel yet, where --cancel could ask nobody as kt is called now (RSN-37X)."""
        try:
            broker_access().check(read_cluster(zk, [], states=False).brokers.values())
        except RefusedError as e:
            self.out.note(
                f"kt: warning: no broker can be asked: {e}; from Kafka 2.4 on --cancel asks the controller, so without that "
                "this plan cannot be cancelled"
            )

    def _only_throttle(self, zk: ZooKeeper, prepared: Prepared) -> int:
        """Change rates, nothing else, as a reassignment runs already (RSN-10)."""
        if self.throttle is None:
            return self.out.failed(RefusedError("There is an existing assignment running.", now=SHOWN_BY_LIST))
        self.out.line("There is an existing assignment running.")
        if self.dry_run:
            self.out.planned(prepared.ops, sequential_paths=NUMBERED)
            return 0
        submission.start(zk, prepared)
        self.out.line(f"The throttle limit was set to {self.throttle} B/s")
        if unlisted := throttles.find_unlisted(zk, {p.topic for p in prepared.running or ()}):
            topics, moves = ("topics", "their moves") if len(unlisted) > 1 else ("topic", "its move")
            names = first_of(unlisted, SHOWN, ",")
            self.out.note(
                f"{topics} {names}: no list of throttled replicas is set, so that these rates do not slow {moves}"
            )
        if not self.out.is_text:
            rows = items(prepared.moves, prepared.current, Status.PENDING)
            self.out.show(Answer((), rows, COLUMNS, read_cluster_id(zk)))
        return 0

    def _start(self, zk: ZooKeeper, plan: Moves, prepared: Prepared) -> int:
        cluster_id = None if self.out.is_text else read_cluster_id(zk)
        if not prepared.moves:
            self.out.note("every partition of the plan has the planned replicas already: nothing was written")
            rows = items(prepared.current, prepared.current, Status.NOOP)
            self.out.show(Answer((), rows, COLUMNS, cluster_id))
            return 0
        followed = self.wait or len(prepared.batches) > 1
        output = RunOutput(self, brief=followed)
        run = Run(zk, plan, self.files, name_of=self.name_of, on_progress=output.progress)
        with self._alone():
            events = run.start(prepared, followed=followed, timeout_s=self.timeout)
            if followed:
                return self._follow(run, events, output, cluster_id)
            for event in events:
                output.show(event)
        rows = items(prepared.moves, prepared.current, Status.IN_PROGRESS)
        self.out.show(Answer((), rows, COLUMNS, cluster_id))
        return 0

    def _follow(self, run: Run, events: Iterator[Event], output: RunOutput, cluster_id: str | None) -> int:
        """Show the events of a run that is followed; whatever cuts them short, the run is left in order."""
        try:
            with interruptions_kept(), output:
                for event in events:
                    output.show(event)
                    if isinstance(event, Ended):
                        ended = event
        except (KafkatoolError, KeyboardInterrupt, OSError):  # OSError: whoever read stdout or stderr has gone
            for event in run.end_early():
                output.show(event)
            raise
        self.out.show(Answer((), [item(m) for m in ended.moves], COLUMNS, cluster_id))
        return 0 if ended.completed else 1

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Carry out the plan while the block runs, seen by others. Raises RefusedError: another kt does."""
        try:
            with self.files.alone():
                yield
        except HeldError as e:
            raise RefusedError(str(e), now=f"{self.command('--verify --wait')}  # follow it") from e
