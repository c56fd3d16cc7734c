"""The state machine of partitions: first leaders, elections, and the requests that follow (CTL-62 to 65, 70 to 74).

Every decision rests on the state node read for it and is written on the version read; a conflict means reading and
deciding again (CTL-41, 42; Z-38). A failed change leaves node, context and status as they were (CTL-65).
"""

import enum
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from kafkatool.broker.controller.context import ControllerContext
from kafkatool.broker.controller.deciding import leader_selection as selection
from kafkatool.broker.controller.deciding.leader_selection import Choice
from kafkatool.broker.controller.states import PARTITION_MOVES, PartitionStatus
from kafkatool.broker.controller.telling import transition_lines as lines
from kafkatool.broker.controller.telling.request_batch import RequestBatch
from kafkatool.broker.controller.writing.zookeeper_writes import FencedZooKeeper
from kafkatool.core.errors import ZooKeeperError
from kafkatool.core.model.values import LeaderAndIsr, PartitionState, TopicPartition
from kafkatool.core.zookeeper.cluster_view import States

log = logging.getLogger(__name__)


class Strategy(enum.Enum):
    """The way a leader is chosen (CTL-64)."""

    OFFLINE = "offline"
    REASSIGN = "reassign"
    PREFERRED = "preferred"
    UNCLEAN = "unclean"  # whatever the topic allows: an operator asked for it (ADM-62)
    CONTROLLED_SHUTDOWN = "controlled shutdown"


@dataclass(eq=False)
class PartitionStateMachine:
    """Moves partitions, in the caller's open batch. ``unclean_topics`` returns which of the topics allow unclean leaders."""

    _context: ControllerContext
    _zookeeper: FencedZooKeeper
    _batch: RequestBatch
    _write_lines: Callable[[str, Iterable[str]], None]
    _unclean_topics: Callable[[Collection[str]], set[str]]

    def startup(self) -> None:
        """Give every partition its status from what failover read (CTL-63), then try to bring all online."""
        context = self._context
        for partition in context.partitions():
            if partition in context.unreadable:
                continue  # not New: a leader may be at work
            state = context.leadership.get(partition)
            if state is None:
                status = PartitionStatus.NEW
            elif state.leader_and_isr.leader in context.live_for(partition):
                status = PartitionStatus.ONLINE
            else:
                status = PartitionStatus.OFFLINE
            context.partition_status[partition] = status
        self.bring_online()

    def bring_online(self) -> None:
        """Try every New and Offline partition that is not being deleted (CTL-33, 39, 65)."""
        waiting = (PartitionStatus.NEW, PartitionStatus.OFFLINE)
        context = self._context
        self.move(
            [p for p, s in context.partition_status.items() if s in waiting and not context.is_deleting(p)],
            PartitionStatus.ONLINE,
        )

    # To NEW           from NON_EXISTENT: a mark; the line names the assigned replicas.
    # To ONLINE        from NEW: the first live replica leads, all live ones are the ISR. The state node is made, then the
    #                  ISR is told by LeaderAndIsr (isNew) and everybody by UpdateMetadata.
    #                  From ONLINE or OFFLINE: a leader is elected by the strategy, its epoch is one higher. Written on the
    #                  version read; replicas are told by LeaderAndIsr, everybody by UpdateMetadata. Without a candidate
    #                  the move fails, and all stays as it was.
    # To OFFLINE       from NEW, ONLINE or OFFLINE: a mark; the leader named last stays until another is elected.
    # To NON_EXISTENT  from OFFLINE: a mark; the nodes are deleted by the topic's deletion.

    def move(
        self, partitions: Iterable[TopicPartition], target: PartitionStatus, strategy: Strategy = Strategy.OFFLINE
    ) -> set[TopicPartition]:
        """Move them; returns those that moved. Illegal moves are logged and skipped, the others go on (CTL-62)."""
        context = self._context
        moving: dict[TopicPartition, PartitionStatus] = {}
        failed = []
        for partition in partitions:
            status = context.status_of(partition)
            if status in PARTITION_MOVES[target]:
                moving[partition] = status
            else:
                failed.append(partition)
        self._log_failed(failed, target)
        if target is not PartitionStatus.ONLINE:
            self._mark(moving, target)
            return set(moving)
        moved = self._create([p for p, s in moving.items() if s is PartitionStatus.NEW])
        moved |= self._elect([p for p, s in moving.items() if s is not PartitionStatus.NEW], strategy)
        self._log_failed([p for p in moving if p not in moved], target)
        return moved

    # --- marks only ---------------------------------------------------------------------------------------------

    def _mark(self, moving: dict[TopicPartition, PartitionStatus], target: PartitionStatus) -> None:
        context = self._context
        if target is PartitionStatus.NEW:
            self._write_lines("TRACE", (lines.partition_new(p, s, context.replicas(p)) for p, s in moving.items()))
        else:
            self._write_lines("TRACE", (lines.partition_marked(p, s, target) for p, s in moving.items()))
        if target is PartitionStatus.NON_EXISTENT:
            for partition in moving:
                context.partition_status.pop(partition, None)
        else:
            context.partition_status.update(dict.fromkeys(moving, target))

    def _log_failed(self, partitions: Collection[TopicPartition], target: PartitionStatus) -> None:
        if partitions:
            context = self._context
            self._write_lines(
                "ERROR",
                (
                    lines.partition_failed(context.broker_id, context.epoch, p, context.status_of(p), target)
                    for p in partitions
                ),
            )

    def _online(self, partition: TopicPartition, state: PartitionState) -> str:
        """Note the new leadership; returns the line that says so."""
        line = lines.partition_online(partition, self._context.status_of(partition), state)
        self._context.leadership[partition] = state
        self._context.partition_status[partition] = PartitionStatus.ONLINE
        return line

    # --- first leaders ------------------------------------------------------------------------------------------

    def _create(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        context = self._context
        states: dict[TopicPartition, LeaderAndIsr] = {}
        for partition in partitions:
            choice = selection.first_leader(context.replicas(partition), context.live_for(partition))
            if choice is not None:
                states[partition] = LeaderAndIsr(choice.leader, 0, choice.isr, context.epoch)
        if not states:
            return set()
        created: dict[TopicPartition, str] = {}
        for partition, outcome in self._zookeeper.create_states(states).items():
            if isinstance(outcome, ZooKeeperError):
                found = self._zookeeper.read_states([partition]).found.get(partition)
                log.error("partition %s got no first leader: %s; its state node holds %s", partition, outcome, found)
                continue
            state = PartitionState(states[partition], 0)
            created[partition] = self._online(partition, state)
            self._batch.add_leader_and_isr(
                state.leader_and_isr.isr, partition, state, context.replicas(partition), is_new=True
            )
        self._write_lines("TRACE", created.values())
        return set(created)

    # --- elections ----------------------------------------------------------------------------------------------

    def _elect(self, partitions: Collection[TopicPartition], strategy: Strategy) -> set[TopicPartition]:
        context = self._context
        moved: set[TopicPartition] = set()
        for elected in self._zookeeper.change_states(
            partitions,
            lambda _, read: self._decide(read.found, strategy),
            what="the leader elected for it could not be written",
        ):
            moved.update(elected)
            self._write_lines("TRACE", [self._online(partition, state) for partition, state in elected.items()])
            for partition, state in elected.items():
                replicas = context.replicas(partition)
                self._batch.add_leader_and_isr(
                    self._receivers(partition, strategy, replicas), partition, state, replicas
                )
        return moved

    def _receivers(self, partition: TopicPartition, strategy: Strategy, replicas: tuple[int, ...]) -> Collection[int]:
        if strategy in (Strategy.PREFERRED, Strategy.REASSIGN):
            return replicas
        live = self._context.live_for(partition, even_shutting_down=strategy is Strategy.CONTROLLED_SHUTDOWN)
        return [b for b in replicas if b in live]

    def _decide(
        self, states: dict[TopicPartition, PartitionState], strategy: Strategy
    ) -> dict[TopicPartition, PartitionState]:
        """Return the states to be written, each with the version it was decided on."""
        context = self._context
        live = {p: context.live_for(p) for p in states}
        unclean = self._unclean_allowed(states, live) if strategy is Strategy.OFFLINE else set()
        new = {}
        for partition, state in states.items():
            now = state.leader_and_isr
            if is_from_newer_controller(partition, now, context.epoch):
                continue
            choice = self._choose(partition, now, live[partition], strategy, unclean)
            if choice is None:
                log.info("no leader for partition %s (%s): %s, live are %s", partition, strategy.value, now,
                         sorted(live[partition]))  # fmt: skip
                continue
            if choice.unclean:
                log.warning(
                    "no broker in the ISR %s of partition %s is alive: broker %d is elected uncleanly, "
                    "records may be lost", list(now.isr), partition, choice.leader,
                )  # fmt: skip
            decided = LeaderAndIsr(choice.leader, now.leader_epoch + 1, choice.isr, context.epoch)
            new[partition] = PartitionState(decided, state.version)
        return new

    def _unclean_allowed(
        self, states: Mapping[TopicPartition, PartitionState], live: Mapping[TopicPartition, set[int]]
    ) -> set[TopicPartition]:
        """Return those of the partitions that nobody in sync is there for, and whose topic allows any other leader.

        One that counts as bounced is there: a leader whose session alone was lost may have shrunk the ISR to itself since
        that was found out, and is elected in step 8c.
        """
        bounced = self._context.bounced_replicas
        hopeless = [p for p, s in states.items() if live[p].union(bounced.get(p, ())).isdisjoint(s.leader_and_isr.isr)]
        allowed = self._unclean_topics(sorted({p.topic for p in hopeless})) if hopeless else ()
        return {p for p in hopeless if p.topic in allowed}

    def _choose(
        self,
        partition: TopicPartition,
        now: LeaderAndIsr,
        live: set[int],
        strategy: Strategy,
        unclean: Collection[TopicPartition],
    ) -> Choice | None:
        replicas = self._context.replicas(partition)
        match strategy:
            case Strategy.OFFLINE:
                return selection.elect_offline(now, replicas, live, unclean_allowed=partition in unclean)
            case Strategy.UNCLEAN:
                return selection.elect_offline(now, replicas, live, unclean_allowed=True)
            case Strategy.REASSIGN:
                return selection.elect_reassigned(now, replicas, live)
            case Strategy.PREFERRED:
                return selection.elect_preferred(now, replicas, live)
            case Strategy.CONTROLLED_SHUTDOWN:
                return selection.elect_for_shutdown(now, replicas, live, self._context.shutting_down)

    # --- the same leader, a higher epoch ------------------------------------------------------------------------

    def raise_epochs(self, receivers: dict[TopicPartition, tuple[int, ...]]) -> dict[TopicPartition, LeaderAndIsr]:
        """Raise leader epochs by one, leader and ISR as they are; LeaderAndIsr with the context's AR to the receivers.

        Steps 2 and 7 of a reassignment (CTL-91). Returns what was written; partitions that failed are left out.
        """
        context = self._context

        def decide(_: Collection[TopicPartition], read: States) -> dict[TopicPartition, PartitionState]:
            return {
                p: PartitionState(LeaderAndIsr(now.leader, now.leader_epoch + 1, now.isr, context.epoch), state.version)
                for p, state in read.found.items()
                if not is_from_newer_controller(p, now := state.leader_and_isr, context.epoch)
            }

        written: dict[TopicPartition, LeaderAndIsr] = {}
        for raised in self._zookeeper.change_states(receivers, decide, what="its leader epoch could not be raised"):
            for partition, state in raised.items():
                context.leadership[partition] = state
                written[partition] = state.leader_and_isr
                self._batch.add_leader_and_isr(receivers[partition], partition, state, context.replicas(partition))
        return written


def is_from_newer_controller(partition: TopicPartition, state: LeaderAndIsr, epoch: int) -> bool:
    """Tell, and log, whether a newer controller wrote that state: then the change is dropped (CTL-14)."""
    if state.controller_epoch > epoch:
        log.error(
            "partition %s is left alone: its state was written by controller epoch %d, ours is %d",
            partition, state.controller_epoch, epoch,
        )  # fmt: skip
        return True
    return False
