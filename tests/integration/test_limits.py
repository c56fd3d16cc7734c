"""At the limits: a full disk, and a topic with very many partitions."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.core.errors import KafkatoolError
from kafkatool.core.operations.topics.deletion import mark_for_deletion
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.integration.load import Load, await_in_sync, check_records, check_replicas_equal, make_topic
from tests.steady import STEADY
from tests.waiting import eventually

_SAFE = {"min.insync.replicas": "2", "auto.create.topics.enable": "false", **STEADY}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 20 MB."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", str(path)]
    mounted = subprocess.run(command, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"needs the right to mount: {mounted.stderr.decode().strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(path: Path) -> Path:
    """Leave no byte free."""
    filling = path / "filling"
    with filling.open("wb", buffering=0) as f:
        try:
            while f.write(b"x" * 4096) == 4096:
                pass
        except OSError:
            pass  # full
    return filling


@pytest.mark.slow
@pytest.mark.spec("BRK-146")
def test_a_cluster_on_a_full_disk_is_one_clear_error(small_disk: Path) -> None:
    fill(small_disk)
    command = [sys.executable, "-m", "kafkatool", "cluster", "up", "--brokers", "1", "--dir", str(small_disk / "c")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "the disk is full" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.spec("BRK-146", "BRK-159", "CTL-37")
def test_a_broker_whose_disk_fills_up_says_so_and_ends_and_comes_back_with_space(small_disk: Path) -> None:
    directory = Path(tempfile.mkdtemp(prefix="kafkatool-full-"))
    cluster = EmbeddedCluster(brokers=3, directory=directory, options=_SAFE)
    try:
        cluster.files.data(2).parent.mkdir(parents=True)
        cluster.files.data(2).symlink_to(small_disk, target_is_directory=True)
        cluster.up()
        with ZooKeeper(cluster.zookeeper) as zk:
            make_topic(zk, "t", 3)
            await_in_sync(zk, ["t"])
            outcomes: set[object] = set()
            producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
            for _ in range(600):
                producer.produce("t", os.urandom(50_000), on_delivery=lambda e, _: outcomes.add(e))
                producer.poll(0.01)
            assert producer.flush(250) == 0
            assert outcomes == {None}, "the other two go on"
            eventually(lambda: cluster.status().brokers[1].pid is None, "it to end", 90)
            assert "No space left on device" in cluster.files.output(2).read_text()
            filling = fill(small_disk)
            with pytest.raises(KafkatoolError, match="No space left on device"):
                cluster.start_broker(2)
            filling.unlink()
            subprocess.run(["mount", "-o", "remount,size=200m", str(small_disk)], check=True)
            cluster.start_broker(2)
            await_in_sync(zk, ["t"], 120)
        check_replicas_equal(cluster)
    finally:
        cluster.down(gentle=False)
        shutil.rmtree(directory)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.spec("CTL-43", "CTL-45", "CTL-85", "BRK-137")
def test_a_topic_with_a_thousand_partitions_lives_through_stop_kill_and_deletion() -> None:
    partitions = 1000
    with EmbeddedCluster(brokers=3, options=_SAFE) as cluster, ZooKeeper(cluster.zookeeper) as zk:
        make_topic(zk, "big", partitions)
        await_in_sync(zk, ["big"], 180)
        load = Load(cluster.bootstrap, "big", idempotent=True, records_per_step=1)
        try:
            load.goes_on(200)
            cluster.stop_broker(2)
            cluster.start_broker(2)
            await_in_sync(zk, ["big"], 180)
            cluster.kill_broker(3)
            eventually(lambda: 3 not in read_cluster(zk, [], states=False).brokers, "the session to expire", 60)
            cluster.start_broker(3)
            await_in_sync(zk, ["big"], 180)
            load.goes_on(200)
        finally:
            load.stop()
        check_records(cluster, "big", partitions, load, once=True)
        check_replicas_equal(cluster)
        mark_for_deletion(zk, "big")
        eventually(lambda: "big" not in read_cluster(zk).topics, "the deletion", 180)
