"""Builders for the znodes of a cluster, and a hand-made controller that answers reassignments and elections."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from kafkatool.core.model.moves import StoredMove
from kafkatool.core.model.values import BrokerInfo, Endpoint, LeaderAndIsr, TopicPartition
from kafkatool.core.zookeeper.session import Node, ZooKeeper
from kafkatool.core.zookeeper.znodes import (
    PERSISTENT_PATHS,
    BrokerZnode,
    ClusterIdZnode,
    ControllerZnode,
    PartitionStateZnode,
    PreferredElectionZnode,
    ReassignmentZnode,
    TopicZnode,
)

State = tuple[int | None, Sequence[int]]  # leader, ISR


def make_cluster(
    zk: ZooKeeper,
    *,
    brokers: Sequence[int] = (1, 2, 3),
    topics: Mapping[str, Mapping[int, Sequence[int]]],
    states: Mapping[TopicPartition, State] | None = None,
    controller: int | None = 1,
    racks: Mapping[int, str] | None = None,
) -> None:
    """Make broker, topic and state nodes. A partition not in ``states`` is led by its preferred replica, all in sync."""
    for path in PERSISTENT_PATHS:
        zk.create(path, make_parents=True)
    zk.create(ClusterIdZnode.PATH, ClusterIdZnode.encode("the-cluster"), make_parents=True)
    for broker in brokers:
        info = BrokerInfo(broker, (Endpoint("PLAINTEXT", "127.0.0.1", 1),), (racks or {}).get(broker))
        zk.create(BrokerZnode.path(broker), BrokerZnode.encode(info, 0))
    if controller is not None:
        zk.create(ControllerZnode.PATH, ControllerZnode.encode(controller, 0))
    for topic, assignment in topics.items():
        zk.create(TopicZnode.path(topic), TopicZnode({p: tuple(r) for p, r in assignment.items()}).encode())
        for number, replicas in assignment.items():
            partition = TopicPartition(topic, number)
            leader, isr = (states or {}).get(partition, (replicas[0], replicas))
            set_state(zk, partition, leader, isr)


def set_state(
    zk: ZooKeeper, partition: TopicPartition, leader: int | None, isr: Sequence[int], leader_epoch: int = 0
) -> None:
    data = PartitionStateZnode.encode(LeaderAndIsr(leader, leader_epoch, tuple(isr), 1))
    path = PartitionStateZnode.path(partition)
    node = zk.get(path)
    if node is None:
        zk.create(path, data, make_parents=True)
    else:
        zk.set(path, data, node.version)


def tree(zk: ZooKeeper, root: str = "/") -> dict[str, tuple[bytes, int]]:
    """Return data and version of every node below ``root``, by path: what was written is what differs."""
    found: dict[str, tuple[bytes, int]] = {}
    paths = [root]
    while paths:
        names = zk.children_many(paths)
        below = [
            f"{path.rstrip('/')}/{name}" for path, children in zip(paths, names, strict=True) for name in children or ()
        ]
        found |= {path: (node.data, node.version) for path, node in zip(below, zk.get_many(below), strict=True) if node}
        paths = below
    return found


def assignment(zk: ZooKeeper, topic: str) -> dict[int, tuple[int, ...]]:
    node = zk.get(TopicZnode.path(topic))
    assert node is not None
    return dict(TopicZnode.decode(topic, node.data).assignment)


def elect(zk: ZooKeeper, live: Sequence[int], *, fail: Sequence[TopicPartition] = ()) -> None:
    """Answer the election znode as a controller does (ELE-7, ELE-8)."""
    node = zk.get(PreferredElectionZnode.PATH)
    if node is None:
        return
    for partition in PreferredElectionZnode.decode(node.data):
        preferred = assignment(zk, partition.topic)[partition.partition][0]
        state_node = zk.get(PartitionStateZnode.path(partition))
        assert state_node is not None
        state = PartitionStateZnode.decode(partition, state_node.data)
        if preferred in live and preferred in state.isr and preferred != state.leader and partition not in fail:
            set_state(zk, partition, preferred, state.isr, state.leader_epoch + 1)
    zk.delete(PreferredElectionZnode.PATH)


def reassign(zk: ZooKeeper) -> None:
    """Carry the reassignment out at once: every partition gets its replicas, the znode goes."""
    node = zk.get(ReassignmentZnode.PATH)
    if node is None:
        return
    for partition, replicas in ReassignmentZnode.decode(node.data).items():
        path = TopicZnode.path(partition.topic)
        topic = zk.get(path)
        assert topic is not None
        decoded = TopicZnode.decode(partition.topic, topic.data)
        changed = decoded.with_assignment({**decoded.assignment, partition.partition: replicas})
        zk.set(path, changed.encode(), topic.version)
        set_state(zk, partition, replicas[0], replicas)
    zk.delete(ReassignmentZnode.PATH)


def request(zk: ZooKeeper, partition: TopicPartition, target: Sequence[int]) -> None:
    """Note a move in the node of its topic, as Kafka's controllers do since 2.4 when a request asks for it (KIP-455)."""
    node = zk.get(TopicZnode.path(partition.topic))
    assert node is not None
    topic = TopicZnode.decode(partition.topic, node.data)
    move = topic.move_of(partition.partition).to(tuple(target))
    _note(zk, partition.topic, node, topic, {partition.partition: move._replace(dropped=())})


def end_requests(zk: ZooKeeper, topic: str) -> None:
    """End the moves that the node of the topic tells of: every partition has its replicas, all in sync."""
    node = zk.get(TopicZnode.path(topic))
    assert node is not None
    decoded = TopicZnode.decode(topic, node.data)
    ended = {number: StoredMove(move.target) for number, move in decoded.moves.items()}
    _note(zk, topic, node, decoded, ended)
    for number, move in ended.items():
        set_state(zk, TopicPartition(topic, number), move.replicas[0], move.replicas)


def _note(zk: ZooKeeper, name: str, node: Node, topic: TopicZnode, moves: Mapping[int, StoredMove]) -> None:
    raw = {**topic.raw, "version": 3, "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ"}
    zk.set(TopicZnode.path(name), TopicZnode(topic.assignment, raw).with_moves(moves).encode(), node.version)


@contextmanager
def controller(connect: str, path: str, act: Callable[[ZooKeeper], None]) -> Iterator[None]:
    """Let a thread of its own call ``act`` whenever the node at ``path`` is there, while the block runs."""
    wake, ended = threading.Event(), threading.Event()

    def run() -> None:
        with ZooKeeper(connect) as zk:
            while not ended.is_set():
                wake.clear()
                if zk.get(path, lambda _: wake.set()) is not None:
                    act(zk)
                    continue
                wake.wait(5)

    thread = threading.Thread(target=run, name="controller")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        wake.set()
        thread.join(60)
        assert not thread.is_alive()
