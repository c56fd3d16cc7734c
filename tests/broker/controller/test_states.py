"""The tables of legal moves are those of the specification, and an illegal move stops nobody else."""

import pytest

from kafkatool.broker.controller.states import PARTITION_MOVES, REPLICA_MOVES
from kafkatool.broker.controller.states import PartitionStatus as P
from kafkatool.broker.controller.states import ReplicaStatus as R
from kafkatool.broker.controller.work.rebalance import imbalanced
from kafkatool.core.model.values import TopicPartition
from tests.broker.controller.fake_cluster import FakeCluster


@pytest.mark.spec("CTL-64")
def test_legal_moves_of_partitions() -> None:
    rows = {
        (P.NON_EXISTENT, P.NEW),
        (P.NEW, P.ONLINE),
        (P.ONLINE, P.ONLINE),
        (P.OFFLINE, P.ONLINE),
        (P.NEW, P.OFFLINE),
        (P.ONLINE, P.OFFLINE),
        (P.OFFLINE, P.OFFLINE),
        (P.OFFLINE, P.NON_EXISTENT),
    }
    assert {(old, new) for new, olds in PARTITION_MOVES.items() for old in olds} == rows


@pytest.mark.spec("CTL-67")
def test_legal_moves_of_replicas() -> None:
    rows = {
        (R.NON_EXISTENT, R.NEW),
        (R.NEW, R.ONLINE),
        (R.ONLINE, R.ONLINE),
        (R.OFFLINE, R.ONLINE),
        (R.DELETION_INELIGIBLE, R.ONLINE),
        (R.NEW, R.OFFLINE),
        (R.ONLINE, R.OFFLINE),
        (R.OFFLINE, R.OFFLINE),
        (R.DELETION_INELIGIBLE, R.OFFLINE),
        (R.OFFLINE, R.DELETION_STARTED),
        (R.DELETION_STARTED, R.DELETION_SUCCESSFUL),
        (R.DELETION_STARTED, R.DELETION_INELIGIBLE),
        (R.OFFLINE, R.DELETION_INELIGIBLE),
        (R.DELETION_SUCCESSFUL, R.NON_EXISTENT),
    }
    assert {(old, new) for new, olds in REPLICA_MOVES.items() for old in olds} == rows


@pytest.mark.spec("CTL-62", "CTL-66")
def test_an_illegal_move_is_skipped_and_the_others_go_on() -> None:
    cluster = FakeCluster(1, 2)
    cluster.create_topic("t", {0: [1, 2], 1: [2, 1]})
    term = cluster.controller.term
    assert term is not None
    known, unknown = TopicPartition("t", 1), TopicPartition("t", 9)
    with term.batch.filling():
        assert term.partitions.move([unknown, known], P.OFFLINE) == {known}
        assert term.replicas.move({unknown: [1], known: [2]}, R.ONLINE) == {known: [2]}
        assert term.replicas.move({known: [1, 2]}, R.DELETION_SUCCESSFUL) == {}


@pytest.mark.spec("CTL-108", "CTL-109")
@pytest.mark.parametrize(("led_elsewhere", "acts"), [(0, False), (1, False), (2, True), (10, True)])
def test_more_than_the_percentage_is_an_imbalance(led_elsewhere: int, acts: bool) -> None:
    partitions = [TopicPartition("t", n) for n in range(10)]
    leaders = {p: 2 if n < led_elsewhere else 1 for n, p in enumerate(partitions)}
    found = imbalanced(dict.fromkeys(partitions, 1), leaders, 10)
    assert found == ({1: partitions[:led_elsewhere]} if acts else {})
