"""Elections that clients ask for, of preferred leaders and of any that are alive."""

from collections.abc import Mapping

import pytest

from kafkatool.core.errors import ControllerFencedError
from kafkatool.core.model.values import LeaderAndIsr, TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.zookeeper.znodes import ControllerEpochZnode, PreferredElectionZnode
from tests.broker.controller.fake_cluster import FakeCluster

# No topic allows unclean leaders: who asks for one by name gets it all the same.
PROPERTIES = {"auto.leader.rebalance.enable": "false", "unclean.leader.election.enable": "false"}
CLEAN, UNCLEAN = False, True
NOT_NEEDED = ErrorCode.ELECTION_NOT_NEEDED


def partitions(*numbers: int, topic: str = "t") -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def elect(
    cluster: FakeCluster, wanted: list[TopicPartition] | None, *, unclean: bool
) -> Mapping[TopicPartition, tuple[ErrorCode, int | None]]:
    term = cluster.controller.term
    assert term is not None
    outcomes = term.requested_election.elect(wanted, unclean=unclean)
    assert all((o.message is None) == (o.error is ErrorCode.NONE) for o in outcomes.values())
    return {p: (o.error, o.leader) for p, o in outcomes.items()}


def messages(cluster: FakeCluster, wanted: list[TopicPartition], *, unclean: bool) -> list[str | None]:
    term = cluster.controller.term
    assert term is not None
    return [o.message for o in term.requested_election.elect(wanted, unclean=unclean).values()]


@pytest.fixture
def cluster() -> FakeCluster:
    """t-0 has lost its preferred leader to 3 and could have it back, t-1 is right, t-2's preferred one is dead."""
    made = FakeCluster(1, 2, 3, 4, properties=PROPERTIES)
    made.create_topic("t", {0: [2, 3], 1: [3, 2], 2: [4, 3]})
    made.kill(2, 4)
    made.run()
    made.restart(2)
    made.sent.clear()
    assert made.leaders("t") == [3, 3, 3]
    return made


@pytest.mark.spec("ADM-62", "ADM-63")
def test_preferred_leaders_are_elected_and_each_other_partition_says_why_not(cluster: FakeCluster) -> None:
    before = [cluster.state("t", n) for n in range(3)]
    wanted = [*partitions(2, 0, 1, 0, 7), *partitions(0, topic="nope")]
    assert elect(cluster, wanted, unclean=CLEAN) == {
        TopicPartition("t", 2): (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, None),
        TopicPartition("t", 0): (ErrorCode.NONE, 2),
        TopicPartition("t", 1): (NOT_NEEDED, None),
        TopicPartition("t", 7): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
        TopicPartition("nope", 0): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
    }
    assert messages(cluster, [*partitions(1, 7), *partitions(0, topic="nope")], unclean=CLEAN) == [
        "Leader election not needed for topic partition.",
        "The partition does not exist.",
        "The partition does not exist.",
    ]
    assert cluster.state("t", 0) == LeaderAndIsr(2, before[0].leader_epoch + 1, (3, 2), 1)
    assert [cluster.state("t", n) for n in (1, 2)] == before[1:]
    cluster.run()
    assert sorted((b, s.topic, s.partition) for b, s in cluster.leader_and_isr()) == [(2, "t", 0), (3, "t", 0)]
    assert sorted(b for b, _ in cluster.metadata()) == [1, 2, 3]
    assert not cluster.exists(PreferredElectionZnode.PATH)


@pytest.mark.spec("ADM-62")
def test_a_preferred_replica_that_is_alive_and_not_in_sync_is_not_elected() -> None:
    cluster = FakeCluster(1, 2, 3, properties=PROPERTIES)
    cluster.create_topic("t", {0: [2, 3]})
    cluster.kill(2)
    cluster.run()
    cluster.catching_up = False
    cluster.restart(2)
    before = cluster.state("t")
    (wanted,) = partitions(0)
    assert (before.leader, before.isr) == (3, (3,))
    assert elect(cluster, [wanted], unclean=CLEAN) == {wanted: (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, None)}
    assert cluster.state("t") == before


@pytest.mark.spec("ADM-63")
def test_a_controller_that_was_deposed_elects_nobody_any_more(cluster: FakeCluster) -> None:
    before = cluster.state("t", 0)
    term = cluster.controller.term
    node = cluster.zk.get(ControllerEpochZnode.PATH)
    assert term is not None and node is not None
    cluster.zk.set(ControllerEpochZnode.PATH, ControllerEpochZnode.encode(9), node.version)
    with pytest.raises(ControllerFencedError):
        term.requested_election.elect(partitions(0), unclean=CLEAN)
    assert cluster.state("t", 0) == before


@pytest.mark.spec("ADM-62")
def test_of_all_partitions_those_that_need_no_election_are_left_out(cluster: FakeCluster) -> None:
    assert elect(cluster, None, unclean=CLEAN) == {
        TopicPartition("t", 0): (ErrorCode.NONE, 2),
        TopicPartition("t", 2): (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, None),
    }
    assert elect(cluster, [], unclean=CLEAN) == {}
    assert elect(cluster, None, unclean=UNCLEAN) == {}


@pytest.mark.spec("ADM-62", "ADM-63")
def test_an_unclean_election_takes_who_is_alive_in_sync_if_possible_whatever_the_topic_allows() -> None:
    cluster = FakeCluster(1, 2, 3, 4, properties=PROPERTIES)
    cluster.create_topic("t", {0: [2, 3], 1: [2, 4, 3], 2: [3, 1], 3: [2]})
    cluster.kill(3, 4)
    cluster.run()
    cluster.kill(2)
    cluster.run()
    cluster.restart(3, 4)
    assert cluster.leaders("t") == [None, None, 1, None]
    assert cluster.state("t", 0).isr == (2,)
    before, offline = cluster.state("t", 2), cluster.state("t", 0)
    assert elect(cluster, partitions(0, 2, 3), unclean=UNCLEAN) == {
        TopicPartition("t", 0): (ErrorCode.NONE, 3),
        TopicPartition("t", 2): (NOT_NEEDED, None),
        TopicPartition("t", 3): (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, None),
    }
    assert cluster.state("t", 0) == LeaderAndIsr(3, offline.leader_epoch + 1, (3,), 1)
    assert cluster.leaders("t")[1] is None, "not asked for"
    assert cluster.state("t", 2) == before
    assert elect(cluster, None, unclean=UNCLEAN) == {
        TopicPartition("t", 1): (ErrorCode.NONE, 4),  # the first of AR that is alive
        TopicPartition("t", 3): (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, None),
    }


@pytest.mark.spec("ADM-62")
def test_an_unclean_election_is_needed_where_the_leader_is_known_and_not_alive(cluster: FakeCluster) -> None:
    term = cluster.controller.term
    assert term is not None
    (wanted,) = partitions(1)
    assert elect(cluster, [wanted], unclean=UNCLEAN) == {wanted: (NOT_NEEDED, None)}
    term.context.failed_replicas[wanted] = {3}  # its directory has failed, and nobody has been elected yet
    assert elect(cluster, [wanted], unclean=UNCLEAN) == {wanted: (ErrorCode.NONE, 2)}


@pytest.mark.spec("ADM-62")
def test_a_topic_that_is_being_deleted_elects_nobody(cluster: FakeCluster) -> None:
    cluster.create_topic("d", {0: [4, 3]})
    term = cluster.controller.term
    assert term is not None
    term.context.deleting["t"] = None
    assert elect(cluster, partitions(0, 1, 7), unclean=CLEAN) == {  # before it is asked whether one is needed
        TopicPartition("t", 0): (ErrorCode.INVALID_TOPIC_EXCEPTION, None),
        TopicPartition("t", 1): (ErrorCode.INVALID_TOPIC_EXCEPTION, None),
        TopicPartition("t", 7): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
    }
    assert messages(cluster, partitions(0), unclean=CLEAN) == ["The topic is being deleted"]


@pytest.mark.spec("ADM-62")
@pytest.mark.parametrize(
    ("unclean", "message"),
    [
        (
            CLEAN,
            "Failed to elect leader for partition t-2 under strategy PreferredReplicaPartitionLeaderElectionStrategy",
        ),
        (
            UNCLEAN,
            "Failed to elect leader for partition t-3 under strategy OfflinePartitionLeaderElectionStrategy(true)",
        ),
    ],
)
def test_failures_are_told_in_kafkas_words(cluster: FakeCluster, unclean: bool, message: str) -> None:
    cluster.restart(4)
    cluster.create_topic("t3", {3: [4]})
    cluster.kill(4)
    cluster.run()
    term = cluster.controller.term
    assert term is not None
    wanted = TopicPartition("t3", 3) if unclean else TopicPartition("t", 2)
    outcome = term.requested_election.elect([wanted], unclean=unclean)[wanted]
    assert outcome.message == message.replace("t-3", "t3-3")


@pytest.mark.spec("ADM-63")
def test_an_election_asked_for_by_the_znode_is_no_conflict(cluster: FakeCluster) -> None:
    asked = TopicPartition("t", 0)
    cluster.zk.create(PreferredElectionZnode.PATH, PreferredElectionZnode.encode([asked]))
    assert elect(cluster, [asked], unclean=CLEAN) == {asked: (ErrorCode.NONE, 2)}
    assert cluster.exists(PreferredElectionZnode.PATH)
    epoch = cluster.state("t", 0).leader_epoch
    cluster.run()
    assert not cluster.exists(PreferredElectionZnode.PATH)
    assert (cluster.state("t", 0).leader, cluster.state("t", 0).leader_epoch) == (2, epoch)
