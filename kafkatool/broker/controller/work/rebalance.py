"""Automatic leader balancing: every few minutes, preferred leaders for brokers that lead too few (CTL-107 to 109)."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kafkatool.broker.controller.context import ControllerContext
from kafkatool.broker.controller.work.preferred_election import PreferredElection
from kafkatool.broker.runtime.timer import Timer, TimerTask
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.core.model.values import TopicPartition

log = logging.getLogger(__name__)

_FIRST_MS = 5000


def imbalanced(
    preferred: Mapping[TopicPartition, int], leaders: Mapping[TopicPartition, int | None], percentage: int
) -> dict[int, list[TopicPartition]]:
    """Return the brokers that lead too few: over ``percentage`` of those they should lead are led by others; and which.

    ``preferred`` is AR[0] of each partition to look at. One that is not in ``leaders`` never had any, and is not led by
    another (ELE-11). Exactly the percentage is no imbalance (CTL-109).
    """
    should_lead: dict[int, int] = {}
    led_elsewhere: dict[int, list[TopicPartition]] = {}
    for partition, broker in preferred.items():
        should_lead[broker] = should_lead.get(broker, 0) + 1
        if partition in leaders and leaders[partition] != broker:
            led_elsewhere.setdefault(broker, []).append(partition)
    return {b: found for b, found in led_elsewhere.items() if len(found) * 100 > percentage * should_lead[b]}


@dataclass(eq=False)
class Rebalance:
    """The timer that puts a check into the queue; the next is set when that one is done."""

    context: ControllerContext
    config: BrokerConfig
    timer: Timer
    enqueue: Callable[[str, Callable[[], None]], None]
    preferred_election: PreferredElection
    _task: TimerTask | None = field(default=None, init=False)
    _is_stopped: bool = field(default=False, init=False)

    def start(self) -> None:
        """Set the first check, in 5 s, if enabled."""
        if self.config.auto_leader_rebalance_enable:
            self._arm(_FIRST_MS)

    def stop(self) -> None:
        """Have no further check, not even after one that is under way."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()

    def _arm(self, delay_ms: float) -> None:
        self._task = self.timer.add(delay_ms, lambda: self.enqueue("leader rebalance", self._tick))

    def _tick(self) -> None:
        try:
            self.check()
        finally:
            if not self._is_stopped:
                self._arm(self.config.leader_imbalance_check_interval_seconds * 1000)

    def check(self) -> None:
        """Balance the brokers above the threshold, unless other work on leaders is under way."""
        context = self.context
        preferred = {p: r[0] for p in context.partitions() if not context.is_deleting(p) and (r := context.replicas(p))}
        leaders = {p: context.leader(p) for p in preferred if p in context.leadership}
        percentage = self.config.leader_imbalance_per_broker_percentage
        live = context.live_brokers
        for broker, partitions in sorted(imbalanced(preferred, leaders, percentage).items()):
            if broker in live and not context.reassigning and not context.electing:
                log.info(
                    "broker %d does not lead %d partitions it is the preferred replica of", broker, len(partitions)
                )
                self.preferred_election.elect(partitions)
