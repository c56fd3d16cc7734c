"""``kt reassign --cancel`` and ``--list`` with ``--bootstrap-controller``: no broker is asked, nor need one be up (ADM-4).

A controller lists what moves and cancels it. It tells the replicas of nothing else, so what a cancel leaves is judged by
what it listed before: the replicas without those that were being added.
"""

import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from kafkatool.commands.reassign.cancel_by_request import NO_LOG_DIR_MOVES, CancelMode
from kafkatool.commands.reassign.request_mode import named, plural_of
from kafkatool.commands.reassign.rows import item
from kafkatool.core.model.moves import Move, Status
from kafkatool.core.model.values import TopicPartition, join_ids
from kafkatool.core.operations.requests import planned, reassignments, throttles_by_controller
from kafkatool.core.operations.requests.moving import read_moves
from kafkatool.core.operations.requests.throttles import LOG_DIR_RATE
from kafkatool.core.planner.plan_files import dashed

if TYPE_CHECKING:
    from kafkatool.core.client.controllers import ControllerClient

POLL_S: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelByController(CancelMode):
    """The flags of ``--cancel``, without ``--rollback``: what has ended is not told."""

    LACKING = "Missing required option(s): reassignment-json-file"

    preserve_throttles: bool
    dry_run: bool

    def carry_out(self) -> int:
        """Cancel what moves of the plan, at once; throttles go when nothing moves any more (ADM-37, ADM-38)."""
        plan, dirs = self.read_plan_and_log_dirs()
        origin = self.files.known_way_back(plan, name_of=dashed)
        with self.client() as connected:
            client = cast("ControllerClient", connected)
            moving = read_moves(client, plan, needed=True)
            requests = reassignments.requests(client, dict.fromkeys(sorted(moving)))
            brokers = {b for replicas in plan.values() for b in replicas}
            brokers |= {b for m in moving.values() for b in m.replicas}
            topics = {p.topic for p in plan}
            if self.dry_run:
                shown = planned.plan_moves(client, requests)
                clears = not self.preserve_throttles and not set(read_moves(client, needed=True)).difference(plan)
                if clears:
                    removal = throttles_by_controller.removal_request(
                        brokers, throttles_by_controller.find_lists(client, topics)
                    )
                    throttles_by_controller.remove(client, removal, validate_only=True)
                    shown += planned.plan_configs(client, [(None, removal)])
                self.out.planned_requests(shown, judged=clears)
                return 0
            cancelled, refused = self.turn_round(client, requests, sorted(moving))
            untold = [r for r in dirs if r.partition not in moving or r.broker in moving[r.partition].origin]
            if untold:
                self.out.note(
                    f"whether {named(untold)} moves to another log directory only brokers tell, and cancel: --cancel with "
                    "--bootstrap-server"
                )
            else:
                self.out.line(NO_LOG_DIR_MOVES)
            limit_s = client.settings.whole_timeout_ms / 1000 if self.timeout is None else self.timeout
            left = self._await_end(client, cancelled, limit_s)
            self._clear_throttles(client, plan, brokers, topics)
            found = [
                Move(p, m.replicas, plan[p], Status.IN_PROGRESS)
                if p in left or p in refused
                else Move(p, m.origin, plan[p], Status.FAILED)
                for p, m in sorted(moving.items())
            ]
            strange = [
                Move(m.partition, m.current, origin[m.partition], Status.FAILED)
                for m in found
                if m.status is Status.FAILED and origin.get(m.partition, m.current) != m.current
            ]
            self.note_strange(strange)
            if left:
                self.out.note("not finished: what is under way goes on; the same command looks again")
            self.show_items([item(m) for m in found], client.cluster_id)
        return 0 if not left and not refused and not strange and not untold else 1

    def _await_end(
        self, client: "ControllerClient", cancelled: Collection[TopicPartition], limit_s: float
    ) -> Collection[TopicPartition]:
        """Wait until none of them moves; return those that still do when the time is up."""
        deadline = time.monotonic() + limit_s
        left: Collection[TopicPartition] = cancelled
        while left:
            client.begin_anew()
            left = read_moves(client, cancelled, needed=True)
            if left and time.monotonic() >= deadline:
                break
            time.sleep(POLL_S if left else 0)
        return left

    def _clear_throttles(
        self, client: "ControllerClient", plan: Collection[TopicPartition], brokers: Collection[int], topics: set[str]
    ) -> None:
        if self.preserve_throttles:
            return
        if moving := read_moves(client, needed=True):
            if set(moving).difference(plan):
                self.out.note("other partitions are being moved: the throttle stays")
            return
        lists = throttles_by_controller.find_lists(client, topics)
        self.out.line(f"Clearing broker-level throttles on broker{plural_of(brokers)} {join_ids(sorted(brokers))}")
        if lists:
            self.out.line(f"Clearing topic-level throttles on topic{plural_of(lists)} {','.join(lists)}")
        throttles_by_controller.remove(client, throttles_by_controller.removal_request(brokers, lists))
        self.out.note(
            f"{LOG_DIR_RATE} stays where it is set: controllers do not tell whether replicas move between log directories"
        )
