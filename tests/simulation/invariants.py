"""What must hold after every single write, send and obeyed request, whatever has failed before (safety).

The rules look at what ZooKeeper and brokers see, never into the controller: a wrong controller cannot mislead them.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkatool.broker.controller.telling.channels import ControlRequest
from kafkatool.broker.controller.work.reassignment import union
from kafkatool.core.model.moves import StoredMove
from kafkatool.core.model.values import LeaderAndIsr, TopicPartition
from kafkatool.core.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataRequest
from kafkatool.core.zookeeper.session import ANY_VERSION, Op, SetData
from kafkatool.core.zookeeper.znodes import (
    BrokerZnode,
    ConfigZnode,
    ControllerEpochZnode,
    ControllerZnode,
    DeleteTopicsZnode,
    PartitionStateZnode,
    ReassignmentZnode,
    TopicsZnode,
    TopicZnode,
)
from tests.simulation.replicas import Disk
from tests.simulation.server import Server, Writer
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.life import Life

_TOPICS = TopicsZnode.PATH + "/"


def _known_brokers(writer: Writer) -> dict[int, int | None]:
    """Return the incarnations that the writing controller knows: no other can have been told."""
    term = writer.client.process.worker.term if writer.client else None
    return {b: info.epoch for b, info in term.context.brokers.items()} if term else {}


class Invariants:
    """Called by the server, the channels and the brokers; ends the run when something is wrong."""

    def __init__(self, world: World, server: Server) -> None:
        self._world = world
        self._server = server
        self._written: dict[TopicPartition, dict[tuple[int, int], LeaderAndIsr]] = {}  # (czxid, version) -> content
        self._leaders: dict[tuple[TopicPartition, int, int], int] = {}  # by incarnation and leader epoch
        self._ruling: dict[int, int] = {}  # controller epoch -> broker
        self._assigned: dict[str, tuple[bytes, TopicZnode]] = {}
        self.asked: dict[TopicPartition, set[tuple[int, ...] | None]] = {}  # targets of requested moves; None: cancels
        self.left_behind: dict[tuple[TopicPartition, int], int] = {}  # out of reach when reassigned -> epoch
        self.deleted: dict[TopicPartition, tuple[int, dict[int, int | None]]] = {}  # -> epoch, brokers known by then
        self.disks: dict[int, Disk] = {}
        self.processes: Mapping[int, Life] = {}
        server.on_write = self._on_write

    def _fail(self, why: str) -> None:
        self._world.fail(why)

    def unexpected(self, process: "Life", event: str, error: Exception) -> None:
        """Note an error that ended an event as a bug would."""
        self._fail(f"controller {process.id} failed unexpectedly in event {event!r}: {error!r}")

    # --- what ZooKeeper holds -------------------------------------------------------------------------------------

    def controller_epoch(self) -> int:
        node = self._server.nodes.get(ControllerEpochZnode.PATH)
        return int(node.data) if node else 0

    def assignment(self, topic: str) -> Mapping[int, tuple[int, ...]]:
        node = self.topic(topic)
        return node.assignment if node else {}

    def topic(self, topic: str) -> TopicZnode | None:
        node = self._server.nodes.get(TopicZnode.path(topic))
        if node is None:
            return None
        known = self._assigned.get(topic)
        if known is None or known[0] is not node.data:
            known = (node.data, TopicZnode.decode(topic, node.data))
            self._assigned[topic] = known
        return known[1]

    def state(self, partition: TopicPartition) -> LeaderAndIsr | None:
        node = self._server.nodes.get(PartitionStateZnode.path(partition))
        return None if node is None else PartitionStateZnode.decode(partition, node.data)

    # --- writes ---------------------------------------------------------------------------------------------------

    def _on_write(self, writer: Writer, op: Op, before: bytes | None, after: bytes | None) -> None:
        path = op.path
        if path == ControllerEpochZnode.PATH:
            self._epoch_written(writer, before, after)
            return
        if writer.part == "controller" and path != ControllerZnode.PATH:
            epoch = self.controller_epoch()
            if writer.epoch != epoch:
                self._fail(f"{path} is written by a controller of epoch {writer.epoch}, while epoch {epoch} rules")
        if path.startswith(_TOPICS):
            if path.endswith("/state"):
                if isinstance(op, SetData) and op.version == ANY_VERSION and writer.client is not None:
                    self._fail(f"{path} is written whatever its version")
                topic, _, number, _ = path[len(_TOPICS) :].split("/")
                self._state_written(TopicPartition(topic, int(number)), writer, before, after)
            elif "/" not in path[len(_TOPICS) :]:
                self._topic_written(path[len(_TOPICS) :], writer, before, after)

    def _epoch_written(self, writer: Writer, before: bytes | None, after: bytes | None) -> None:
        if after is None or int(after) != int(before or b"0") + 1:
            self._fail(f"the controller epoch goes from {before!r} to {after!r}")
        elif writer.client is not None:
            self._ruling[int(after)] = writer.client.process.id

    def _state_written(
        self, partition: TopicPartition, writer: Writer, before: bytes | None, after: bytes | None
    ) -> None:
        if after is None:
            return
        node = self._server.nodes[PartitionStateZnode.path(partition)]
        new = PartitionStateZnode.decode(partition, after)
        self._written.setdefault(partition, {})[node.czxid, node.version] = new
        text = f"{partition} becomes {new}"
        topic = self.topic(partition.topic)
        move = topic.move_of(partition.partition) if topic and partition.partition in topic.assignment else None
        replicas = (*move.replicas, *move.dropped) if move else ()
        if not new.isr or len(set(new.isr)) < len(new.isr):
            self._fail(f"{text}: an empty ISR, or a member twice")
        if not set(new.isr) <= set(replicas):
            self._fail(f"{text}: the ISR is not within the assignment {replicas}")
        if new.leader is not None and new.leader not in new.isr:
            self._fail(f"{text}: the leader is not in the ISR")
        if new.leader is not None:
            key = (partition, node.czxid, new.leader_epoch)
            if self._leaders.setdefault(key, new.leader) != new.leader:
                self._fail(f"{text}: broker {self._leaders[key]} leads in that epoch already")
        if writer.part == "controller" and new.controller_epoch != writer.epoch:
            self._fail(f"{text}: written by the controller of epoch {writer.epoch}")
        if before is None:
            if new.leader_epoch != 0:
                self._fail(f"{text}: the first leader epoch is not 0")
        else:
            self._state_changed(text, writer, PartitionStateZnode.decode(partition, before), new, partition.topic)

    def _state_changed(self, text: str, writer: Writer, old: LeaderAndIsr, new: LeaderAndIsr, topic: str) -> None:
        text += f" after {old}"
        if writer.part == "broker":
            if (old.leader, old.leader_epoch, old.controller_epoch) != (
                new.leader, new.leader_epoch, new.controller_epoch,
            ):  # fmt: skip
                self._fail(f"{text}: a leader changes its ISR alone")
            return
        if new.leader_epoch != old.leader_epoch + 1:
            self._fail(f"{text}: the leader epoch does not go up by one")
        if new.controller_epoch < old.controller_epoch:
            self._fail(f"{text}: the controller epoch goes back")
        if not set(new.isr) <= set(old.isr) and not self._allows_unclean(topic):
            self._fail(f"{text}: a controller takes nobody into an ISR")
        if new.leader is not None and new.leader not in old.isr and not self._allows_unclean(topic):
            self._fail(f"{text}: the leader comes from outside the ISR, which this topic does not allow")

    def _allows_unclean(self, topic: str) -> bool:
        node = self._server.nodes.get(ConfigZnode.path("topics", topic))
        config = ConfigZnode.decode("", node.data) if node else {}
        return config.get("unclean.leader.election.enable") == "true"

    def _topic_written(self, topic: str, writer: Writer, before: bytes | None, after: bytes | None) -> None:
        if writer.part != "controller" or before is None:
            return
        if after is None:
            if DeleteTopicsZnode.topic_path(topic) not in self._server.nodes:
                self._fail(f"topic {topic} is deleted, though nobody asked for it")
            for number in TopicZnode.decode(topic, before).assignment:
                self.deleted[TopicPartition(topic, number)] = (self.controller_epoch(), _known_brokers(writer))
            return
        wanted = self._reassignment()
        old_node, new_node = TopicZnode.decode(topic, before), TopicZnode.decode(topic, after)
        old = old_node.assignment
        for number, replicas in new_node.assignment.items():
            partition = TopicPartition(topic, number)
            if number in old and new_node.move_of(number) != old_node.move_of(number):
                was, now = old_node.move_of(number), new_node.move_of(number)
                if was.is_moving or now.is_moving or now.dropped != was.dropped:
                    self._move_written(partition, was, now, wanted, writer)
                    continue
            reordered = set(replicas) == set(old.get(number, ())) and replicas in self.asked.get(partition, ())
            if replicas == old.get(number) or reordered:
                continue
            text = f"{partition} is assigned to {replicas} after {old.get(number)}"
            rar = wanted.get(partition)
            if number not in old or rar is None:
                self._fail(f"{text}, though nobody asked for it")
                return
            if replicas == rar:
                self._shrunk(text, partition, rar, old[number], writer)
            elif replicas != union(old[number], rar):
                self._fail(f"{text}: neither all of old and wanted replicas, nor the wanted {rar}")

    def _move_written(
        self,
        partition: TopicPartition,
        was: StoredMove,
        now: StoredMove,
        entries: Mapping[TopicPartition, tuple[int, ...]],
        writer: Writer,
    ) -> None:
        """Check what is written of a move: begun or replaced as asked, ended when it may, dropped replicas deleted."""
        text = f"{partition} becomes {now} after {was}"
        if now.replicas == was.replicas and (now.adding, now.removing) == (was.adding, was.removing):
            for broker in set(was.dropped) - set(now.dropped):
                if partition in self.disks[broker].directories and partition not in self.disks[broker].failed:
                    self._fail(f"{text}: broker {broker} has not deleted its replica")
            if not set(now.dropped) <= set(was.dropped):
                self._fail(f"{text}: what was never assigned is dropped")
            return
        if was.is_moving and not now.is_moving and now.replicas == was.target and now.dropped == was.dropped:
            self._shrunk(text, partition, was.target, was.replicas, writer)
            return
        targets = self.asked.get(partition, set())
        if now.target not in targets and None not in targets and now.target != entries.get(partition):
            self._fail(f"{text}, though nobody asked for it")
        if missing := {*was.replicas, *was.dropped} - {*now.replicas, *now.dropped}:
            self._fail(f"{text}: replicas {missing} are forgotten")
        if was.is_moving and set(now.origin) != set(was.origin):
            self._fail(f"{text}: its origin is another")

    def _shrunk(
        self, text: str, partition: TopicPartition, rar: tuple[int, ...], old: tuple[int, ...], writer: Writer
    ) -> None:
        """Check step 10: not before all of RAR are in sync, one of them leads, and the others have left (CTL-91)."""
        if set(old) <= set(rar):  # step 1 of a reassignment that only adds or reorders looks the same
            return
        state = self.state(partition)
        if state is None or state.leader not in (None, *rar) or not set(state.isr) <= set(rar):
            self._fail(f"{text}: too early, the state is {state}")
        known = _known_brokers(writer)
        for broker in set(old) - set(rar):
            disk = self.disks[broker]
            registered = self._server.nodes.get(BrokerZnode.path(broker))
            lost = registered is None or broker not in known or registered.czxid != known[broker]
            # Back before its old session is over: what it answered, it answered in its former life.
            lost = lost or self.processes[broker].broker_epoch is None
            if lost or partition in disk.failed:
                self.left_behind[partition, broker] = self.controller_epoch()
            elif partition in disk.directories:
                self._fail(f"{text}: broker {broker} was there all the time and has not deleted its replica")

    def _reassignment(self) -> dict[TopicPartition, tuple[int, ...]]:
        node = self._server.nodes.get(ReassignmentZnode.PATH)
        return ReassignmentZnode.decode(node.data) if node else {}

    # --- requests -------------------------------------------------------------------------------------------------

    def on_send(self, owner: "Life", receiver: int, request: ControlRequest) -> None:
        """Check that a controller tells only what ZooKeeper has held, and in its own name."""
        message = request.message
        if self._ruling.get(message.controller_epoch) != owner.id or message.controller_id != owner.id:
            self._fail(f"controller {owner.id} sends as {message.controller_id}, epoch {message.controller_epoch}")
        if not isinstance(message, LeaderAndIsrRequest | UpdateMetadataRequest):
            return
        for told in message.partition_states:
            partition = TopicPartition(told.topic, told.partition)
            leader = None if told.leader == -1 else told.leader
            if told.leader == -2:
                continue
            state = LeaderAndIsr(leader, told.leader_epoch, tuple(told.isr), told.controller_epoch)
            known = self._written.get(partition, {})
            if not any(version == told.zk_version and state == held for (_, version), held in known.items()):
                self._fail(f"broker {receiver} is told of {partition} what ZooKeeper never held: {told}")
            if isinstance(message, LeaderAndIsrRequest) and receiver == leader:
                self._leads_anew(partition, receiver, message.broker_epoch, told.zk_version)

    def _leads_anew(self, partition: TopicPartition, leader: int, life: int, version: int) -> None:
        """Check that nobody leads by a former life's state while one that was in sync then has lived on (CTL-35)."""
        node = self._server.nodes.get(PartitionStateZnode.path(partition))
        marked = DeleteTopicsZnode.topic_path(partition.topic) in self._server.nodes
        if node is None or node.version != version or node.mzxid > life or marked:
            return
        for broker in PartitionStateZnode.decode(partition, node.data).isr:
            registered = self._server.nodes.get(BrokerZnode.path(broker))
            if registered and registered.czxid < node.mzxid and partition not in self.disks[broker].failed:
                self._fail(f"{leader} is to lead {partition} as in a former life, though broker {broker} has lived on")

    def on_obeyed(self, receiver: "Life", request: ControlRequest, held: set[TopicPartition]) -> None:
        """Check that no broker deletes data that counts."""
        message = request.message
        if not isinstance(message, StopReplicaRequest) or not message.delete_partitions:
            return
        for topic, number in message.partitions:
            partition = TopicPartition(topic, number)
            if partition not in held or partition in self.disks[receiver.id].directories:
                continue
            state = self.state(partition)
            marked = DeleteTopicsZnode.topic_path(topic) in self._server.nodes
            if state is not None and receiver.id in state.isr and not marked:
                self._fail(f"broker {receiver.id} deletes {partition} by order of controller epoch "
                           f"{message.controller_epoch}, though it is in the ISR: {state}")  # fmt: skip
