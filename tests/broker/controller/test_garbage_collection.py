"""What a controller makes is not left to the cycle collector, whose pauses would stop the broker beside it."""

import gc
from collections.abc import Iterator

import pytest

from kafkatool.broker.runtime import gc_pause
from kafkatool.core.protocol.messages.leader_and_isr import LeaderAndIsrPartition
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataPartition
from tests.broker.controller.fake_cluster import FakeCluster

PARTITIONS = 150


@pytest.fixture
def collector() -> Iterator[None]:
    gc.unfreeze()
    gc.collect()
    gc.disable()
    yield
    gc.unfreeze()
    gc.enable()


def states() -> int:
    """Count the states of partitions in requests that are still in memory."""
    return sum(isinstance(o, (LeaderAndIsrPartition, UpdateMetadataPartition)) for o in gc.get_objects())


@pytest.mark.usefixtures("collector")
def test_a_request_that_was_answered_is_gone() -> None:
    cluster = FakeCluster(1, 2, 3)
    before = states()
    cluster.create_topic("t", dict.fromkeys(range(PARTITIONS), (1, 2, 3)))
    cluster.kill(3)
    cluster.run()
    for broker in cluster.brokers.values():
        broker.roles.clear()  # they keep what they were told
    assert states() > before + PARTITIONS
    cluster.sent.clear()
    assert states() == before


@pytest.mark.spec("CTL-16")
@pytest.mark.usefixtures("collector")
def test_a_new_controller_is_not_looked_at_and_what_it_knew_is_gone_when_it_resigns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = FakeCluster(1, 2, 3)
    cluster.create_topic("t", dict.fromkeys(range(PARTITIONS), (1, 2, 3)))
    monkeypatch.setattr(gc_pause, "_ours", True)
    assert gc.get_freeze_count() == 0
    cluster.kill(cluster.controller_id)
    cluster.run()
    assert gc.get_freeze_count() > PARTITIONS
    term = cluster.controller.term
    assert term is not None
    context = term.context
    assert len(context.leadership) == PARTITIONS
    cluster.controller.resign()
    assert not (context.leadership or context.assignments or context.partition_status or context.replica_status)
