"""Sizes of partitions from brokers that answer, and from brokers that do not."""

from typing import Any

import pytest

from kafkatool.core.model.values import BrokerInfo, Endpoint, TopicPartition
from kafkatool.core.operations.reassignment import replica_sizes
from kafkatool.core.operations.reassignment.replica_sizes import read_sizes
from kafkatool.core.protocol.messages import api_versions, describe_log_dirs
from tests.core.operations.verification.fake_broker import FakeBroker, fake_cluster

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
SIZES = {1: {A: 700}, 2: {A: 900, B: 50}, 3: {B: 10_000}}


def sized(broker: FakeBroker, key: int) -> Any:
    """Answer as a broker that serves DescribeLogDirs only."""
    api = describe_log_dirs.API
    if key == api_versions.API.key:
        served = api_versions.ApiVersionsResponseKey(api_key=api.key, min_version=0, max_version=1)
        return api_versions.ApiVersionsResponse(api_keys=[served])
    topics = [
        describe_log_dirs.DescribeLogDirsTopic(
            topic=tp.topic,
            partitions=[
                describe_log_dirs.DescribeLogDirsPartition(partition=tp.partition, partition_size=size, offset_lag=0)
            ],
        )
        for tp, size in SIZES[broker.id].items()
    ]
    result = describe_log_dirs.DescribeLogDirsResult(log_dir="/data", topics=topics)
    return describe_log_dirs.DescribeLogDirsResponse(results=[result])


@pytest.mark.spec("RSN-29X")
def test_the_largest_replica_counts_and_a_silent_broker_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_sizes, "TIMEOUT_MS", 60_000)  # one that is only slow is not silent
    logs: dict[int, dict[TopicPartition, list[bytes]]] = {b: {} for b in SIZES}
    with fake_cluster(logs, down=[3]) as fakes:
        brokers = [BrokerInfo(b, (Endpoint("PLAINTEXT", "127.0.0.1", port),)) for b, port in fakes[1].addresses.items()]
        secured = BrokerInfo(4, (Endpoint("SSL", "127.0.0.1", 1, "SSL"),))
        assert read_sizes([*brokers, secured], [A]) == {}  # these fakes do not know the question
        monkeypatch.setattr(FakeBroker, "answer", lambda broker, key, version, request: sized(broker, key))
        assert read_sizes([*brokers, secured], [A, B]) == {A: 900, B: 50}
        assert read_sizes(brokers, [A]) == {A: 900}
