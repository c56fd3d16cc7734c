"""The events of a run as text: Kafka's words on stdout; kt's own, and the line of progress (RSN-33X), on stderr."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Final

from kafkatool.commands.reassign.modes import PlanMode
from kafkatool.commands.reassign.rows import left_throttle_text, status_lines, unchanged_line, way_back_line
from kafkatool.commands.shared.run_progress import (
    RunProgressLine,
    awaited_line,
    gone_line,
    rates_left_line,
    released_line,
)
from kafkatool.core.model.moves import Status
from kafkatool.core.model.values import TopicPartition, first_of, in_number
from kafkatool.core.operations.reassignment import events
from kafkatool.core.operations.reassignment.following import Progress
from kafkatool.core.operations.reassignment.submission import CANCELLED_BY_REQUEST, Submission
from kafkatool.core.planner.plan_files import CURRENT_ASSIGNMENT, plan_json
from kafkatool.core.zookeeper.znodes import ConfigChangeZnode, ReassignmentZnode

THROTTLE_WARNING: Final = (
    "Warning: You must run Verify periodically, until the reassignment completes, to ensure the throttle is removed. "
    "You can also alter the throttle by rerunning the Execute command passing a new value."
)
NUMBERED: Final = (ConfigChangeZnode.PREFIX,)  # paths that get a number from ZooKeeper
SHOWN: Final = 10  # names of partitions in a note


class RunOutput(AbstractContextManager["RunOutput"]):
    """The output of one command about a run. As a context it ends the line of progress, whatever happens.

    ``brief``: plans are counted, not printed, as who follows a run has them in files. ``going_back``: what to type, and
    why, where a cancel that goes all the way back is cut short.
    """

    def __init__(self, mode: PlanMode, *, brief: bool = False, going_back: str | None = None) -> None:
        self._mode, self._out, self._brief, self._going_back = mode, mode.out, brief, going_back
        self._line = RunProgressLine(self._out.note)

    def __exit__(self, *_: object) -> None:
        self._line.end()

    def progress(self, p: Progress) -> None:
        """Show how far it is, in the line that Following has begun."""
        self._line.show(p)

    def show(self, event: events.Event) -> None:
        """Show what has happened."""
        self._line.end()
        match event:
            case events.Following():
                self._line.begin(event)
            case events.Unchanged():
                self._out.note(unchanged_line(event.partitions, of_all=event.all))
            case events.ThrottleFound():
                self._out.note(
                    f"an earlier plan has left its throttle, and this one may move under it: "
                    f"{left_throttle_text(event.left)}"
                )
                self._out.note(
                    f"{self._mode.to_type('--list')}  # when this plan has ended: tells how to take that off"
                )
            case events.WayBack():
                self._show_way_back(event)
            case events.Started():
                self._show_started(event.prepared)
            case events.StartCutShort():
                self._show_start_cut_short(event)
            case events.Ended():
                self._show_ended(event)
            case events.RatesLeft():
                self._out.note(rates_left_line(event))
                self._out.note(f"{self._mode.to_type('--list')}  # tells how to take them off")
            case events.ThrottleRemoved():
                for path in event.changed:
                    self._out.note(f"{path} was changed by somebody else meanwhile: its throttle was left as it is")
                self._out.line("Throttle was removed.")
            case events.ThrottleStays():
                self._out.note(
                    "other partitions are being moved: the throttle stays; --verify takes it off when they are"
                )
            case events.Gone():
                self._out.note(gone_line(event, self._names(event.partitions)))
            case events.SentBack():
                what = in_number(event.partitions, "partition under way is", "partitions under way are")
                self._out.note(f"{what} sent back to the replicas from before")
            case events.Released():
                self._out.note(released_line(event))
            case events.NotSentBack():
                self._show_not_sent_back(event)
            case events.MovedByRequest():
                self._out.note(
                    f"{self._names(event.partitions)}: moved by a request to the controller, and not cancelled"
                )
                self._out.note(CANCELLED_BY_REQUEST)
            case events.NotTurnedRound():
                self._show_not_turned_round(event)
            case events.CancelCutShort():
                self._show_cut_short(event)
            case events.LeftUnfinished():
                self._show_ways_on(event)
            case events.NotCancelled():
                self._out.note(f"{event.why}; the run that this file is of is not cancelled")
            case events.StillCarriedOut():
                self._out.note("the kt that carries out this plan is still there; it sends nothing more once it looks")

    def _show_way_back(self, event: events.WayBack) -> None:
        self._out.note(way_back_line(event.file, saved=event.saved, kept=event.kept, moved=event.moved))
        if self._brief:  # kt itself takes the throttle off
            return
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

    def _show_started(self, prepared: Submission) -> None:
        if prepared.throttle is not None:
            self._out.line(f"The throttle limit was set to {prepared.throttle} B/s")
        many = in_number(len(prepared.moves), "partition", "partitions")
        what = many if self._brief else f"partitions {plan_json(prepared.moves)}"
        self._out.line(f"Successfully started reassignment of {what}")
        if not prepared.controller:
            self._out.note("no controller is elected: nothing moves until a broker becomes it")
        if len(prepared.batches) > 1:
            self._out.note(f"{len(prepared.batches)} batches, each sent when the one before it has ended")

    def _show_start_cut_short(self, event: events.StartCutShort) -> None:
        """Say where a plan stands that nobody follows, and what to type (RSN-23X)."""
        listing = f"{self._mode.to_type('--list')}  # shows what moves, and how to take off a throttle that is left"
        if event.unseen is not None:
            self._out.note(f"{event.unseen}: whether the plan was begun, and its throttle stays, cannot be seen")
            self._out.note(listing)
        elif event.begun:
            self._out.note("the plan was begun and goes on without kt; the throttle stays")
            self._out.note(f"{self._mode.command('--verify')}  # look; takes the throttle off when all is done")
        elif event.throttled:
            self._out.note("nothing of the plan is under way, but throttles are not as they were")
            self._out.note(listing)
        else:
            self._out.note("nothing of the plan is under way; throttles are as they were")

    def _show_ended(self, event: events.Ended) -> None:
        sent = [m for m in event.moves if m.status is not Status.PENDING]
        self._out.lines(status_lines(sent, self._mode.name_of))
        if event.finished:
            return
        moving = any(m.status is Status.IN_PROGRESS for m in event.moves)
        goes_on = "the reassignment goes on" if moving else "nothing is under way"
        self._out.note(f"not finished after {self._mode.timeout:g} s: {goes_on}")
        if event.awaited:
            self._out.note(awaited_line(event.awaited))
        if event.unsent:
            self._out.note(in_number(event.unsent, "partition was not sent", "partitions were not sent"))

    def _show_ways_on(self, event: events.LeftUnfinished) -> None:
        """Say which commands go on from here (RSN-23X)."""
        if event.unseen is not None:
            self._out.note(f"{event.unseen}: whether the throttle must stay cannot be seen")
        if event.moving:
            stays = "; the throttle stays" if event.throttled else ""
            self._out.note(f"the brokers go on with what was sent, without kt{stays}")
        way = "go on; takes the throttle off when all is done" if event.throttled else "go on"
        cancel = self._mode.cancelling(rollback=False)
        ways = [(way, "--execute --resume"), ("look", "--verify"), ("send no more", cancel)]
        if self._mode.files.rollback.is_file():
            ways.append(("go back to the replicas from before", f"{cancel} --rollback"))
        for what, mode in ways:
            self._out.note(f"{self._mode.command(mode)}  # {what}")

    def _names(self, partitions: Sequence[TopicPartition]) -> str:
        return first_of(list(map(self._mode.name_of, partitions)), SHOWN, ",")

    def _show_not_sent_back(self, event: events.NotSentBack) -> None:
        self._out.note(
            f"{self._names(event.partitions)}: under way, and {self._mode.files.rollback} does not tell a way back: their "
            "end is waited for"
        )

    def _show_not_turned_round(self, event: events.NotTurnedRound) -> None:
        """Say what remains to be done: kt deletes neither the request nor the controller's node (RSN-37X)."""
        still = in_number(event.partitions, "partition has", "partitions have")
        asked = f"{still} not gone back yet, though {ReassignmentZnode.PATH} asks for it"
        if event.controller is None:
            self._out.note(f"{asked}: no controller is elected")
            return
        self._out.note(
            f"{asked}. Kafka's controllers read it anew only when one is elected: restart broker {event.controller}, and "
            "the next controller takes them back"
        )

    def _show_cut_short(self, event: events.CancelCutShort) -> None:
        """Say where things stand when a cancel ends before what it has asked for (RSN-23X)."""
        back = in_number(event.back, "partition is asked to go back", "partitions are asked to go back")
        forward = in_number(event.forward, "partition goes on", "partitions go on")
        parts = [back] if event.back else []
        parts += [f"{forward} to the planned replicas"] if event.forward else []
        stays = "; the throttle stays" if event.throttled else "; no throttle is left"
        idle = "what requests move goes on" if event.copying else "nothing of the plan is under way"
        self._out.note((", ".join(parts) or idle) + stays)
        if self._going_back is not None:
            self._out.note(self._going_back)
        elif event.throttled:
            self._out.note(f"{self._mode.command('--cancel')}  # takes it off when nothing is copied any more")
