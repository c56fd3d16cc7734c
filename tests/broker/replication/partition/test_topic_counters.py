"""What is counted of a topic, and until when."""

import pytest

from kafkatool.core.model.values import TopicPartition
from tests.broker.replication.control.test_control import stop
from tests.broker.replication.world import CONSUMER, TP, World, follower
from tests.broker.storage.batch_builders import batch

OTHER = TopicPartition(TP.topic, 1)


def counted(broker: World) -> tuple[int, int, int, int, int]:
    counts = broker.manager.partitions.counters.all()[TP.topic]
    return counts.appends, counts.failed_appends, counts.bytes_in, counts.reads, counts.bytes_out


@pytest.mark.spec("BRK-157")
def test_a_topics_traffic_with_clients_is_counted_over_its_partitions(broker: World) -> None:
    size = len(batch())
    broker.lead(TP)
    broker.lead(OTHER)
    assert counted(broker) == (0, 0, 0, 0, 0)
    broker.produce(TP)
    broker.produce(OTHER)
    assert counted(broker) == (2, 0, 2 * size, 0, 0)
    broker.fetch(0, CONSUMER)
    assert counted(broker) == (2, 0, 2 * size, 1, size)
    broker.fetch(0, follower(2))
    assert counted(broker) == (2, 0, 2 * size, 1, size), "followers are no clients"


@pytest.mark.spec("BRK-157")
def test_a_topics_counters_go_with_its_last_partition_here(broker: World) -> None:
    broker.lead(TP)
    broker.lead(OTHER)
    broker.produce(TP)
    stop(broker, TP, delete=True)
    assert counted(broker)[0] == 1
    stop(broker, OTHER, delete=True)
    assert broker.manager.partitions.counters.all() == {}
    broker.lead(TP)
    assert counted(broker)[0] == 0, "another topic of that name counts anew"
