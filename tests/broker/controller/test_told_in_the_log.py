"""state-change.log tells all: each transition with the state before it, and each request with its receivers."""

import re
from collections import Counter

import pytest

from kafkatool.broker.controller.states import PARTITION_MOVES, REPLICA_MOVES, PartitionStatus, ReplicaStatus
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataRequest
from tests.broker.controller.fake_cluster import FakeCluster

_PARTITION = re.compile(r"Changed partition (\S+)-(\d+)(?: state)? from (\w+) to (\w+)")
_REPLICA = re.compile(r"Changed state of replica (\d+) for partition (\S+)-(\d+) from (\w+) to (\w+)")
_ROLE = re.compile(r"Sending become-\w+ LeaderAndIsr request .* to broker (\d+) for partition (\S+)-(\d+)$")
_STOP = re.compile(
    r"Sending StopReplica request .*, deletePartition=(true|false)\) to broker (\d+) for partition (\S+)-(\d+)$"
)
_METADATA = re.compile(r"Sending UpdateMetadata request .* to brokers Set\(([\d, ]*)\) for partition (\S+)-(\d+)$")


def a_long_life() -> FakeCluster:
    """Creation, growth, failures, elections, a reassignment, a bad directory, a controlled stop, deletion."""
    cluster = FakeCluster(1, 2, 3, 4, properties={"delete.topic.enable": "true"})
    cluster.create_topic("t", {0: [2, 3], 1: [3, 2], 2: [9, 4]}, unclean_leader_election_enable="false")
    cluster.kill(3)
    cluster.run()
    cluster.restart(3)
    cluster.elect_preferred(TopicPartition("t", 1))
    cluster.reassign({TopicPartition("t", 0): [3, 4]})
    term = cluster.controller.term
    assert term is not None
    term.controlled_shutdown.serve(4, cluster.brokers[4].epoch)
    cluster.run()
    cluster.kill(4)
    cluster.run()
    cluster.restart(4, 9)
    cluster.create_topic("stays", {0: [4, 2]})
    cluster.delete_topic("t")
    return cluster


@pytest.mark.spec("CTL-23", "CTL-62", "CTL-66", "CTL-64", "CTL-67")
def test_every_transition_is_a_line_that_begins_where_the_last_one_ended() -> None:
    cluster = a_long_life()
    partitions: dict[TopicPartition, PartitionStatus] = {}
    replicas: dict[tuple[TopicPartition, int], ReplicaStatus] = {}
    for _, message in cluster.log.lines:
        if found := _PARTITION.search(message):
            topic, number, *moved = found.groups()
            partition = TopicPartition(topic, int(number))
            old, new = map(PartitionStatus, moved)
            assert old is partitions.get(partition, PartitionStatus.NON_EXISTENT), message
            assert old in PARTITION_MOVES[new], message
            partitions[partition] = new
        elif found := _REPLICA.search(message):
            broker, topic, number, *moved = found.groups()
            replica = TopicPartition(topic, int(number)), int(broker)
            before, after = map(ReplicaStatus, moved)
            assert before is replicas.get(replica, ReplicaStatus.NON_EXISTENT), message
            assert before in REPLICA_MOVES[after], message
            replicas[replica] = after
    term = cluster.controller.term
    assert term is not None
    assert {p: s for p, s in partitions.items() if s is not PartitionStatus.NON_EXISTENT} == (
        term.context.partition_status
    )
    assert {r: s for r, s in replicas.items() if s is not ReplicaStatus.NON_EXISTENT} == {
        (p, b): s for p, statuses in term.context.replica_status.items() for b, s in statuses.items()
    }
    assert len(partitions) == 4 and len(replicas) > 8


@pytest.mark.spec("CTL-23")
def test_every_request_is_told_partition_by_partition_and_receiver_by_receiver() -> None:
    cluster = a_long_life()
    told: Counter[tuple[object, ...]] = Counter()
    for level, message in cluster.log.lines:
        assert message.startswith("[Controller id=1 epoch=1] ") or "Mark replicas" in message
        if found := _ROLE.search(message):
            broker, topic, number = found.groups()
            told["role", int(broker), topic, int(number)] += 1
        elif found := _STOP.search(message):
            delete, broker, topic, number = found.groups()
            told["stop", int(broker), delete == "true", topic, int(number)] += 1
        elif found := _METADATA.search(message):
            brokers, topic, number = found.groups()
            for broker in brokers.split(", "):
                told["metadata", int(broker), topic, int(number)] += 1
        else:
            continue
        assert level == "TRACE"
    sent: Counter[tuple[object, ...]] = Counter()
    for broker, request in cluster.sent:
        match request:
            case LeaderAndIsrRequest():
                sent.update(("role", broker, s.topic, s.partition) for s in request.partition_states)
            case UpdateMetadataRequest():
                sent.update(("metadata", broker, s.topic, s.partition) for s in request.partition_states)
            case StopReplicaRequest():
                sent.update(("stop", broker, request.delete_partitions, *p) for p in request.partitions)
    assert sent == told
    assert {kind for kind, *_ in told} == {"role", "stop", "metadata"}


@pytest.mark.spec("CTL-70", "CTL-23", "CTL-64", "CTL-67")
def test_a_creation_goes_new_new_online_online_and_then_it_is_told() -> None:
    cluster = FakeCluster(1, 2)
    cluster.log.lines.clear()
    cluster.create_topic("t", {0: [2, 1]})
    state = "LeaderAndIsr(leader=2, leaderEpoch=0, isr=List(2, 1), zkVersion=0)"
    role = (
        "LeaderAndIsr request PartitionState(controllerEpoch=1, leader=2, leaderEpoch=0, isr=2,1, zkVersion=0, "
        "replicas=2,1, isNew=true) to broker"
    )
    assert [message.partition("] ")[2] for _, message in cluster.log.lines] == [
        "Changed partition t-0 state from NonExistentPartition to NewPartition with assigned replicas 2,1",
        "Changed state of replica 2 for partition t-0 from NonExistentReplica to NewReplica",
        "Changed state of replica 1 for partition t-0 from NonExistentReplica to NewReplica",
        f"Changed partition t-0 from NewPartition to OnlinePartition with state {state}",
        "Changed state of replica 2 for partition t-0 from NewReplica to OnlineReplica",
        "Changed state of replica 1 for partition t-0 from NewReplica to OnlineReplica",
        f"Sending become-leader {role} 2 for partition t-0",
        f"Sending become-follower {role} 1 for partition t-0",
        "Sending UpdateMetadata request PartitionState(controllerEpoch=1, leader=2, leaderEpoch=0, isr=[2, 1], "
        "zkVersion=0, replicas=[2, 1], offlineReplicas=[]) to brokers Set(1, 2) for partition t-0",
    ]
