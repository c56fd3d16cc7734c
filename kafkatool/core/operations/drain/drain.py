"""A drain carried out: rounds of plans, each a run that can be interrupted, until nothing names the brokers (ADM-106).

Each round has files of its own: ``drain-1-2.json``, then ``drain-1-2.round-2.json``, with the state file and the way back
that runs of `reassignment` keep. A further round is for topics that came, or grew, onto the brokers meanwhile.
"""

import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Generic

from kafkatool.core.errors import KafkatoolError, LoginRefusedError, RefusedError, TlsError, UsageError
from kafkatool.core.model.moves import Move, Status
from kafkatool.core.model.values import TopicPartition, join_ids
from kafkatool.core.operations.brokers.answers import Answers
from kafkatool.core.operations.drain.planning import DrainPlan, check_known, held_by, plan_drain
from kafkatool.core.operations.drain.proof import Proof, prove
from kafkatool.core.operations.drain.requested_throttles import NotAsBefore
from kafkatool.core.operations.drain.way import Look, Round, S, Terms, Way
from kafkatool.core.operations.reassignment.events import Ended, Event
from kafkatool.core.operations.reassignment.following import Progress
from kafkatool.core.operations.reassignment.replica_sizes import largest
from kafkatool.core.operations.reassignment.runs.saved_run import RunFiles, RunState
from kafkatool.core.operations.reassignment.throttles import SavedThrottle
from kafkatool.core.planner.consequences import BrokerConsequences, broker_consequences
from kafkatool.core.planner.plan_files import Moves, dashed, parse_plan, plan_json, read_text, write_file

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
    """What is left of each broker, and of throttles; ``hidden``: why there may be more. ``drained``: nothing of all that."""

    proofs: tuple[Proof, ...]
    throttles: NotAsBefore
    hidden: tuple[str, ...]

    @property
    def drained(self) -> bool:
        return all(proof.drained for proof in self.proofs) and not any(self.throttles) and not self.hidden


@dataclass(frozen=True, slots=True)
class Unproven(Event):
    """It was cut short where nothing moves, and before it was proven what is left."""


class Drain(Generic[S]):
    """The drain of some brokers by one way, of one thread. Its methods work while their events are taken.

    Whoever takes them calls ``end_early`` if anything cuts them short. ``on_progress`` is told how far a round is.
    """

    def __init__(
        self,
        way: Way[S],
        brokers: Sequence[int],
        directory: Path,
        *,
        on_progress: Callable[[Progress], None],
        timeout_s: float | None = None,
    ) -> None:
        self._way, self._brokers, self._directory = way, sorted(set(brokers)), directory
        self._on_progress, self._timeout_s = on_progress, timeout_s
        self._round: Round[S] | None = None
        self._moved = False  # whether a round has ended
        self.plan_file = ""  # that of the round that is worked on
        self._before: dict[tuple[str, str], SavedThrottle] = {}

    def files(self, number: int) -> RunFiles:
        """Return the files of a round, from 1."""
        return _files(self._brokers, self._directory, number)

    # --- plan and start ---------------------------------------------------------------------------------------------

    def plan(self, terms: Terms) -> tuple[Planned, S] | None:
        """Plan the first round; None: the brokers hold nothing. Writes nothing.

        Raises RefusedError, also where an end could not be proven.
        """
        look = self._way.look(None)
        check_known(look.view, self._brokers)
        if not held_by(look.view, self._brokers):
            self._check_provable(look)
            return None
        return self._plan(look, 1, terms)

    def _plan(self, look: Look, number: int, terms: Terms) -> tuple[Planned, S]:
        self._check_provable(look)
        plan = plan_drain(look.view, self._brokers, rack_aware=terms.rack_aware)
        rows = broker_consequences(
            plan.current, plan.proposed, [*plan.targets, *self._brokers], _sizes(look.answers, plan.moves)
        )
        return Planned(number, plan, rows, terms.throttle), self._way.prepare(look, plan.moves, terms)

    def _check_provable(self, look: Look) -> None:
        """Raise RefusedError where it is known before that nobody will tell whether the brokers are empty."""
        told = [look.answers.told[b] for b in self._brokers if b in look.answers.told]
        silent = [look.answers.silent[b] for b in self._brokers if b in look.answers.silent]
        reasons = [str(e) for e in silent if isinstance(e, LoginRefusedError | TlsError)]
        reasons += [str(error) for answer in told if answer.log_dirs is None for error, _ in answer.refused]
        for why in (*reasons, *look.hidden):
            raise RefusedError(f"{why}; nothing was written, as it could not be proven")

    def start(self, terms: Terms) -> Iterator[Event]:
        """Empty the brokers. Raises RefusedError, with nothing written: it cannot be done, or was begun before."""
        if begun := self._unfinished():
            raise RefusedError(
                f"{self.files(begun).state} is that of a drain that was not finished",
                now="--resume goes on, --cancel ends it",
            )
        look = self._way.look(None)
        check_known(look.view, self._brokers)
        for later in range(2, ROUNDS + 1):  # of a drain in former times, which --cancel must not take for this one's
            if (stale := Path(self.files(later).plan)).is_file():
                stale.replace(stale.with_suffix(".json.old"))
        yield from self._rounds(look, 1, terms)

    def resume(self, terms: Terms) -> Iterator[Event]:
        """Go on where a drain ended; ``terms`` are those of a further round. Raises RefusedError: none was cut short."""
        number = self._unfinished()
        if not number:
            raise RefusedError(f"nothing to resume: there is no {self.files(1).state}")
        self._check_provable(self._way.look(None))
        files = self.files(number)
        with files.alone():
            plan = _read_plan(files)
            state = RunState.read(files.state, plan)
            self._note_before(state.throttles)
            work = self._of(files, plan)
            if not (yield from self._followed(work.resume(state, timeout_s=self._timeout_s))):
                return
        yield from self._rounds(self._way.look(None), number + 1, terms)

    def _rounds(self, look: Look, first: int, terms: Terms) -> Iterator[Event]:
        """Move what the brokers hold, round after round, and prove what is left. ``look`` asked all brokers."""
        for number in range(first, ROUNDS + 1):
            if not held_by(look.view, self._brokers):
                break
            planned, prepared = self._plan(look, number, terms)
            yield planned
            files = self.files(number)
            write_file(Path(files.plan), plan_json(planned.plan.moves))
            with files.alone():
                self._note_before(prepared.saved)
                work = self._of(files, planned.plan.moves)
                if not (yield from self._followed(work.start(prepared, timeout_s=self._timeout_s))):
                    return
            look = self._way.look(None)
        yield self.prove(look)

    def _of(self, files: RunFiles, plan: Moves) -> Round[S]:
        self.plan_file = files.plan
        self._round = self._way.round(plan, files, self._on_progress)
        return self._round

    def _followed(self, events: Iterator[Event]) -> Generator[Event, None, bool]:
        """Yield the events of a round. Return whether it ended with all as planned that is still there."""
        done = False
        for event in events:
            if isinstance(event, Ended):
                done = self._moved = event.finished and arrived(event.moves)
            yield event
        return done

    def end_early(self) -> Iterator[Event]:
        """Leave in order what was cut short: a round as its run does."""
        if self._unfinished() and self._round is not None:
            yield from self._round.end_early()
        elif self._moved:
            yield Unproven()

    def _unfinished(self) -> int:
        """Return the round that has left its state file; 0: none has."""
        return next((n for n in range(ROUNDS, 0, -1) if self.files(n).state.exists()), 0)

    def _note_before(self, saved: Iterable[SavedThrottle]) -> None:
        for throttle in saved:
            self._before.setdefault((throttle.entity_type, throttle.name), throttle)

    # --- prove ------------------------------------------------------------------------------------------------------

    def prove(self, look: Look) -> Proven:
        """Look until nothing is left of the brokers, or for PROOF_S: replicas are deleted after they have left.

        So long a broker is asked again, too, that does not answer: it may be busy with that. The first look is taken
        already.
        """
        deadline = time.monotonic() + PROOF_S
        while True:
            asked = None if set(self._brokers).difference(look.view.brokers) else self._brokers
            proofs = prove(look.view, self._brokers, look.answers)
            blind = look.blind if asked is None else ()
            hidden = (*look.hidden, *(f"broker {b} does not tell what is on its disks" for b in blind))
            untold = {proof.broker for proof in proofs if proof.on_disk is None} - set(look.answers.silent)
            settled = all(
                proof.drained or proof.assigned or proof.offline or proof.broker in untold for proof in proofs
            )
            if (settled and not blind) or time.monotonic() >= deadline:
                return Proven(proofs, self._way.find_not_as_before([*self._before.values()]), hidden)
            time.sleep(PAUSE_S)
            look = self._way.look(asked)

    # --- cancel -----------------------------------------------------------------------------------------------------

    def cancel(self, back: Terms | None) -> Iterator[Event]:
        """Send nothing more, and what is under way back; ``back``: what has arrived too, so, round by round.

        Raises RefusedError: no drain of these brokers was begun here. Before anything is touched it raises UsageError and
        RefusedError where the way back of a round cannot be read.
        """
        last = self._unfinished() or ROUNDS
        begun = [n for n in range(last, 0, -1) if Path(self.files(n).plan).is_file()]
        if not begun:
            raise RefusedError(f"nothing to cancel: there is no {self.files(1).plan}")
        rounds = []
        for files in map(self.files, begun[:1] if back is None else begun):
            plan = _read_plan(files)
            known = files.known_way_back(plan, name_of=dashed) if back is None else _read_way_back(files, plan)
            rounds.append((files, plan, known))
        for files, plan, origin in rounds:
            yield from self._of(files, plan).cancel(origin, back, timeout_s=self._timeout_s)

    def end_cancel(self) -> Iterator[Event]:
        """Tell where things stand when a cancel was cut short."""
        if self._round is not None:
            yield from self._round.end_cancel()


def arrived(moves: Iterable[Move]) -> bool:
    """Tell whether all is as planned that is still there: a topic that was deleted meanwhile is no failure."""
    return all(m.status is Status.COMPLETED or not m.current for m in moves)


def terms_begun(brokers: Sequence[int], directory: Path, terms: Terms) -> Terms:
    """Return ``terms`` with the throttle of those brokers' drain that was cut short; as they are where none was."""
    for number in range(ROUNDS, 0, -1):
        files = _files(sorted(set(brokers)), directory, number)
        with suppress(KafkatoolError):
            return replace(terms, throttle=RunState.read(files.state, _read_plan(files)).rate)
    return terms


def _files(brokers: Sequence[int], directory: Path, number: int) -> RunFiles:
    later = "" if number == 1 else f".round-{number}"
    return RunFiles(str(directory / f"drain-{join_ids(brokers, '-')}{later}.json"))


def _read_plan(files: RunFiles) -> Moves:
    return parse_plan(read_text(files.plan, sys.stdin), files.plan, name_of=dashed)


def _read_way_back(files: RunFiles, plan: Moves) -> Moves:
    """Read the way back of all that a round moves. Raises UsageError, RefusedError."""
    try:
        found = files.read_rollback(plan, sys.stdin, name_of=dashed)
        if lacking := sorted(set(plan).difference(found)):
            raise RefusedError(f"{files.rollback} lacks {','.join(map(dashed, lacking))} of {files.plan}")
    except (RefusedError, UsageError) as e:
        e.now = "nothing was touched; --cancel alone sends back what moves, without that file"
        raise
    return found


def _sizes(answers: Answers, moves: Moves) -> dict[TopicPartition, int]:
    """Return the bytes of the largest replica of each partition that moves, so far as brokers tell."""
    told = {b: {p: s for d in answer.log_dirs or () for p, s in d.sizes.items()} for b, answer in answers.told.items()}
    return {p: size for p, size in largest(told).items() if p in moves}
