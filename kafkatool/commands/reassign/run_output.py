"""The events of a run as text: Kafka's words on stdout, kt's own and the progress on stderr."""

from contextlib import ExitStack
from typing import Final, Self

from kafkatool.commands.reassign.modes import PlanMode
from kafkatool.commands.reassign.progress import ProgressView
from kafkatool.commands.reassign.rows import status_lines
from kafkatool.core.operations.reassignment import events
from kafkatool.core.operations.reassignment.following import Progress
from kafkatool.core.operations.reassignment.status import Status
from kafkatool.core.operations.reassignment.submission import Prepared
from kafkatool.core.planner.plan_files import CURRENT_ASSIGNMENT, plan_json

THROTTLE_WARNING: Final = (
    "Warning: You must run Verify periodically, until the reassignment completes, to ensure the throttle is removed. "
    "You can also alter the throttle by rerunning the Execute command passing a new value."
)


class RunOutput:
    """The output of one command about a run. As a context it ends the line of progress, whatever happens."""

    def __init__(self, mode: PlanMode) -> None:
        self._mode, self._out = mode, mode.out
        self._view: ProgressView | None = None
        self._views = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._views.close()

    def progress(self, p: Progress) -> None:
        """Show how far it is, in the line that Following has begun."""
        assert self._view is not None
        self._view.show(p)

    def show(self, event: events.Event) -> None:
        """Show what has happened."""
        self._views.close()
        match event:
            case events.Following():
                self._view = self._views.enter_context(ProgressView(self._out, event.copying, event.what))
            case events.Unchanged():
                self._out.note(f"{event.partitions} partitions of the plan have the planned replicas already")
            case events.WayBack():
                self._show_way_back(event)
            case events.Started():
                self._show_started(event.prepared)
            case events.Ended():
                self._show_ended(event)
            case events.ThrottleRemoved():
                for path in event.changed:
                    self._out.note(f"{path} was changed by somebody else meanwhile: its throttle was left as it is")
                self._out.line("Throttle was removed.")
            case events.LeftUnfinished():
                self._show_ways_on(event)
            case events.NotCancelled():
                self._out.note(f"{event.why}; the run that this file is of is not cancelled")
            case events.StillCarriedOut():
                self._out.note("the kt that carries out this plan is still there; it sends nothing more once it looks")

    def _show_way_back(self, event: events.WayBack) -> None:
        how = ", as an earlier run saved it: this run changes nothing" if not event.saved else ""
        if event.kept:
            how = f"; the one of an earlier run is kept as {event.kept}"
        self._out.note(f"rollback plan: {event.file}{how}")
        self._out.lines(
            [
                CURRENT_ASSIGNMENT,
                "",
                plan_json(event.prepared.way_back),
                "",
                "Save this to use as the --reassignment-json-file option during rollback",
                *([THROTTLE_WARNING] if event.prepared.throttle is not None else []),
            ]
        )

    def _show_started(self, prepared: Prepared) -> None:
        if prepared.throttle is not None:
            self._out.line(f"The throttle limit was set to {prepared.throttle} B/s")
        self._out.line(f"Successfully started reassignment of partitions {plan_json(prepared.moves)}")
        if not prepared.controller:
            self._out.note("no controller is elected: nothing moves until a broker becomes it")
        if len(prepared.batches) > 1:
            self._out.note(f"{len(prepared.batches)} batches, each sent when the one before it has ended")

    def _show_ended(self, event: events.Ended) -> None:
        sent = [m for m in event.moves if m.status is not Status.PENDING]
        self._out.lines(status_lines(sent, self._mode.name_of))
        if event.finished:
            return
        moving = any(m.status is Status.IN_PROGRESS for m in event.moves)
        goes_on = "the reassignment goes on" if moving else "nothing is under way"
        self._out.note(f"not finished after {self._mode.timeout:g} s: {goes_on}")
        if event.unsent:
            self._out.note(f"{event.unsent} partitions were not sent")

    def _show_ways_on(self, event: events.LeftUnfinished) -> None:
        """Say which commands go on from here (RSN-23X)."""
        if event.unseen is not None:
            self._out.note(f"{event.unseen}: whether the throttle must stay cannot be seen")
        if event.moving:
            stays = "; the throttle stays" if event.throttled else ""
            self._out.note(f"the brokers go on with what was sent, without kt{stays}")
        way = "go on; takes the throttle off when all is done" if event.throttled else "go on"
        for what, mode in ((way, "--execute --resume"), ("look", "--verify"), ("send no more", "--cancel")):
            self._out.note(f"{self._mode.command(mode)}  # {what}")
