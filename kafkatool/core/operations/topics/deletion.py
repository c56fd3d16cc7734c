"""Mark topics for deletion, wait until they are gone, and name what may keep those that stay (TOP-17, TOP-18, TOP-24X)."""

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kafkatool.core.errors import NodeExistsError, RefusedError
from kafkatool.core.model.topic_names import INTERNAL_TOPICS, KEPT
from kafkatool.core.model.values import join_ids
from kafkatool.core.zookeeper.cluster_view import ClusterView, read_cluster
from kafkatool.core.zookeeper.session import Create, ZooKeeper
from kafkatool.core.zookeeper.znodes import DeleteTopicsZnode, TopicZnode


class MarkedForDeletionError(RefusedError):
    """The topic is marked for deletion already (TOP-17)."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"Topic {topic} is already marked for deletion.")


def plan_deletion(zk: ZooKeeper, topic: str) -> Create:
    """Plan the mark of TOP-17. Raises RefusedError for Kafka's own topics, MarkedForDeletionError when it is there."""
    mark = _mark(topic)
    if zk.get(mark.path) is not None:
        raise MarkedForDeletionError(topic)
    return mark


def mark_for_deletion(zk: ZooKeeper, topic: str) -> None:
    """Ask the controller to delete the topic. Raises MarkedForDeletionError (already), RefusedError (internal)."""
    mark = _mark(topic)
    try:
        zk.create(mark.path, mark.data, make_parents=True)
    except NodeExistsError as e:
        raise MarkedForDeletionError(topic) from e


def _mark(topic: str) -> Create:
    if topic in INTERNAL_TOPICS:
        raise RefusedError(KEPT.format(topic))
    return Create(DeleteTopicsZnode.topic_path(topic))


@dataclass(frozen=True, slots=True)
class Leftover:
    """A topic that is still there, and the causes that can be seen in ZooKeeper."""

    topic: str
    causes: tuple[str, ...]

    def __str__(self) -> str:
        return f"Topic {self.topic} is still there: {'; '.join(self.causes)}"


def wait_until_gone(
    zk: ZooKeeper, topics: Iterable[str], timeout_s: float, on_progress: Callable[[int, int], None]
) -> list[Leftover]:
    """Wait until every topic's node is gone or the time is up; ``on_progress`` gets (gone, all)."""
    deadline = time.monotonic() + timeout_s
    left = total = list(topics)
    while True:
        changed = threading.Event()
        nodes = zk.get_many([TopicZnode.path(t) for t in left], lambda _, event=changed: event.set())  # type: ignore[misc]
        left = [topic for topic, node in zip(left, nodes, strict=True) if node is not None]
        on_progress(len(total) - len(left), len(total))
        remaining_s = deadline - time.monotonic()
        if not left or remaining_s <= 0:
            break
        changed.wait(remaining_s)
    view = read_cluster(zk, left, states=False) if left else None
    return [Leftover(t, tuple(_causes(view, t))) for t in left if view and t in view.topics]


def _causes(view: ClusterView, topic: str) -> Iterable[str]:
    if topic in view.marked_for_deletion:
        yield "its mark is still present, so the controller has not finished (or does not watch: delete.topic.enable)"
    else:
        yield "the mark was removed without deleting it: delete.topic.enable is false at the controller"
    if view.controller_id is None:
        yield "the cluster has no controller"
    holders = {broker for replicas in view.topics[topic].assignment.values() for broker in replicas}
    if down := sorted(holders - view.brokers.keys()):
        yield f"replicas are on brokers that are down: {join_ids(down, ', ')}"
    if any(partition.topic == topic for partition in view.moving):
        yield "a reassignment of it is running"
