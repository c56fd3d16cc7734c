"""A whole broker that takes over its settings while it runs, from its own node and from that of all brokers."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkatool.broker.server import Broker
from kafkatool.core.protocol.messages import incremental_alter_configs as alter
from kafkatool.core.protocol.messages import metadata, produce
from kafkatool.core.protocol.records.batches import Record, encode_batch
from tests.broker.network.raw_client import wait_until
from tests.broker.test_server import client_of, config, create

SET, DELETE = 0, 1
BROKER = 4


@pytest.fixture
def broker(zk_connect: str, tmp_path: Path) -> Iterator[Broker]:
    with Broker(config(zk_connect, tmp_path / "data")) as made:
        yield made


def change(client: Any, broker: str, name: str, value: str | None) -> None:
    operation = alter.ConfigOperation(name=name, config_operation=SET if value is not None else DELETE, value=value)
    resource = alter.IncrementalAlterConfigsResource(resource_type=BROKER, resource_name=broker, configs=[operation])
    request = alter.IncrementalAlterConfigsRequest(resources=[resource])
    (result,) = client.send(alter.API, 0, request).responses
    assert (result.error_code, result.error_message) == (0, None)


def written(client: Any, value: bytes, name: str = "t") -> int:
    partition = produce.ProduceRequestPartition(partition=0, records=encode_batch([Record(0, 0, None, value, ())]))
    topic = produce.ProduceRequestTopic(topic=name, partitions=[partition])
    answer = client.send(produce.API, 7, produce.ProduceRequest(acks=1, timeout_ms=10_000, topics=[topic]))
    return int(answer.topics[0].partitions[0].error_code)


@pytest.mark.spec("BRK-125")
def test_logs_and_new_topics_follow_and_a_restart_keeps_it(broker: Broker, zk_connect: str, tmp_path: Path) -> None:
    large = b"x" * 5000
    with client_of(broker) as client:
        wait_until(lambda: client.send(metadata.API, 1, metadata.MetadataRequest(topics=[])).controller_id == 1)
        assert create(client, "t", 1, 1) == 0
        wait_until(lambda: written(client, b"") == 0)
        assert written(client, large) == 0
        change(client, "", "message.max.bytes", "1000")
        wait_until(lambda: written(client, large) == 10)
        assert written(client, b"small") == 0
        change(client, "1", "message.max.bytes", "100000")
        wait_until(lambda: written(client, large) == 0)
        change(client, "1", "message.max.bytes", None)
        wait_until(lambda: written(client, large) == 10)
        assert create(client, "u", 1, 1) == 0
        wait_until(lambda: written(client, b"small", "u") == 0)
        assert written(client, large, "u") == 10
    broker.stop()
    with Broker(config(zk_connect, tmp_path / "data")) as again, client_of(again) as client:
        wait_until(lambda: written(client, b"small") == 0)
        assert written(client, large) == 10
        change(client, "", "message.max.bytes", None)
        wait_until(lambda: written(client, large) == 0)


@pytest.mark.spec("BRK-125")
def test_threads_follow_and_a_leap_is_refused(broker: Broker) -> None:
    before = {thread.name for thread in threading.enumerate()}  # other brokers' are among them, if a test left any
    handlers, processors = broker.config.num_io_threads, broker.config.num_network_threads

    def threads(kind: str) -> int:
        own = handlers if kind == "handler" else processors
        now = {thread.name for thread in threading.enumerate()}
        return own + sum((name in now) - (name in before) for name in now | before if f"-{kind}-" in name)

    with client_of(broker) as client:
        change(client, "1", "num.io.threads", str(handlers * 2))
        wait_until(lambda: threads("handler") == handlers * 2)
        change(client, "", "num.network.threads", str(processors + 1))
        wait_until(lambda: threads("processor") == processors + 1)
        change(client, "1", "num.io.threads", None)
        wait_until(lambda: threads("handler") == handlers)
        with pytest.raises(AssertionError, match="42"):
            change(client, "1", "num.io.threads", str(handlers * 2 + 1))
    assert threads("handler") == handlers
