"""A look by requests: what brokers tell of a cluster with and without ZooKeeper, and what they leave open."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.client.settings import ClientSettings
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.health import by_request, checks
from kafkatool.core.operations.health.checks import Finding, Level
from kafkatool.core.operations.health.memory import Memory, remember
from kafkatool.core.operations.health.reading import Reading, Voter
from kafkatool.core.operations.requests.throttles import LOG_DIR_RATE
from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.messages import (
    describe_configs,
    describe_log_dirs,
    describe_quorum,
    metadata,
)
from kafkatool.core.protocol.messages import list_partition_reassignments as listing
from kafkatool.core.protocol.messages.describe_configs import DescribeConfigsEntry, DescribeConfigsResult
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.list_partition_reassignments import OngoingPartition, OngoingTopic
from kafkatool.core.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from tests.core.client.fake_broker import FakeBroker

pytestmark = pytest.mark.usefixtures("unhurried")
RATE, LIST = "leader.replication.throttled.rate", "leader.replication.throttled.replicas"
COMMON: dict[Api, tuple[int, int]] = {
    listing.API: (0, 0),
    describe_configs.API: (0, 4),
    describe_log_dirs.API: (0, 4),
}
KRAFT: dict[Api, tuple[int, int]] = {**COMMON, describe_quorum.API: (0, 1)}
CAUGHT_UP = 1_700_000_000_000


class Cluster:
    """Three brokers and a topic ``t`` of one partition on brokers 1 and 2, all well."""

    def __init__(self, apis: dict[Api, tuple[int, int]]) -> None:
        self.brokers = [FakeBroker(i, apis) for i in (1, 2, 3)]
        self.moving: list[OngoingPartition] = []
        self.configs: dict[tuple[int, str], list[DescribeConfigsEntry]] = {}
        self.refused: dict[tuple[int, str], int] = {}
        self.leader, self.epoch, self.quorum_error = 7, 3, 0
        self.caught_up = {7: CAUGHT_UP, 8: CAUGHT_UP - 10_000, 9: CAUGHT_UP}
        self.on_disks = ["t"]
        self.topic_id = b"0123456789abcdef"
        self.led: tuple[int, int, list[int]] = (1, 3, [1, 2])  # by whom, in which epoch, in sync with whom
        self.held = {1: 5, 2: 5, 3: 5}
        for broker in self.brokers:
            broker.knows, broker.controller_id = self.brokers, 2
            broker.answers |= {
                metadata.API.key: self._metadata,
                listing.API.key: self._list,
                describe_configs.API.key: self._describe,
                describe_log_dirs.API.key: partial(self._dirs, broker.id),
                describe_quorum.API.key: self._quorum,
            }

    def look(self) -> Reading:
        address = self.brokers[0].address
        settings = ClientSettings(client_id="kt-health", retries=0)
        with ClusterClient([address], settings) as client:
            return by_request.read(client)

    def found(self) -> dict[str, list[Finding]]:
        """Return what the checks find at one look, but what no look by requests tells."""
        reading = self.look()
        memory = remember(Memory(), reading)
        told = {c.name: list(c.findings) for c in checks.judge(reading, memory) if c.findings}
        earlier = "not told: those of before the first look: --watch and --state see later ones"
        assert (Level.UNKNOWN, earlier, ()) in told.pop("unclean elections")
        return told

    def set(self, kind: int, name: str, source: int, **values: str) -> None:
        self.configs[kind, name] = [
            DescribeConfigsEntry(name=key.replace("_", "."), value=value, read_only=False, config_source=source)
            for key, value in values.items()
        ]

    def _metadata(self, _: object) -> object:
        leader, epoch, isr = self.led
        partition = MetadataResponsePartition(
            partition=0, leader_id=leader, leader_epoch=epoch, replica_nodes=[1, 2], isr_nodes=isr
        )
        topic = MetadataResponseTopic(topic="t", topic_id=self.topic_id, partitions=[partition])
        return self.brokers[0].metadata([topic])

    def _list(self, _: object) -> object:
        topics = [OngoingTopic(topic="t", partitions=self.moving)] if self.moving else []
        return listing.ListPartitionReassignmentsResponse(topics=topics)

    def _describe(self, request: describe_configs.DescribeConfigsRequest) -> object:
        plain = [DescribeConfigsEntry(name="min.insync.replicas", value="1", read_only=False, config_source=5)]
        return describe_configs.DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(
                    resource_type=r.resource_type,
                    resource_name=r.resource_name,
                    error_code=self.refused.get((r.resource_type, r.resource_name), 0),
                    configs=self.configs.get((r.resource_type, r.resource_name), plain),
                )
                for r in request.resources
            ]
        )

    def _dirs(self, broker: int, _: object) -> object:
        held = self.held[broker]
        partition = describe_log_dirs.DescribeLogDirsPartition(partition=0, partition_size=held, offset_lag=0)
        topics = [describe_log_dirs.DescribeLogDirsTopic(topic=t, partitions=[partition]) for t in self.on_disks]
        directory = describe_log_dirs.DescribeLogDirsResult(
            log_dir="/data", topics=topics, total_bytes=100, usable_bytes=90
        )
        return describe_log_dirs.DescribeLogDirsResponse(results=[directory])

    def _quorum(self, _: object) -> object:
        if self.quorum_error:
            return describe_quorum.DescribeQuorumResponse(error_code=self.quorum_error, topics=[])
        voters = [
            describe_quorum.QuorumReplica(replica_id=b, log_end_offset=1, last_caught_up_timestamp=at)
            for b, at in self.caught_up.items()
        ]
        partition = describe_quorum.DescribedQuorumPartition(
            partition_index=0,
            leader_id=self.leader,
            leader_epoch=self.epoch,
            high_watermark=1,
            current_voters=voters,
            observers=[],
        )
        topic = describe_quorum.DescribedQuorumTopic(topic_name="__cluster_metadata", partitions=[partition])
        return describe_quorum.DescribeQuorumResponse(topics=[topic])

    def close(self) -> None:
        for broker in self.brokers:
            broker.close()


@pytest.fixture
def kraft() -> Iterator[Cluster]:
    made = Cluster(KRAFT)
    yield made
    made.close()


@pytest.fixture
def with_zookeeper() -> Iterator[Cluster]:
    made = Cluster(COMMON)
    yield made
    made.close()


UNSURE = (Level.UNKNOWN, "whether it changed within 5 min: --watch or --state tells", ("controller 7",))


@pytest.mark.spec("ADM-107", "ADM-109")
def test_without_zookeeper_the_controller_is_the_leader_of_the_quorum_not_whom_brokers_name(kraft: Cluster) -> None:
    reading = kraft.look()
    assert (reading.view.controller_id, reading.term) == (7, (7, 3))
    assert reading.voters == (Voter(7, 0.0), Voter(8, 10.0), Voter(9, 0.0))
    assert kraft.found() == {"controller": [UNSURE]}
    kraft.caught_up |= {8: CAUGHT_UP - 10_001, 9: -1}
    behind = (Level.DEGRADED, "behind the quorum for over 10 s", ("voter 8", "voter 9"))
    assert kraft.found() == {"controller": [behind, UNSURE]}


@pytest.mark.spec("ADM-107")
@pytest.mark.parametrize("how", ["no leader", "not available"])
def test_a_quorum_without_leader_has_no_controller_and_what_brokers_tell_is_old(kraft: Cluster, how: str) -> None:
    if how == "no leader":
        kraft.leader = -1
    else:
        kraft.quorum_error = ErrorCode.BROKER_NOT_AVAILABLE
    found = kraft.found()
    assert found["controller"] == [(Level.DEGRADED, "no controller at this look", ())], "critical after 10 s"
    for check in ("partitions", "leaders", "brokers"):
        assert found[check] == [(Level.UNKNOWN, "not told: what has changed since there was a controller", ())]
    first = kraft.look()
    later = replace(first, at_s=first.at_s + 10)
    memory = remember(remember(Memory(), first), later)
    assert checks.verdict(checks.judge(later, memory)) is Level.CRITICAL


@pytest.mark.spec("ADM-109")
def test_who_may_not_ask_for_the_quorum_does_not_know_the_controller(kraft: Cluster) -> None:
    kraft.quorum_error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    (finding,) = kraft.found()["controller"]
    assert finding.level is Level.UNKNOWN
    assert finding.what.startswith("not told: not permitted: Describe on cluster (broker ")


@pytest.mark.spec("ADM-109", "SEC-40")
def test_who_may_not_describe_every_topic_is_told_that_some_may_be_missing(kraft: Cluster) -> None:
    for broker in kraft.brokers:
        told = broker.answers[metadata.API.key]

        def denying(request: metadata.MetadataRequest, told: Any = told) -> object:
            if not request.topics:
                return told(request)
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            denied = [
                MetadataResponseTopic(topic=t.topic or "", error_code=code, partitions=[]) for t in request.topics
            ]
            return kraft.brokers[0].metadata(denied)

        broker.answers[metadata.API.key] = denying
    (finding,) = kraft.found()["partitions"]
    assert finding.level is Level.UNKNOWN
    assert finding.what.startswith("not told: not permitted: Describe on every topic (broker ")
    assert finding.what.endswith("topics that may not be described are left out")


@pytest.mark.spec("ADM-109")
def test_with_zookeeper_what_its_nodes_alone_tell_is_unknown(with_zookeeper: Cluster) -> None:
    unsure = UNSURE[:2]
    assert with_zookeeper.found() == {
        "controller": [(*unsure, ("broker 2",))],
        "moves": [(Level.UNKNOWN, "not told: what waits in /admin for a controller: --zookeeper tells", ())],
        "deletions": [
            (Level.UNKNOWN, "not told: which topics are marked for deletion, and since when: --zookeeper tells", ())
        ],
    }


@pytest.mark.spec("ADM-107", "ADM-108")
def test_moves_are_seen_with_what_they_add_and_keep_throttles_from_being_forgotten(kraft: Cluster) -> None:
    kraft.set(4, "1", 2, **{RATE.replace(".", "_"): "5000"})
    kraft.set(4, "2", 3, **{RATE.replace(".", "_"): "7000"})
    kraft.set(2, "t", 1, **{LIST.replace(".", "_"): "0:1"})
    at_rest = kraft.look()
    assert at_rest.throttles == {("brokers", "1"): {RATE: "5000"}, ("topics", "t"): {LIST: "0:1"}}
    assert at_rest.default_rates == {RATE: "7000"} and not at_rest.is_anything_moving
    kraft.moving = [OngoingPartition(partition=0, replicas=[3, 1, 2], adding_replicas=[3], removing_replicas=[2])]
    reading = kraft.look()
    assert reading.moving == {TopicPartition("t", 0)} and reading.view.topics["t"].added(0) == {3}
    assert reading.is_anything_moving
    assert (Level.UNKNOWN, "whether what moves goes on: --watch or --state tells", ("t-0",)) in kraft.found()["moves"]


@pytest.mark.spec("ADM-107")
def test_what_moved_between_two_reads_of_one_look_is_not_out_of_sync(kraft: Cluster) -> None:
    """Who is in sync was told before a move from 2 to 3 ended and one from 1 to 4 began, of which the controller tells."""
    kraft.moving = [
        OngoingPartition(partition=0, replicas=[4, 3, 1], adding_replicas=[4], removing_replicas=[1]),
        OngoingPartition(partition=9, replicas=[3, 1], adding_replicas=[3], removing_replicas=[1]),  # made since
    ]
    reading = kraft.look()
    assert reading.moving == {TopicPartition("t", 0)} and reading.view.topics["t"].added(0) == {4}
    assert "partitions" not in kraft.found()


@pytest.mark.spec("ADM-107")
def test_what_a_move_adds_that_ends_during_the_look_is_not_out_of_sync(kraft: Cluster) -> None:
    kraft.led, kraft.moving = (
        (1, 3, [1]),
        [OngoingPartition(partition=0, replicas=[1, 2], adding_replicas=[2], removing_replicas=[])],
    )
    told = kraft.brokers[1].answers[metadata.API.key]

    def ends(request: metadata.MetadataRequest) -> object:
        if request.topics is None:
            kraft.moving = []
        return told(request)

    for broker in kraft.brokers:
        broker.answers[metadata.API.key] = ends
    assert "partitions" not in kraft.found() and not kraft.moving
    assert "partitions" in kraft.found(), "now nothing moves"


@pytest.mark.spec("ADM-107", "ADM-109")
@pytest.mark.parametrize("silent", [1, 2])
def test_what_one_of_two_lists_of_moves_told_counts_though_the_other_was_not_told(kraft: Cluster, silent: int) -> None:
    kraft.led, kraft.moving = (
        (1, 3, [1]),
        [OngoingPartition(partition=0, replicas=[1, 2], adding_replicas=[2], removing_replicas=[])],
    )
    told, asked = kraft.brokers[1].answers[listing.API.key], 0

    def now_and_then(request: Any) -> object:
        nonlocal asked
        asked += 1
        if asked == silent:
            refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return listing.ListPartitionReassignmentsResponse(error_code=refused, topics=[])
        return told(request)

    for broker in kraft.brokers:
        broker.answers[listing.API.key] = now_and_then
    found = kraft.found()
    assert asked == 2 and "partitions" not in found, "what it adds need not be in sync"
    assert {finding.level for finding in found["moves"]} == {Level.UNKNOWN}
    assert sum(finding.what.startswith("not told: what moves") for finding in found["moves"]) == 1


@pytest.mark.spec("ADM-107")
def test_a_topic_is_told_from_an_earlier_one_by_its_id_where_brokers_tell_it(kraft: Cluster) -> None:
    assert kraft.look().view.topic_ids == {"t": "MDEyMzQ1Njc4OWFiY2RlZg"}
    for broker in kraft.brokers:
        broker.apis[metadata.API] = (0, 9)
    assert kraft.look().view.topic_ids == {}


@pytest.mark.spec("ADM-108")
def test_the_rate_of_moves_between_log_directories_is_a_throttle_of_its_broker(kraft: Cluster) -> None:
    kraft.set(4, "1", 2, **{LOG_DIR_RATE.replace(".", "_"): "5000"})
    kraft.set(4, "2", 4, **{LOG_DIR_RATE.replace(".", "_"): "7000"})
    reading = kraft.look()
    assert reading.throttles == {("brokers", "1"): {LOG_DIR_RATE: "5000"}}
    assert reading.default_rates == {LOG_DIR_RATE: "7000"}
    kraft.brokers[0].apis.pop(describe_log_dirs.API)
    assert kraft.look().throttles == {}, "whether there are such moves is not told"
    assert (Level.UNKNOWN, "a rate for moves between log directories, which are not told", ("broker 1",)) in (
        kraft.found()["throttles"]
    )


@pytest.mark.spec("ADM-108", "ADM-109")
def test_where_nobody_tells_what_moves_no_throttle_is_forgotten(kraft: Cluster) -> None:
    kraft.set(4, "1", 2, **{RATE.replace(".", "_"): "5000"})
    for broker in kraft.brokers:
        broker.answers[listing.API.key] = lambda _: listing.ListPartitionReassignmentsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, topics=[]
        )
    reading = kraft.look()
    assert reading.throttles and reading.is_anything_moving and not reading.moves_told
    found = kraft.found()
    assert [f.level for f in found["moves"]] == [Level.UNKNOWN] == [f.level for f in found["throttles"]]


@pytest.mark.spec("ADM-109")
def test_what_may_not_be_read_is_unknown_and_never_ok(kraft: Cluster) -> None:
    kraft.refused[2, "t"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    kraft.on_disks = ["t", "secret"]
    found = {check: [f.what for f in findings] for check, findings in kraft.found().items()}
    assert found["partitions"] == [
        "not told: configs of t, which may not be read",
        "not told: secret: on disks, and not ours to describe, or being deleted",
    ]
    assert found["throttles"] == ["not told: configs of t, which may not be read"]
    kraft.on_disks = ["t"]
    for broker in kraft.brokers[1:]:
        broker.answers[describe_log_dirs.API.key] = lambda _: describe_log_dirs.DescribeLogDirsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results=[]
        )
    found = {check: [f.what for f in findings] for check, findings in kraft.found().items()}
    assert found["disks"] == ["log directories not told"]
    for broker in kraft.brokers:
        broker.apis[metadata.API] = (0, 3)  # too old to be asked whether all topics are told
    found = {check: [f.what for f in findings] for check, findings in kraft.found().items()}
    unseen = "not told: topics that are not ours to describe, if there are any: broker 2, broker 3 tell of no disk"
    assert found["partitions"][-1] == unseen
    for broker in kraft.brokers:
        broker.apis[metadata.API] = (0, 12)
    kraft.refused = {(4, "3"): ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    found = {check: [f.what for f in findings] for check, findings in kraft.found().items()}
    assert found["throttles"] == ["not told: rates of broker 3"]
    kraft.brokers[2].close()
    silent: Any = kraft.found()
    assert (Level.UNKNOWN, "not told: rates of broker 3", ()) in silent["throttles"]
