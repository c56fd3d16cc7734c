"""A drain carried out: rounds of plans, each a run that can be interrupted, until nothing names the brokers (ADM-106).

Each round has files of its own: ``drain-1-2.json``, then ``drain-1-2.round-2.json``, with the state file and the way back
that runs of `reassignment` keep. A further round is for topics that came, or grew, onto the brokers meanwhile.
"""

import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafkatool.core.client.access import BrokerAccess
from kafkatool.core.errors import LoginRefusedError, RefusedError, TlsError
from kafkatool.core.model.values import join_ids
from kafkatool.core.operations.brokers.answers import Answers, ask_brokers
from kafkatool.core.operations.drain.planning import DrainPlan, check_known, held_by, plan_drain
from kafkatool.core.operations.drain.proof import Proof, look
from kafkatool.core.operations.reassignment import throttles
from kafkatool.core.operations.reassignment.events import Ended, Event
from kafkatool.core.operations.reassignment.following import Progress
from kafkatool.core.operations.reassignment.replica_sizes import read_sizes
from kafkatool.core.operations.reassignment.run import Run
from kafkatool.core.operations.reassignment.saved_run import RunFiles, RunState
from kafkatool.core.operations.reassignment.submission import Prepared, prepare
from kafkatool.core.operations.reassignment.throttles import SavedThrottle
from kafkatool.core.planner.consequences import BrokerConsequences, broker_consequences
from kafkatool.core.planner.plan_files import Moves, dashed, parse_plan, plan_json, read_text, write_file
from kafkatool.core.zookeeper.cluster_view import ClusterView, read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper

ROUNDS: Final = 3
PROOF_S: Final = 60.0  # for brokers to delete what they hold no more
PAUSE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Planned(Event):
    """A round is planned, and nothing of it written. ``consequences``: of each broker, with bytes where told."""

    number: int
    plan: DrainPlan
    consequences: tuple[BrokerConsequences, ...]
    throttle: int | None


@dataclass(frozen=True, slots=True)
class Proven(Event):
    """What is left of each broker, and config nodes whose throttle is not as it was; ``drained``: nothing of either."""

    proofs: tuple[Proof, ...]
    throttled: tuple[str, ...]

    @property
    def drained(self) -> bool:
        return all(proof.drained for proof in self.proofs) and not self.throttled


@dataclass(frozen=True, slots=True)
class Terms:
    """How replicas are moved: bytes per second and broker (None: unthrottled), and partitions of one batch (0: all)."""

    throttle: int | None
    batch_partitions: int
    rack_aware: bool


class Drain:
    """The drain of some brokers over one session, by one thread. Its methods work while their events are taken.

    Whoever takes them calls ``end_early`` if anything cuts them short. ``on_progress`` is told how far a round is.
    """

    def __init__(
        self,
        zk: ZooKeeper,
        brokers: Sequence[int],
        directory: Path,
        *,
        on_progress: Callable[[Progress], None],
        timeout_s: float | None = None,
        access: BrokerAccess,
    ) -> None:
        self._access = access
        self._zk, self._brokers, self._directory = zk, sorted(set(brokers)), directory
        self._on_progress, self._timeout_s = on_progress, timeout_s
        self._run: Run | None = None
        self.plan_file = ""  # that of the round that is worked on
        self._before: dict[tuple[str, str], SavedThrottle] = {}

    def files(self, number: int) -> RunFiles:
        """Return the files of a round, from 1."""
        later = "" if number == 1 else f".round-{number}"
        return RunFiles(str(self._directory / f"drain-{join_ids(self._brokers, '-')}{later}.json"))

    # --- plan and start ---------------------------------------------------------------------------------------------

    def plan(self, number: int, terms: Terms) -> tuple[Planned, Prepared]:
        """Plan a round; writes nothing. Raises RefusedError, also where a login that the proof needs is refused."""
        view = read_cluster(self._zk)
        for error in self._ask(view).silent.values():
            if isinstance(error, LoginRefusedError | TlsError):
                raise RefusedError(f"{error}; nothing was written, as it could not be proven")
        plan = plan_drain(view, self._brokers, rack_aware=terms.rack_aware)
        sizes = read_sizes(view.brokers.values(), plan.moves, self._access)
        rows = broker_consequences(plan.current, plan.proposed, [*plan.targets, *self._brokers], sizes)
        prepared = prepare(
            self._zk, plan.moves, throttle=terms.throttle, max_count=terms.batch_partitions, name_of=dashed
        )
        return Planned(number, plan, rows, terms.throttle), prepared

    def start(self, terms: Terms) -> Iterator[Event]:
        """Empty the brokers. Raises RefusedError, with nothing written: it cannot be done, or was begun before."""
        if begun := self._unfinished():
            raise RefusedError(
                f"{self.files(begun).state} is that of a drain that was not finished",
                now="--resume goes on, --cancel ends it",
            )
        check_known(read_cluster(self._zk, states=False), self._brokers)
        for later in range(2, ROUNDS + 1):  # of a drain in former times, which --cancel must not take for this one's
            if (stale := Path(self.files(later).plan)).is_file():
                stale.replace(stale.with_suffix(".json.old"))
        yield from self._rounds(1, terms)

    def resume(self, terms: Terms) -> Iterator[Event]:
        """Go on where a drain ended; ``terms`` are those of a further round. Raises RefusedError: none was cut short."""
        number = self._unfinished()
        if not number:
            raise RefusedError(f"nothing to resume: there is no {self.files(1).state}")
        files = self.files(number)
        with files.alone():
            plan = _read_plan(files)
            state = RunState.read(files.state, plan)
            self._note_before(state.throttles)
            run = self._of(files, plan)
            if not (yield from self._followed(run.resume(state, self._access, force=False, timeout_s=self._timeout_s))):
                return
        yield from self._rounds(number + 1, terms)

    def _rounds(self, first: int, terms: Terms) -> Iterator[Event]:
        for number in range(first, ROUNDS + 1):
            if not held_by(read_cluster(self._zk, states=False), self._brokers):
                break
            planned, prepared = self.plan(number, terms)
            yield planned
            files = self.files(number)
            write_file(Path(files.plan), plan_json(planned.plan.moves))
            with files.alone():
                self._note_before(throttles.saved(prepared.throttle_writes))
                run = self._of(files, planned.plan.moves)
                if not (yield from self._followed(run.start(prepared, followed=True, timeout_s=self._timeout_s))):
                    return
        yield self.prove()

    def _of(self, files: RunFiles, plan: Moves) -> Run:
        self.plan_file = files.plan
        self._run = Run(self._zk, plan, files, name_of=dashed, on_progress=self._on_progress)
        return self._run

    def _followed(self, events: Iterator[Event]) -> Generator[Event, None, bool]:
        """Yield the events of a run. Return whether it ended with all as planned."""
        done = False
        for event in events:
            if isinstance(event, Ended):
                done = event.completed and event.finished
            yield event
        return done

    def end_early(self) -> Iterator[Event]:
        """Leave a round that was cut short in order, as its run does."""
        if self._run is not None:
            yield from self._run.end_early()

    def _unfinished(self) -> int:
        """Return the round that has left its state file; 0: none has."""
        return next((n for n in range(ROUNDS, 0, -1) if self.files(n).state.exists()), 0)

    def _note_before(self, saved: Iterable[SavedThrottle]) -> None:
        for throttle in saved:
            self._before.setdefault((throttle.entity_type, throttle.name), throttle)

    # --- prove ------------------------------------------------------------------------------------------------------

    def prove(self) -> Proven:
        """Look until nothing is left of the brokers, or for PROOF_S: replicas are deleted after they have left.

        So long a broker is asked again, too, that does not answer: it may be busy with that.
        """
        deadline = time.monotonic() + PROOF_S
        while True:
            view = read_cluster(self._zk)
            answers = self._ask(view)
            proofs = look(view, self._brokers, answers)
            proven = Proven(proofs, tuple(throttles.not_restored(self._zk, self._before.values())))
            untold = {proof.broker for proof in proofs if proof.on_disk is None} - set(answers.silent)
            settled = all(proof.drained or proof.assigned or proof.broker in untold for proof in proofs)
            if settled or time.monotonic() >= deadline:
                return proven
            time.sleep(PAUSE_S)

    def _ask(self, view: ClusterView) -> Answers:
        """Ask those of the brokers that are live what is on their disks."""
        asked = [view.brokers[b] for b in self._brokers if b in view.brokers]
        return ask_brokers(asked, self._access, client_id="kt-drain")

    # --- cancel -----------------------------------------------------------------------------------------------------

    def cancel(self, *, rollback: bool) -> Iterator[Event]:
        """Send nothing more, and what is under way back; ``rollback``: what has arrived too, round by round.

        Raises RefusedError: no drain of these brokers was begun here.
        """
        last = self._unfinished() or ROUNDS
        begun = [n for n in range(last, 0, -1) if Path(self.files(n).plan).is_file()]
        if not begun:
            raise RefusedError(f"nothing to cancel: there is no {self.files(1).plan}")
        for number in begun if rollback else begun[:1]:
            files = self.files(number)
            plan = _read_plan(files)
            yield from self._of(files, plan).cancel(
                files.known_way_back(plan, name_of=dashed),
                self._access,
                rollback=rollback,
                timeout_s=self._timeout_s,
                force=False,
                preserve_throttles=False,
            )

    def end_cancel(self) -> Iterator[Event]:
        """Tell where things stand when a cancel was cut short."""
        if self._run is not None:
            yield from self._run.end_cancel(preserve_throttles=False)


def _read_plan(files: RunFiles) -> Moves:
    return parse_plan(read_text(files.plan, sys.stdin), files.plan, name_of=dashed)
