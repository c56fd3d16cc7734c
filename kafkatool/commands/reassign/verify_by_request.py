"""``kt reassign --verify`` with ``--bootstrap-server``: how far a plan is, in the words of Kafka's own tool of 3.9 (ADM-36).

Throttles go when nothing moves any more, whoever began it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkatool.commands.reassign.request_mode import RequestPlanMode
from kafkatool.commands.reassign.rows import item, requested_lines
from kafkatool.commands.shared.output import error_item
from kafkatool.commands.shared.termination import terminated_like_interrupted
from kafkatool.core.errors import RefusedError
from kafkatool.core.model.moves import Status
from kafkatool.core.operations.requests import comparing

if TYPE_CHECKING:
    from kafkatool.core.operations.requests.log_dirs import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyByRequest(RequestPlanMode):
    """The flags of ``--verify``."""

    LACKING = "Missing required option(s): reassignment-json-file"

    rollback: bool
    wait: bool
    preserve_throttles: bool

    def carry_out(self) -> int:
        """Return 0 when every partition has the planned replicas; throttles go when nothing moves any more (ADM-36)."""
        plan, dirs = self.read_plan_and_log_dirs()
        if self.rollback:
            plan, dirs = self.read_rollback(plan), {}  # the way back names none
        with terminated_like_interrupted(), self.client() as client:
            again = self.waiting(rollback=self.rollback)
            if self.wait and not (
                self.await_end(client, plan, self.timeout, way_on=again)
                and self.await_log_dirs(client, dirs, self.timeout)
            ):
                self.out.note(f"not finished after {self.timeout:g} s: the reassignment goes on")
            seen = None if self.preserve_throttles else comparing.look(client, plan)
            found = comparing.compare_again(client, plan, comparing.compare(client, plan, *(seen or ())))
            placed = self.read_placements(client, dirs)
            ends = [one.text for one in placed] or [""]
            self.out.lines(["Status of partition reassignment:", *requested_lines(found), *ends])
            back = f"{self.command(self.cancelling(rollback=True))}  # send them"
            self.note_not_under_way(found, back if self.rollback else self.sending)
            moving = any(one.state.is_moving for one in placed)
            self.finish(client, plan, preserve_throttles=self.preserve_throttles or moving, look=seen)
            self.show_items(
                [item(m) for m in found] if not self.out.is_text else (),
                client.cluster_id,
                [_not_placed(one) for one in placed if not one.state.is_completed],
            )
        completed = Status.COMPLETED
        done = all(m.status is completed for m in found)
        return 0 if done and all(one.state.is_completed for one in placed) else 1


def _not_placed(placement: "Placement") -> dict[str, Any]:
    """Make an entry of ``errors`` for a replica that is not in the log directory of the plan."""
    partition, broker = placement.replica
    return error_item(RefusedError(placement.text), **partition._asdict(), broker=broker)
