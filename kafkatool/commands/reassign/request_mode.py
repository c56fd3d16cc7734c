"""What the modes of ``kt reassign --bootstrap-server`` share that work on a plan: read it, wait for it, end throttles."""

import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkatool.commands.reassign.modes import RATE, RATE_MEANS, PlanMode
from kafkatool.commands.reassign.rows import COLUMNS
from kafkatool.commands.shared.output import Answer
from kafkatool.core.errors import BrokerAnswerError, RefusedError, UsageError
from kafkatool.core.model.values import TopicPartition, in_number, join_ids
from kafkatool.core.operations.requests import comparing, throttles
from kafkatool.core.operations.requests.moving import read_moves
from kafkatool.core.operations.requests.throttles import Own
from kafkatool.core.operations.requests.topic_reading import read_topics
from kafkatool.core.planner.plan_files import (
    STDIN,
    LogDirs,
    Moves,
    PlacedReplica,
    dashed,
    parse_placed_plan,
    read_text,
)

if TYPE_CHECKING:
    from kafkatool.core.client.cluster import ClusterClient
    from kafkatool.core.operations.requests.log_dirs import Placement, RatesInUse
    from kafkatool.core.operations.requests.reassignments import Refusals


LOG_DIRS_POLL_S: Final = 1.0
LOG_DIRS_TIMEOUT_S: Final = 10.0
"""How long replicas are asked for that a broker is still to make, without --timeout: as Kafka's tool."""


def refused_of(outcome: "Refusals") -> dict[TopicPartition, BrokerAnswerError]:
    """Return what was refused of it."""
    return {p: e for p, e in outcome.items() if e is not None}


def named(things: Iterable[TopicPartition] | Iterable[PlacedReplica]) -> str:
    """Write partitions, or replicas of them, as Kafka's tool lists them."""
    return ",".join(map(str, sorted(things)))


def plural_of(things: Collection[object]) -> str:
    """Return the s of several."""
    return "s" * (len(things) > 1)


class RequestPlanMode(PlanMode):
    """What the modes share that work on a plan."""

    __slots__ = ()

    def read_plan(self) -> Moves:
        """Read the plan. Raises RefusedError with the words of Kafka's tool (ADM-39)."""
        return self.read_plan_and_log_dirs()[0]

    def read_plan_and_log_dirs(self) -> tuple[Moves, LogDirs]:
        """Read the plan, and the log directories that it names. Raises RefusedError as ``read_plan``."""
        source = self.reassignment_json_file
        try:
            text = read_text(source, sys.stdin)
        except UsageError as e:
            raise RefusedError(f"Unable to read file {source}") from e
        try:
            name = "stdin" if source == STDIN else source
            return parse_placed_plan(text, name, name_of=dashed)
        except UsageError as e:
            raise RefusedError(str(e)) from e
        except RefusedError as e:
            if str(e) == "Partition reassignment data file is empty":
                raise RefusedError("Partition reassignment list cannot be empty", now=e.now) from e
            raise

    def finish(
        self,
        client: "ClusterClient",
        plan: Moves,
        *,
        preserve_throttles: bool,
        own: Own | None = None,
        look: comparing.Look | None = None,
    ) -> None:
        """Take throttles off if nothing of the cluster moves any more, only where some are set (ADM-38).

        ``own``: what this run has set. ``look``: what was read just now; before anything is taken off it is asked again
        what moves.
        """
        if preserve_throttles:
            return
        if moving := read_moves(client) if look is None else look.moving:
            if set(moving).difference(plan):
                self.out.note(
                    "other partitions are being moved: the throttle stays; --verify takes it off when they are"
                )
            return
        found, in_use = self.found_throttles(client, plan, look.topics if look else None, own)
        if look is not None and (found.brokers or found.topics):
            self.finish(client, plan, preserve_throttles=False, own=own)
            return
        self._note_rates_in_use(in_use)
        if found.brokers:
            plural = "s" * (len(found.brokers) > 1)
            self.out.line(f"Clearing broker-level throttles on broker{plural} {join_ids(found.brokers)}")
        if found.topics:
            plural = "s" * (len(found.topics) > 1)
            self.out.line(f"Clearing topic-level throttles on topic{plural} {','.join(found.topics)}")
        throttles.remove(client, found)
        for (topic, key), value in found.standing.items():
            self.out.note(f"no move has set {key}={value} of topic {topic}: it was taken off with the plan's throttles")
        if own is not None:
            throttles.carry_out(client, throttles.standing_again(own, found))
        if found.topics and (down := sorted({b for r in plan.values() for b in r} - set(client.brokers))):
            self.out.note(
                f"broker {join_ids(down)} cannot be asked, being down: a throttle may be left there when it returns"
            )

    def undo_throttles(self, client: "ClusterClient", own: Own, nothing: str = "nothing was begun") -> None:
        """Put back what throttles there were, as ``nothing`` goes under those that this run has set (ADM-35)."""
        if not own.changes:
            return
        if (failure := throttles.undo(client, own)) is None:
            self.out.note(f"{nothing}: the throttles are as they were before")
            return
        self.out.note(f"{nothing}, but the throttle could not be taken back everywhere: {failure}")
        self.out.note(f"{self.command('--verify')}  # takes throttles off when nothing moves any more")

    def found_throttles(
        self, client: "ClusterClient", plan: Moves, topics: Iterable[str] | None = None, own: Own | None = None
    ) -> "tuple[throttles.Set, RatesInUse | None]":
        """Read which throttles are set that are the plan's, or those of moves, and can go, and which rates cannot.

        ``topics``: those there are; None: they are read. ``own``: what this run has set.
        """
        found = throttles.find(client, read_topics(client) if topics is None else topics, {p.topic for p in plan})
        if own is not None:
            found = throttles.with_own(client, found, own)
        if not any(throttles.LOG_DIR_RATE in keys for keys in found.brokers.values()):
            return found, None
        from kafkatool.core.operations.requests import log_dirs

        return log_dirs.keep_rates(client, found)

    def _note_rates_in_use(self, found: "RatesInUse | None") -> None:
        """Say which rates of moves between log directories stay, and why."""
        if found is not None and found.moving:
            self.out.note(
                f"replicas of broker {join_ids(found.moving)} are on their way to other log directories: "
                f"{throttles.LOG_DIR_RATE} stays there; --verify takes it off when they have arrived"
            )
        if found is not None and found.untold:
            self.out.note(
                f"whether replicas of broker {join_ids(found.untold)} are on their way to other log directories is not "
                f"known: {throttles.LOG_DIR_RATE} stays there"
            )

    def await_end(
        self,
        client: "ClusterClient",
        plan: Iterable[TopicPartition],
        timeout_s: float | None,
        *,
        way_on: str = "--verify --wait",
    ) -> bool:
        """Wait until nothing of the plan moves; False: the time was up first. Cut short, it says what to type."""
        from kafkatool.commands.shared.run_progress import RunProgressLine, awaited_line
        from kafkatool.core.operations.reassignment import following_by_request as following
        from kafkatool.core.operations.reassignment.events import Following

        wanted = list(plan)
        line = RunProgressLine(self.out.note)
        try:
            line.begin(Following(following.read_copying(client, wanted)))
            waited = following.wait(client, wanted, timeout_s=timeout_s, on_progress=line.show)
        except KeyboardInterrupt:
            line.end()
            self._note_ways_on(way_on)
            raise
        finally:
            line.end()
        if not waited.ended:
            if waited.awaited:
                self.out.note(awaited_line(waited.awaited))
            self._note_ways_on(way_on)
        return waited.ended

    def await_log_dirs(self, client: "ClusterClient", wanted: LogDirs, timeout_s: float | None) -> bool:
        """Wait until none of those replicas is on its way to a log directory; False: the time was up first."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while moving := [one for one in self.read_placements(client, wanted) if one.state.is_moving]:
            if deadline is not None and time.monotonic() >= deadline:
                replicas = in_number(len(moving), "replica is", "replicas are")
                self.out.note(f"{replicas} on the way to another log directory: that goes on")
                return False
            time.sleep(LOG_DIRS_POLL_S)
            client.begin_anew()
        return True

    def start_log_dirs(self, client: "ClusterClient", wanted: LogDirs) -> LogDirs:
        """Have replicas move to those log directories (ADM-40); return those that could not begin in time."""
        if not wanted:
            return {}
        from kafkatool.core.operations.requests import log_dirs  # a plan that names none does without

        def begun(replicas: Collection[PlacedReplica]) -> None:
            self.out.lines(
                f"Successfully started moving log directory to {wanted[one]} for replica {one.partition} "
                f"with broker {one.broker} "  # the blank is Kafka's
                for one in replicas
            )

        timeout_s = LOG_DIRS_TIMEOUT_S if self.timeout is None else self.timeout
        late = log_dirs.begin(client, wanted, timeout_s, begun)
        if late:
            self.out.line(f"Timed out before log directory move{plural_of(late)} could be started for: {named(late)}")
        return late

    def read_placements(self, client: "ClusterClient", wanted: LogDirs) -> "list[Placement]":
        """Look where those replicas are; a plan that names no log directory does without what asks for them."""
        if not wanted:
            return []
        from kafkatool.core.operations.requests import log_dirs

        return log_dirs.find(client, wanted)

    def _note_ways_on(self, mode: str) -> None:
        """Say what goes on without this command, and what to type: ``mode`` to wait on, and the others (RSN-23X)."""
        self.out.note("what moves goes on without kt; a throttle stays")
        ways = [(mode, "wait on; takes the throttle off when nothing moves any more")]
        if "--rollback" not in mode:  # else it is on its way back already
            cancel = self.cancelling(rollback=False)
            if "--cancel" not in mode:
                ways += [("--verify", "look"), (cancel, "send back what is under way")]
            if self.files.rollback.is_file():
                ways.append((self.cancelling(rollback=True), "send back what has ended, too"))
            if "--cancel" not in mode:
                ways.append((f"--execute --additional --throttle {RATE}", f"another throttle; {RATE}: {RATE_MEANS}"))
        for flags, what in ways:
            self.out.note(f"{self.command(flags)}  # {what}")

    def show_refusals(self, head: str, refused: Mapping[TopicPartition, BrokerAnswerError]) -> None:
        """Tell what the controller refused, and why."""
        self.out.line(head)
        self.out.lines(f"{partition}: {error}" for partition, error in sorted(refused.items()))

    def show_items(self, items: Sequence[dict[str, Any]], cluster_id: str | None, errors: Sequence[Any] = ()) -> None:
        """Show the answer in the forms other than text, which was printed as things happened."""
        if not self.out.is_text:
            self.out.show(Answer((), items, COLUMNS, cluster_id, errors))
