"""The proof that a broker is empty: each thing that may be left of it keeps it from holding."""

import pytest

from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.brokers.answers import Answers, BrokerAnswer, LogDir
from kafkatool.core.operations.drain.proof import prove
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.core.zookeeper import cluster_nodes as nodes

pytestmark = pytest.mark.spec("ADM-106")
T0 = TopicPartition("t", 0)


def disk(*partitions: TopicPartition, arriving: frozenset[TopicPartition] = frozenset()) -> Answers:
    directory = LogDir("/d", False, dict.fromkeys(partitions, 1), None, None, arriving)
    return Answers({3: BrokerAnswer({}, (directory,), {})}, {})


def test_nothing_may_be_left_of_it(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1, 2)}})
    view = read_cluster(zk)
    (proof,) = prove(view, [3], disk())
    assert proof.drained and proof.live
    for answers in (
        disk(T0),
        disk(arriving=frozenset({T0})),
        Answers(
            {3: BrokerAnswer({}, (LogDir("/d", False, {}, None, None), LogDir("/e", True, {}, None, None)), {})}, {}
        ),
        Answers({}, {}),
        Answers({3: BrokerAnswer({}, None, {})}, {}),
    ):
        assert not prove(view, [3], answers)[0].drained
    for leader, isr, what in ((3, (1, 2), "leads"), (1, (1, 3), "in_sync")):
        nodes.set_state(zk, T0, leader, isr)
        (proof,) = prove(read_cluster(zk), [3], disk())
        assert not proof.drained and getattr(proof, what) == (T0,)


def test_an_assignment_is_left_also_of_a_dead_broker(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, brokers=(1, 2), topics={"t": {0: (1, 3)}}, states={T0: (1, (1,))})
    (proof,) = prove(read_cluster(zk), [3], Answers({}, {}))
    assert (proof.live, proof.drained, proof.assigned, proof.on_disk) == (False, False, (T0,), None)
    (gone,) = prove(read_cluster(zk), [9], Answers({}, {}))
    assert gone.drained  # nothing names it, and nobody can ask it
