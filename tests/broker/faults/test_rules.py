"""Which part of a request a rule meets, and what its sender must be: values in, values out."""

from pathlib import Path

import pytest

from kafkatool.broker.faults.answers import FaultyHandlers
from kafkatool.broker.faults.disk import FaultyDisk
from kafkatool.broker.faults.rules import Counter, Rule, names_topics
from kafkatool.broker.handlers.call import load_handlers
from kafkatool.broker.storage.segment import segment_file
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import delete_topics, fetch, heartbeat, metadata, offset_fetch, stop_replica


def rule(**conditions: object) -> Rule:
    return Rule.from_json({"action": "never", "counter": "unused", **conditions})


def offsets(**topics: list[int]) -> offset_fetch.OffsetFetchRequest:
    named = [offset_fetch.OffsetFetchRequestTopic(topic=t, partitions=p) for t, p in topics.items()]
    return offset_fetch.OffsetFetchRequest(group_id="g", topics=named)


def test_without_a_topic_all_of_a_request_is_met() -> None:
    assert rule().split(request := offsets(a=[1])) == (request, None)


def test_a_topic_is_parted_from_the_others() -> None:
    assert rule(topic="a").split(offsets(a=[1, 2], b=[3])) == (offsets(a=[1, 2]), offsets(b=[3]))
    assert rule(topic="a").split(offsets(a=[1, 2])) == (offsets(a=[1, 2]), None)
    assert rule(topic="c").split(offsets(a=[1, 2])) is None


def test_a_partition_is_parted_from_the_others_of_its_topic() -> None:
    both = offsets(a=[1, 2], b=[2])
    assert rule(topic="a", partition=2).split(both) == (offsets(a=[2]), offsets(a=[1], b=[2]))
    assert rule(topic="a", partition=3).split(both) is None
    flat = stop_replica.StopReplicaRequest(
        controller_id=1,
        controller_epoch=1,
        delete_partitions=False,
        partitions=[TopicPartition("a", 0), TopicPartition("a", 1)],
    )
    parts = rule(topic="a", partition=1).split(flat)
    assert parts is not None and [part.partitions for part in parts] == [[("a", 1)], [("a", 0)]]


def test_topics_that_are_mere_names_are_parted_too() -> None:
    parts = rule(topic="a").split(delete_topics.DeleteTopicsRequest(topic_names=["a", "b"], timeout_ms=1))
    assert parts is not None and [part.topic_names for part in parts] == [["a"], ["b"]]


@pytest.mark.parametrize(
    ("conditions", "client_id", "meets"),
    [
        ({}, "any", True),
        ({"client_id": "mine"}, "mine", True),
        ({"client_id": "mine"}, "other", False),
        ({"client_id": "mine"}, None, False),
        ({"senders": [2, 3]}, "2", True),
        ({"senders": [2, 3]}, "broker-3-fetcher-0", True),
        ({"senders": [2, 3]}, "broker-33-fetcher-0", False),
        ({"senders": [2, 3]}, None, False),
    ],
)
def test_the_sender(conditions: dict[str, object], client_id: str | None, meets: bool) -> None:
    request = heartbeat.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert rule(**conditions).concerns(client_id, request) is meets


def test_fetches_of_followers_are_spared_unless_they_are_meant() -> None:
    request = fetch.FetchRequest(replica_id=2, max_wait_ms=0, min_bytes=0, max_bytes=0, topics=[])
    assert not rule().concerns("broker-2-fetcher-0", request)
    assert rule(followers=True).concerns("broker-2-fetcher-0", request)


def test_which_requests_say_what_topics_they_are_about() -> None:
    assert all(names_topics(cls) for cls in (metadata.MetadataRequest, delete_topics.DeleteTopicsRequest))
    assert not names_topics(heartbeat.HeartbeatRequest)


def test_what_several_count_is_counted_together(tmp_path: Path) -> None:
    first, second = Counter(f"{tmp_path}/count"), Counter(f"{tmp_path}/count")
    assert [first.next(), second.next(), second.next(), first.next()] == [0, 1, 2, 3]


def test_without_a_fault_a_request_is_served_by_the_handlers_themselves(tmp_path: Path) -> None:
    """Nothing is asked on the way, so nothing can cost."""
    handlers = load_handlers()
    faulty, disk = FaultyHandlers(handlers), FaultyDisk()

    def untouched() -> set[int]:
        return {key for key, served in handlers.items() if faulty.table[key] is served}

    assert untouched() == handlers.keys() and segment_file.pwrite is None
    faulty.add("f", Rule(action="never", counter=str(tmp_path / "count"), apis=(12,)))
    disk.slow("d", str(tmp_path / "writes"), 0)
    assert untouched() == handlers.keys() - {12} and segment_file.pwrite is not None
    faulty.remove("f")
    disk.remove("d")
    assert untouched() == handlers.keys() and segment_file.pwrite is None
