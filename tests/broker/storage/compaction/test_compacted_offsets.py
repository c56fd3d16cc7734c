"""``__consumer_offsets`` is compacted by default, and what a coordinator loads from it afterwards is all there was."""

from pathlib import Path

import pytest

from kafkatool.broker.server import Broker
from kafkatool.core.client.connection import Connection
from kafkatool.core.operations.topics.creation import create_topic
from kafkatool.core.protocol.messages import find_coordinator, offset_commit, offset_fetch
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkatool.core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkatool.core.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.broker.test_server import client_of, config
from tests.waiting import eventually

PATIENCE_S = 90


def _commit(client: Connection, group: str, offsets: dict[int, int]) -> None:
    partitions = [OffsetCommitRequestPartition(partition=p, committed_offset=o) for p, o in offsets.items()]
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(topic="t", partitions=partitions)])

    def taken() -> bool:
        answer = client.send(offset_commit.API, 7, request)
        return all(p.error_code == ErrorCode.NONE for p in answer.topics[0].partitions)

    eventually(taken, f"{group} to be able to commit", PATIENCE_S)


def _committed(client: Connection, group: str) -> dict[int, int] | None:
    answer = client.send(offset_fetch.API, 5, OffsetFetchRequest(group_id=group, topics=None))
    if answer.error_code:
        return None
    return {p.partition: p.committed_offset for topic in answer.topics for p in topic.partitions}


@pytest.mark.spec("BRK-166", "BRK-167", "GRP-13")
def test_commits_survive_compaction_and_a_restart(zk_connect: str, zk: ZooKeeper, tmp_path: Path) -> None:
    settings = config(
        zk_connect,
        tmp_path / "data",
        offsets_topic_num_partitions="1",
        offsets_topic_replication_factor="1",
        offsets_topic_segment_bytes="2000",
        log_cleaner_backoff_ms="50",
    )
    directory = tmp_path / "data" / "__consumer_offsets-0"
    groups = [f"group-{n}" for n in range(3)]
    with Broker(settings) as broker, client_of(broker) as client:
        create_topic(zk, "t", {0: (1,), 1: (1,)}, {})

        def coordinated() -> bool:
            return not client.send(find_coordinator.API, 2, FindCoordinatorRequest(key="group-0")).error_code

        eventually(coordinated, "a coordinator", PATIENCE_S)
        for number in range(60):
            _commit(client, groups[number % 3], {0: number, 1: number * 10})
        checkpoint = tmp_path / "data" / "cleaner-offset-checkpoint"
        eventually(checkpoint.exists, "the offsets to be compacted", PATIENCE_S)
        eventually(lambda: _log_bytes(directory) < 6000, "old commits to go", PATIENCE_S)  # written were 60 times 200
        expected = {group: _committed(client, group) for group in groups}
        assert expected["group-2"] == {0: 59, 1: 590}
    with Broker(settings) as broker, client_of(broker) as client:
        for group in groups:
            eventually(lambda group=group: _committed(client, group) == expected[group], f"{group} again", PATIENCE_S)  # type: ignore[misc]


def _log_bytes(directory: Path) -> float:
    try:
        return sum(path.stat().st_size for path in directory.glob("*.log"))
    except FileNotFoundError:  # the cleaner has just replaced one
        return float("inf")
