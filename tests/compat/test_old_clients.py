"""Kafka's own clients and tools of before record batches, on brokers of ours: 0.10.2.2; and ReplicaVerificationTools.

They ask no broker for its versions: they send Produce 2, Fetch 3, ListOffsets 0 and 1, Metadata 0, and the tool of 2.8.2
Fetch 12 and ListOffsets 6.
"""

import contextlib
import queue
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.core.java import find_java
from tests.compat import real_kafka
from tests.steady import STEADY

pytestmark = [pytest.mark.slow, pytest.mark.slowest, pytest.mark.timeout(900)]

OLD: Final = "0.10.2.2"
WAIT_S: Final = 180
PATIENT: Final = ("--request-timeout-ms", "60000")
LINES: Final = [f"line {number} äöü" for number in range(200)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    real_kafka.require(OLD)
    options = {**STEADY, "auto.create.topics.enable": "false", "auto.leader.rebalance.enable": "false"}
    with EmbeddedCluster(3, directory=tmp_path_factory.mktemp("cluster"), options=options) as running:
        yield running


def command(version: str, main: str, *arguments: str) -> list[str]:
    java = str(find_java().executable)
    return [java, "-Xmx256M", "-XX:TieredStopAtLevel=1", "-cp", f"{real_kafka.libraries(version)}/*", main, *arguments]


def tool(version: str, main: str, *arguments: str, stdin: str = "") -> str:
    """Return what the tool printed; it must end with 0."""
    done = subprocess.run(
        command(version, main, *arguments), input=stdin, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 0, f"{main} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def write(cluster: EmbeddedCluster, version: str, topic: str, *options: str) -> None:
    main, where = "kafka.tools.ConsoleProducer", ("--broker-list", cluster.bootstrap, "--topic", topic)
    tool(version, main, *where, *PATIENT, *options, stdin="".join(f"{line}\n" for line in LINES))


def read(version: str, topic: str, count: int, *options: str) -> Counter[str]:
    wanted = ("--topic", topic, "--from-beginning", "--max-messages", str(count), "--timeout-ms", "120000")
    return Counter(tool(version, "kafka.tools.ConsoleConsumer", *wanted, *options).splitlines())


@pytest.mark.spec("ADM-87", "ADM-90", "ADM-91", "ADM-93", "ADM-96")
def test_what_producers_of_0_10_write_consumers_of_0_10_and_of_today_read(cluster: EmbeddedCluster) -> None:
    """The new and the Scala producer, each codec; the new consumer in a group, the Scala one over ZooKeeper."""
    cluster.create_topic("mixed", partitions=1, replication_factor=3)
    ways: list[tuple[str, ...]] = [("--compression-codec", codec) for codec in ("none", "snappy", "lz4")]
    ways += [("--compression-codec", "gzip", "--request-required-acks", "all"), ("--old-producer",)]
    for way in ways:
        write(cluster, OLD, "mixed", *way)
    write(cluster, "2.8.2", "mixed", "--compression-codec", "snappy")
    count = len(LINES) * (len(ways) + 1)
    expected = Counter({line: len(ways) + 1 for line in LINES})
    group = ("--bootstrap-server", cluster.bootstrap, "--consumer-property", "session.timeout.ms=60000")
    assert read(OLD, "mixed", count, "--new-consumer", *group) == expected
    assert read(OLD, "mixed", count, "--zookeeper", cluster.zookeeper) == expected
    assert read("2.8.2", "mixed", count, "--bootstrap-server", cluster.bootstrap) == expected
    ends = ("--broker-list", cluster.bootstrap, "--topic", "mixed", "--offsets", "9")
    assert tool(OLD, "kafka.tools.GetOffsetShell", *ends, "--time", "-1").split() == [f"mixed:0:{count},0"]
    assert tool(OLD, "kafka.tools.GetOffsetShell", *ends, "--time", "-2").split() == ["mixed:0:0"]


@contextlib.contextmanager
def verification(version: str, cluster: EmbeddedCluster, topic: str) -> Iterator["queue.SimpleQueue[str]"]:
    """Give the lines that the tool prints; it is ended with the block, as it never ends by itself."""
    main, which = "kafka.tools.ReplicaVerificationTool", ("--topic-white-list", topic, "--time", "-2")
    arguments = ("--broker-list", cluster.bootstrap, *which, "--report-interval-ms", "500")
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    with subprocess.Popen(
        command(version, main, *arguments), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        out = process.stdout

        def gather() -> None:
            for line in out:
                lines.put(line.rstrip("\n"))

        reader = threading.Thread(target=gather, daemon=True)
        reader.start()
        try:
            yield lines
        finally:
            process.kill()
            process.wait()
            reader.join()


def said(lines: "queue.SimpleQueue[str]", what: str) -> bool:
    """Wait for a line with these words."""
    end = time.monotonic() + WAIT_S
    while True:
        line = lines.get(timeout=max(0.1, end - time.monotonic()))
        if what in line:
            return True


@pytest.mark.spec("ADM-88", "ADM-85")
@pytest.mark.parametrize("version", [OLD, "1.1.1", "2.8.2"])
def test_the_replica_verification_tool_finds_equal_replicas_equal_and_a_flipped_byte(
    cluster: EmbeddedCluster, version: str
) -> None:
    real_kafka.require(version)
    topic = f"verified-{version}"
    cluster.create_topic(topic, partitions=1, replication_factor=3)
    for codec in ("none", "gzip", "lz4"):
        write(cluster, "2.8.2", topic, "--compression-codec", codec, "--request-required-acks", "all")
    with verification(version, cluster, topic) as lines:
        assert said(lines, f"at offset {3 * len(LINES)} among 1 partitions")
    follower = next(b for b in cluster.status().brokers if b.id != cluster.leader(topic))
    (log,) = Path(follower.log_dirs[0]).glob(f"{topic}-0/*.log")
    with log.open("r+b") as file:  # in the checksum of the first batch, which 2.8.2 compares, and in its first value
        content = file.read()
        for at in (17, content.index(b"line 0")):
            file.seek(at)
            file.write(bytes([content[at] ^ 1]))
    with verification(version, cluster, topic) as lines:
        assert said(lines, "has unmatched checksum at offset")
