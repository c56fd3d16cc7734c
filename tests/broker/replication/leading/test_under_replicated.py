"""The gauge of partitions with too few replicas in sync, in which what a move adds does not count."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from kafkatool.core.errors import ZooKeeperError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.znodes import ReassignmentZnode, TopicZnode
from tests.broker.replication.world import TP, World, follower, world

pytestmark = pytest.mark.spec("ADM-75")
OTHER = TopicPartition("t", 1)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


def count(broker: World) -> int:
    broker.manager.under_replicated.run()
    return broker.manager.under_replicated.count


def noted(broker: World, adding: Mapping[str, Sequence[int]]) -> None:
    """Write the topic's node as Kafka >= 2.4 does while partitions move."""
    node = TopicZnode({0: (1, 2, 3), 1: (1, 2, 3)}, {"adding_replicas": adding, "removing_replicas": {}})
    broker.zookeeper.delete(TopicZnode.path("t"))
    broker.zookeeper.create(TopicZnode.path("t"), node.encode())


def test_partitions_led_here_with_fewer_in_sync_than_assigned_are_counted(broker: World) -> None:
    assert count(broker) == 0
    broker.lead(isr=(1, 2, 3))
    broker.lead(OTHER, isr=(1,))
    assert count(broker) == 0
    broker.lead(epoch=1, isr=(1, 2), replicas=(1, 2, 3), version=1)
    assert count(broker) == 1
    broker.lead(OTHER, epoch=1, isr=(1,), replicas=(1, 2), version=1)
    assert count(broker) == 2
    broker.follow(OTHER, epoch=2)
    assert count(broker) == 1, "whose leader is another broker, that one counts"
    broker.lead(epoch=2, isr=(1, 2, 3), version=2)
    assert count(broker) == 0


def test_what_a_move_adds_does_not_count_before_it_is_in_sync(broker: World) -> None:
    broker.zookeeper.create(TopicZnode.path("t"), TopicZnode({0: (1, 2, 3)}).encode())
    broker.lead(isr=(1, 2), replicas=(1, 2, 3))
    broker.lead(OTHER, isr=(1, 2, 3))
    assert count(broker) == 1, "no move is known"
    noted(broker, {"0": [3]})
    assert count(broker) == 0
    noted(broker, {"1": [3]})
    assert count(broker) == 1, "another partition's move"
    noted(broker, {"0": [3]})
    broker.lead(epoch=1, isr=(1,), replicas=(1, 2, 3), version=1)
    assert count(broker) == 1, "2 was there before"
    noted(broker, {})
    broker.lead(epoch=2, isr=(1, 2), replicas=(1, 2, 3), version=2)
    assert count(broker) == 1, "the move has ended: 3 is to be in sync"


def test_of_a_move_by_znode_what_is_wanted_and_not_in_sync_does_not_count(broker: World) -> None:
    broker.zookeeper.create(TopicZnode.path("t"), TopicZnode({0: (2, 3, 1)}).encode())
    broker.zookeeper.create(ReassignmentZnode.PATH, ReassignmentZnode.encode({TP: (2, 3)}))
    broker.lead(isr=(1, 2), replicas=(2, 3, 1))
    assert count(broker) == 0
    broker.zookeeper.delete(ReassignmentZnode.PATH)
    broker.zookeeper.create(ReassignmentZnode.PATH, ReassignmentZnode.encode({TP: (2, 1)}))
    assert count(broker) == 1, "3 is not wanted, but in place still"
    broker.zookeeper.delete(ReassignmentZnode.PATH)
    broker.zookeeper.create(ReassignmentZnode.PATH, b"?")
    assert count(broker) == 1, "what cannot be read adds nothing"


def test_the_rounds_run_by_themselves_and_tell_of_changes_alone(broker: World) -> None:
    run, period_ms = broker.scheduler.periodic["under-replicated"]
    assert period_ms == 10_000
    changes: list[int] = []
    gauge = broker.manager.under_replicated
    gauge.on_change = lambda: changes.append(gauge.count)
    broker.lead(isr=(1,), replicas=(1, 2))
    for _ in range(2):
        run()
    assert changes == [1]
    broker.produce()
    broker.fetch(1, follower(2))
    broker.scheduler.run()
    run()
    assert changes == [1, 0], "2 is in sync: the leader itself has changed that"


def test_where_moves_are_not_told_the_count_stays(broker: World, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.lead(isr=(1,), replicas=(1, 2))
    assert count(broker) == 1

    def lost(paths: Sequence[str]) -> None:
        raise ZooKeeperError("connection lost")

    monkeypatch.setattr(broker.zookeeper, "get_many", lost)
    broker.lead(OTHER, isr=(1,), replicas=(1, 2))
    assert count(broker) == 1
    broker.lead(epoch=1, isr=(1, 2), version=1)
    broker.lead(OTHER, epoch=1, isr=(1, 2), version=1)
    assert count(broker) == 0, "nothing is to be asked"
