"""The events of a drain as text: the plan and the proof on stdout, progress and the ways on on stderr."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from kafkatool.commands.shared.output import Output
from kafkatool.commands.shared.plan_table import broker_lines, throttled_line, total_line
from kafkatool.commands.shared.run_progress import (
    RunProgressLine,
    awaited_line,
    gone_line,
    rates_left_line,
    released_line,
)
from kafkatool.core.model.moves import Status
from kafkatool.core.model.values import first_of, in_number, join_ids
from kafkatool.core.operations.drain.drain import Planned, Proven, Unproven
from kafkatool.core.operations.drain.proof import Proof
from kafkatool.core.operations.reassignment import events
from kafkatool.core.operations.reassignment.copy_progress import Share
from kafkatool.core.operations.reassignment.following import Progress

COLUMNS: Final = ("broker", "live", "drained", "assigned", "in_isr", "leads", "on_disk")
SHOWN: Final = 10  # names of partitions in a line


@dataclass(frozen=True, slots=True)
class WaysOn:
    """What to type: to go on, to start the same drain again, to cancel it, and to bring all back.

    ``again``: the one of the last two that this command is.
    """

    resuming: str
    starting: str
    cancelling: str
    going_back: str
    again: str


class DrainOutput(AbstractContextManager["DrainOutput"]):
    """The output of one drain. As a context it ends the line of progress, whatever happens."""

    def __init__(self, out: Output, ways_on: WaysOn) -> None:
        self._out, self._ways_on = out, ways_on
        self._line = RunProgressLine(self._out.note)

    def __exit__(self, *_: object) -> None:
        self._line.end()

    def progress(self, p: Progress) -> None:
        """Show how far it is."""
        self._line.show(p)

    def show(self, event: events.Event) -> None:
        """Show what has happened."""
        self._line.end()
        match event:
            case Planned():
                self.show_plan(event)
            case Proven():
                self._out.lines(proof_lines(event))
            case events.Following():
                self._line.begin(event)
            case events.WayBack():
                kept = f"; the one of an earlier drain is kept as {event.kept}" if event.kept else ""
                self._out.note(f"rollback plan: {event.file}{kept}")
            case events.Started():
                self._out.note(f"started: {in_number(len(event.prepared.moves), 'partition', 'partitions')}")
                if not event.prepared.controller:
                    self._out.note("no controller is elected: nothing moves until a broker becomes it")
            case events.Ended():
                failed = [m.partition for m in event.moves if m.status is Status.FAILED]
                if failed:
                    self._out.note(f"not moved as planned: {first_of(failed, SHOWN)}")
                if not event.finished:
                    self._out.note("not finished in time")
                    if event.awaited:
                        self._out.note(awaited_line(event.awaited))
            case events.ThrottleRemoved():
                self._out.note("throttles are as they were before")
                for path in event.changed:
                    self._out.note(f"{path} was changed by somebody else meanwhile: its throttle was left as it is")
            case events.RatesLeft():
                self._out.note(rates_left_line(event))
            case events.ThrottleLeft():
                brokers = join_ids(event.brokers, ", ")
                self._out.note(f"broker {brokers} cannot be asked, being down: a throttle may be left there")
            case events.ThrottleStays():
                self._out.note("other partitions are being moved: the throttle stays")
            case events.LeftUnfinished():
                if event.moving:
                    self._out.note("the brokers go on with what was sent, without kt")
                if event.unseen is not None:
                    self._out.note(f"{event.unseen}: whether the throttle must stay cannot be seen")
                self._out.note(f"{self._ways_on.resuming}  # go on")
                self._out.note(f"{self._ways_on.cancelling}  # send no more, turn round what moves")
                self._out.note(f"{self._ways_on.going_back}  # bring all back")
            case Unproven():
                self._out.note(f"{self._ways_on.starting}  # look again whether anything is left")
                self._out.note(f"{self._ways_on.going_back}  # bring all back")
            case events.Gone():
                self._out.note(gone_line(event, first_of(event.partitions, SHOWN)))
            case events.SentBack():
                what = in_number(event.partitions, "partition under way is", "partitions under way are")
                self._out.note(f"{what} sent back to the replicas from before")
            case events.Released():
                self._out.note(released_line(event))
            case events.NotSentBack():
                self._out.note(f"not turned round, their end is waited for: {first_of(event.partitions, SHOWN)}")
            case events.MovedByRequest():
                self._out.note(
                    f"moved by a request to the controller, and not cancelled: {first_of(event.partitions, SHOWN)}"
                )
            case events.NotTurnedRound():
                self._out.note(
                    f"{in_number(event.partitions, 'partition has', 'partitions have')} not gone back yet: Kafka's "
                    f"controllers look only when one is elected: restart broker {event.controller}"
                )
            case events.StillCarriedOut():
                self._out.note("the kt that drains is still there; it sends nothing more once it looks")
            case events.CancelCutShort():
                stays = "; a throttle stays until it finds all done" if event.throttled else ""
                self._out.note(f"{self._ways_on.again}  # the same command looks again{stays}")
            case events.Cancelled():
                self._out.note("cancelled: nothing is under way" if event.ended else "what is under way goes on")

    def show_plan(self, event: Planned) -> None:
        """Show what the plan means, before anything of it is written."""
        if event.number > 1:
            self._out.note(f"round {event.number}: partitions came onto the brokers meanwhile")
        rows = event.consequences
        self._out.lines(
            [*broker_lines(rows, all_brokers=False), total_line(event.plan.current, event.plan.proposed, rows)]
        )
        copied, busiest = max(((row.copied_bytes or 0, row.broker) for row in rows), default=(0, 0))
        if (line := throttled_line(Share(busiest, copied) if copied else None, event.throttle)) is not None:
            self._out.note(line)
        if event.plan.less_spread:
            self._out.note(f"on fewer racks than before: {first_of(event.plan.less_spread, SHOWN)}")


def proof_item(proof: Proof) -> dict[str, Any]:
    """Return the JSON object and TSV row of one broker."""
    return {
        "broker": proof.broker,
        "live": proof.live,
        "drained": proof.drained,
        "assigned": list(map(str, proof.assigned)),
        "in_isr": list(map(str, proof.in_sync)),
        "leads": list(map(str, proof.leads)),
        "on_disk": None
        if proof.on_disk is None or (proof.offline and not proof.on_disk)
        else list(map(str, proof.on_disk)),
    }


def proof_lines(proven: Proven) -> list[str]:
    """Return a line for each broker: that nothing is left of it, or what is; and throttles that are not as before."""
    lines = []
    for proof in proven.proofs:
        left = [
            f"{what}: {first_of(partitions, SHOWN)}"
            for what, partitions in (
                ("still assigned", proof.assigned),
                ("in the ISR", proof.in_sync),
                ("led", proof.leads),
                ("on its disks", proof.on_disk or ()),
            )
            if partitions
        ]
        left += [f"its directory {path} is offline: what is there cannot be told" for path in proof.offline]
        if proof.live and proof.on_disk is None:
            left.append("it does not tell what is on its disks (that needs Describe on the cluster)")
        empty = "drained: no replica, no ISR, no leader" + (", nothing on its disks" if proof.live else "; it is dead")
        lines.append(f"broker {proof.broker}: {'; '.join(left) or empty}")
    return [*lines, *doubt_lines(proven)]


def doubt_lines(proven: Proven) -> list[str]:
    """Return a line for each thing beside the brokers that keeps the proof from holding."""
    lines = [f"{name}: its throttle is not as it was before" for name in proven.throttles.differs]
    lines += [f"{name} is down: whether its throttle is as before cannot be told" for name in proven.throttles.untold]
    return [*lines, *(f"not proven: {why}" for why in proven.hidden)]
