"""DescribeLogDirs over real log dirs, one of which fails."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkatool.broker.handlers.call import load_handlers
from kafkatool.broker.runtime.scheduler import Scheduler
from kafkatool.broker.storage.directories.log_manager import LogManager
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import describe_log_dirs as api
from kafkatool.core.protocol.records.batches import Record, encode_batch
from tests.broker.handlers.served import Client, broker_of, handler_context
from tests.broker.network.raw_client import network_config

SERVED = {35: load_handlers()[35]}
BATCH = 5


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[LogManager]:
    dirs = [tmp_path / "one", tmp_path / "two"]
    for path in dirs:
        path.mkdir()
    scheduler = Scheduler(1, "test")
    made = LogManager(network_config(**{"log.dirs": ",".join(map(str, dirs))}), lambda _: {}, scheduler, "cluster")
    made.load()
    for topic, partition in (("t", 0), ("t", 1), ("u", 0)):
        log = made.get_or_create(TopicPartition(topic, partition), is_new=True)
        records = [Record(i, 0, b"k", b"v", ()) for i in range(BATCH)]
        log.append_as_leader(encode_batch(records), 0)
    yield made
    scheduler.shutdown()
    made.shutdown()


class Replicas:
    """High watermarks; ``u`` has no role yet."""

    @property
    def partitions(self) -> "Replicas":
        return self

    def get(self, partition: TopicPartition) -> Any:
        if partition.topic == "u":
            return None
        return SimpleNamespace(high_watermark=SimpleNamespace(offset=BATCH + 2 * partition.partition))


@pytest.fixture
def client(manager: LogManager) -> Iterator[Client]:
    replicas: Any = Replicas()
    with broker_of(SERVED, handler_context(log_manager=manager, replica_manager=replicas)) as made:
        yield made


def ask(client: Client, topics: list[tuple[str, list[int]]] | None, version: int) -> dict[str, tuple[int, Any]]:
    named = None if topics is None else [api.DescribeLogDirsRequestTopic(topic=t, partitions=p) for t, p in topics]
    results = client.call(api.API, version, api.DescribeLogDirsRequest(topics=named)).results
    return {
        r.log_dir: (
            r.error_code,
            {
                (t.topic, p.partition): (p.partition_size, p.offset_lag, p.is_future_key)
                for t in r.topics
                for p in t.partitions
            },
        )
        for r in results
    }


@pytest.mark.spec("BRK-162", "BRK-146")
@pytest.mark.parametrize("version", range(5))
def test_sizes_and_lags_by_directory(client: Client, manager: LogManager, tmp_path: Path, version: int) -> None:
    size = manager.logs()[0].size_bytes
    assert size > 0
    everything = {("t", 0): (size, 0, False), ("t", 1): (size, 2, False), ("u", 0): (size, -1, False)}
    found = ask(client, None, version)
    assert sorted(found) == [str(tmp_path / "one"), str(tmp_path / "two")]
    assert {error for error, _ in found.values()} == {0}
    assert {p: v for _, logs in found.values() for p, v in logs.items()} == everything
    assert all(logs for _, logs in found.values()), "they are spread"
    chosen = ask(client, [("t", [1, 7]), ("gone", [0])], version)
    assert {p: v for _, logs in chosen.values() for p, v in logs.items()} == {("t", 1): everything["t", 1]}
    assert {p for _, logs in ask(client, [], version).values() for p in logs} == set()
    manager.take_offline(tmp_path / "one", OSError("the disk is gone"))
    found = ask(client, None, version)
    assert found[str(tmp_path / "one")] == (56, {})
    assert found[str(tmp_path / "two")][0] == 0


@pytest.mark.spec("BRK-162")
def test_of_each_disk_that_works_its_size_and_what_is_free_are_told(
    client: Client, manager: LogManager, tmp_path: Path
) -> None:
    manager.take_offline(tmp_path / "one", OSError("the disk is gone"))

    def disks(version: int) -> dict[str, tuple[int, int]]:
        results = client.call(api.API, version, api.DescribeLogDirsRequest(topics=None)).results
        return {Path(r.log_dir).name: (r.total_bytes, r.usable_bytes) for r in results}

    found = disks(4)
    total, free = found["two"]
    assert total == shutil.disk_usage(tmp_path).total
    assert 0 < free <= total
    assert found["one"] == (-1, -1)
    assert disks(3)["two"] == (-1, -1)
