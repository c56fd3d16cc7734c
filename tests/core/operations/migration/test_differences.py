"""What ZooKeeper and the brokers tell differently: each field by itself, told only of what stays as it is (ADM-102)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.errors import BrokerUnreachableError
from kafkatool.core.model.uuids import uuid_text
from kafkatool.core.model.values import LeaderAndIsr, TopicPartition
from kafkatool.core.operations.migration import differences as comparing
from kafkatool.core.operations.migration.differences import Difference, Differences, find_differences
from kafkatool.core.protocol.codec.types import NO_UUID
from kafkatool.core.protocol.messages import describe_configs, metadata
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigZnode, PartitionStateZnode, TopicZnode
from tests.core.zookeeper.memory import MemoryEnsemble, MemoryZooKeeper

pytestmark = pytest.mark.spec("ADM-102")
ID, OTHER_ID = bytes(15) + b"\x07", bytes(15) + b"\x08"
STATE = PartitionStateZnode.path(TopicPartition("t", 0))
AGREED = "replicas 1,2, leader 1, leader epoch 5, ISR 1,2"
_OF_TOPIC, _DEFAULT = 1, 5


@dataclass
class Brokers:
    """What the brokers tell of partition t-0; broker 1 has ZooKeeper no more. ``refusal``: the code for overrides."""

    topic_id: bytes = ID
    replicas: tuple[int, ...] = (1, 2)
    leader: int = 1
    epoch: int = 5
    isr: tuple[int, ...] = (1, 2)
    overrides: dict[str, str] = field(default_factory=lambda: {"retention.ms": "1000"})
    refusal: int = 0
    down: set[int] = field(default_factory=set)
    asked: list[tuple[int, int]] = field(default_factory=list)

    def metadata(self, topics: None, *, least: int) -> metadata.MetadataResponse:
        assert least >= 10, "which tells ids"
        partition = metadata.MetadataResponsePartition(
            partition=0,
            leader_id=self.leader,
            leader_epoch=self.epoch,
            replica_nodes=list(self.replicas),
            isr_nodes=list(self.isr),
        )
        topic = metadata.MetadataResponseTopic(topic="t", topic_id=self.topic_id, partitions=[partition])
        return metadata.MetadataResponse(brokers=[], topics=[topic])

    def broker(self, broker: int, api: object, request: Any, *, least: int) -> describe_configs.DescribeConfigsResponse:
        if broker in self.down:
            raise BrokerUnreachableError(f"broker {broker}: no answer")
        self.asked.append((broker, len(request.resources)))
        entries = [
            describe_configs.DescribeConfigsEntry(name=name, value=value, read_only=False, config_source=source)
            for source, values in ((_OF_TOPIC, self.overrides), (_DEFAULT, {"segment.bytes": "9"}))
            for name, value in values.items()
        ]
        result = describe_configs.DescribeConfigsResult(
            error_code=self.refusal, resource_type=2, resource_name="t", configs=entries
        )
        return describe_configs.DescribeConfigsResponse(results=[result])

    def refusal_text(self, api: object, code: int, *, resource: str) -> Exception:
        return BrokerUnreachableError(f"code {code} of {resource}")


class Client:
    """The client as far as it is needed."""

    def __init__(self, brokers: Brokers) -> None:
        self.metadata, self.broker, self.refusal = brokers.metadata, brokers.broker, brokers.refusal_text


@pytest.fixture
def zk() -> Iterator[ZooKeeper]:
    with MemoryZooKeeper(MemoryEnsemble()) as session:
        session.create(TopicZnode.path("t"), TopicZnode({0: (1, 2)}, {"topic_id": uuid_text(ID)}).encode())
        session.create(STATE, PartitionStateZnode.encode(LeaderAndIsr(1, 5, (2, 1), 1)), make_parents=True)
        session.create(ConfigZnode.path("topics", "t"), ConfigZnode.encode({"retention.ms": "1000"}), make_parents=True)
        yield session


def differing(
    zk: ZooKeeper,
    brokers: Brokers,
    *,
    kraft: tuple[int, ...] = (1,),
    between: Callable[[int], None] = lambda look: None,
) -> tuple[Differences, list[float]]:
    """Compare; ``between`` is called before the second and the third look, with 1 and 2. Return also the waits."""
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        between(len(slept))

    return find_differences(zk, cast("ClusterClient", Client(brokers)), kraft, sleep), slept


def write(zk: ZooKeeper, path: str, data: bytes) -> None:
    node = zk.get(path)
    assert node is not None
    zk.set(path, data, node.version)


def test_where_both_tell_the_same_nothing_is_read_again(zk: ZooKeeper) -> None:
    brokers = Brokers()
    assert differing(zk, brokers) == (Differences(()), [])
    assert brokers.asked == [(1, 1)]


@pytest.mark.parametrize(
    ("brokers", "name", "here", "there"),
    [
        (Brokers(replicas=(2, 1)), "t-0", AGREED, "replicas 2,1, leader 1, leader epoch 5, ISR 1,2"),
        (Brokers(leader=2), "t-0", AGREED, "replicas 1,2, leader 2, leader epoch 5, ISR 1,2"),
        (Brokers(leader=-1), "t-0", AGREED, "replicas 1,2, leader none, leader epoch 5, ISR 1,2"),
        (Brokers(epoch=6), "t-0", AGREED, "replicas 1,2, leader 1, leader epoch 6, ISR 1,2"),
        (Brokers(isr=(1,)), "t-0", AGREED, "replicas 1,2, leader 1, leader epoch 5, ISR 1"),
        (Brokers(topic_id=OTHER_ID), "t id", uuid_text(ID), uuid_text(OTHER_ID)),
        (Brokers(topic_id=NO_UUID), "t id", uuid_text(ID), "none"),
        (Brokers(overrides={"retention.ms": "1"}), "t overrides", "retention.ms=1000", "retention.ms=1"),
        (Brokers(overrides={}), "t overrides", "retention.ms=1000", "none"),
    ],
    ids=["replicas", "leader", "no leader", "epoch", "isr", "id", "no id", "override", "no override"],
)
def test_each_field_that_differs_by_itself_is_told_with_both_values(
    zk: ZooKeeper, brokers: Brokers, name: str, here: str, there: str
) -> None:
    (found, unread), slept = differing(zk, brokers)
    assert [(d.name, d.zookeeper, d.brokers) for d in found] == [(name, here, there)] and not unread
    assert slept == [2.0, 5.0]


def test_what_one_side_alone_has_differs_too(zk: ZooKeeper) -> None:
    zk.create(TopicZnode.path("u"), TopicZnode({}, {"topic_id": "x"}).encode())
    zk.delete(ConfigZnode.path("topics", "t"))
    (found, _), _ = differing(zk, Brokers())
    told = {d.name: (d.zookeeper, d.brokers) for d in found}
    assert told == {
        "u id": ("x", "nothing"),
        "u overrides": ("none", "nothing"),
        "t overrides": ("none", "retention.ms=1000"),
    }


def test_a_topic_named_like_a_partition_of_another_is_told_apart_from_it(
    zk: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    zk.create(TopicZnode.path("t-0"), TopicZnode({}, {"topic_id": uuid_text(OTHER_ID)}).encode())
    brokers = Brokers()
    answer = brokers.metadata(None, least=10)
    (t,), named_like_t_0 = answer.topics, metadata.MetadataResponseTopic(topic="t-0", topic_id=OTHER_ID, partitions=[])
    monkeypatch.setattr(brokers, "metadata", lambda topics, *, least: answer)
    for topics in ([t, named_like_t_0], [named_like_t_0, t]):
        answer.topics[:] = topics
        assert differing(zk, brokers, kraft=()) == (Differences(()), [])
    answer.topics[:] = [t]
    (found, _), _ = differing(zk, brokers, kraft=())
    assert [(d.name, d.zookeeper, d.brokers) for d in found] == [("t-0 id", uuid_text(OTHER_ID), "nothing")]


@pytest.mark.parametrize(("agreed_at", "waits"), [(1, [2.0]), (2, [2.0, 5.0])])
def test_what_has_come_to_agree_by_a_later_look_is_not_told(zk: ZooKeeper, agreed_at: int, waits: list[float]) -> None:
    brokers = Brokers(epoch=6)

    def between(look: int) -> None:
        if look == agreed_at:
            write(zk, STATE, PartitionStateZnode.encode(LeaderAndIsr(1, 6, (1, 2), 1)))

    assert differing(zk, brokers, between=between) == (Differences(()), waits)


@pytest.mark.parametrize(
    ("path", "brokers"),
    [
        (STATE, Brokers(epoch=6)),
        (TopicZnode.path("t"), Brokers(topic_id=OTHER_ID)),
        (ConfigZnode.path("topics", "t"), Brokers(overrides={})),
    ],
    ids=["state", "topic", "overrides"],
)
def test_what_comes_back_as_it_was_has_changed_meanwhile(zk: ZooKeeper, path: str, brokers: Brokers) -> None:
    """Written twice between two looks: the data is the same again, the version tells."""
    same = zk.get(path)
    assert same is not None

    def between(look: int) -> None:
        if look == 1:
            write(zk, path, b"{}")
            write(zk, path, same.data)

    assert differing(zk, brokers, between=between) == (Differences(()), [2.0])


def test_what_differs_otherwise_at_each_look_is_on_its_way_and_not_told(zk: ZooKeeper) -> None:
    brokers = Brokers(epoch=6)

    def between(look: int) -> None:
        brokers.epoch += 1  # a new leader each time: ZooKeeper is behind, and not lost

    assert differing(zk, brokers, between=between) == (Differences(()), [2.0])


def test_of_what_differs_only_what_stays_is_told(zk: ZooKeeper) -> None:
    brokers = Brokers(epoch=6, topic_id=OTHER_ID)

    def between(look: int) -> None:
        brokers.epoch = 5
        brokers.overrides = {}  # comes in later: the next check tells of it

    (found, _), slept = differing(zk, brokers, between=between)
    assert found == (Difference("t id", uuid_text(ID), uuid_text(OTHER_ID), 0),)
    assert slept == [2.0, 5.0]


def test_overrides_are_compared_with_a_broker_that_has_zookeeper_no_more(zk: ZooKeeper) -> None:
    brokers = Brokers(overrides={})
    assert differing(zk, brokers, kraft=()) == (Differences(()), []), "one with ZooKeeper would read them there"
    assert brokers.asked == []
    brokers = Brokers(down={1})
    assert differing(zk, brokers, kraft=(2, 1)) == (Differences(()), []) and brokers.asked == [(2, 1)]


def test_overrides_that_nobody_tells_are_named_and_the_rest_is_compared(zk: ZooKeeper) -> None:
    (found, unread), _ = differing(zk, Brokers(down={1}, epoch=6))
    assert [d.name for d in found] == ["t-0"] and unread == "overrides of topics: broker 1: no answer"
    (found, unread), _ = differing(zk, Brokers(refusal=29))
    assert (found, unread) == ((), "overrides of topics: code 29 of t")
    gone = Brokers(refusal=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    (found, unread), _ = differing(zk, gone)
    assert [(d.name, d.brokers) for d in found] == [("t overrides", "nothing")] and not unread


def test_overrides_of_many_topics_are_asked_for_in_parts(zk: ZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers()
    answer = brokers.metadata(None, least=10)
    answer.topics.append(metadata.MetadataResponseTopic(topic="u", topic_id=OTHER_ID, partitions=[]))
    monkeypatch.setattr(brokers, "metadata", lambda topics, *, least: answer)
    monkeypatch.setattr(comparing, "TOPICS_AT_ONCE", 1)
    differing(zk, brokers)
    assert brokers.asked[:2] == [(1, 1), (1, 1)]
