"""``scripts/benchmark embedded``: how long a test suite waits for its cluster, and for its topics, groups and records.

A start is ``kt cluster up`` as a user runs it, into an empty directory, from the launch of Python to its end. Of the
tests each makes a topic, writes three records with a producer of its own and reads them in a group of its own; by
aiokafka, by librdkafka and, with Go on this machine, by franz-go, on this cluster and on kfake, a fake in its process.
"""

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import psutil
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioTopic
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.clusters import wait_for
from benchmarks.report import machine
from kafkatool.broker.embedded import zookeeper_archive_maker
from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.core.client.connection import Connection
from kafkatool.core.protocol.messages import metadata

_METADATA_VERSION: Final = 5
_RECORDS: Final = 3
_REPLICAS: Final = 3
_FRANZ_GO: Final = Path(__file__).with_name("franz_go")


class Start(NamedTuple):
    """One start: until kt has ended, and the processor time of all processes by then."""

    elapsed_s: float
    cpu_s: float


class Suite(NamedTuple):
    """The tests of one cluster, in seconds altogether: topics known to all brokers, records written, records read."""

    topics_s: float
    writing_s: float
    reading_s: float


def measure_start(brokers: int) -> Start:
    """Start a cluster by kt, and end it."""
    with tempfile.TemporaryDirectory(prefix="kafkatool-benchmark-", ignore_cleanup_errors=True) as name:
        directory = Path(name, "cluster")
        command = [sys.executable, "-m", "kafkatool", "cluster", "up", "--brokers", str(brokers), "--dir"]
        try:
            begun = time.perf_counter()
            with subprocess.Popen([*command, str(directory)], stdout=subprocess.DEVNULL) as kt:
                _, status, used = os.wait4(kt.pid, 0)
                elapsed_s = time.perf_counter() - begun
                kt.returncode = os.waitstatus_to_exitcode(status)
            if kt.returncode:
                raise RuntimeError("kt cluster up failed")
            started = [p for p in psutil.process_iter() if _names(p, directory)]
            cpu_s = sum(p.cpu_times().user + p.cpu_times().system for p in started)
            return Start(elapsed_s, cpu_s + used.ru_utime + used.ru_stime)
        finally:
            EmbeddedCluster(directory=directory).down(gentle=False)


def measure_suite(brokers: int, tests: int) -> Suite:
    """Run the tests one after another on a cluster of their own."""
    with EmbeddedCluster(brokers) as cluster:
        ports = [broker.port for broker in cluster.status().brokers]
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        steps = [_test(cluster.bootstrap, ports, admin, f"test-{number}") for number in range(tests)]
        return Suite(*map(sum, zip(*steps, strict=True)))


def measure_aiokafka(brokers: int, tests: int) -> Suite:
    """Run the same tests with aiokafka."""
    with EmbeddedCluster(brokers) as cluster:
        return asyncio.run(_aiokafka(cluster.bootstrap, brokers, tests))


async def _aiokafka(bootstrap: str, brokers: int, tests: int) -> Suite:
    steps = []
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    for number in range(tests):
        name = f"test-{number}"
        begun = time.perf_counter()
        await admin.create_topics([AioTopic(name, 1, min(_REPLICAS, brokers))])
        made = time.perf_counter()
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for record in range(_RECORDS):
                await producer.send_and_wait(name, str(record).encode())
        written = time.perf_counter()
        whole = {"bootstrap_servers": bootstrap, "group_id": name, "auto_offset_reset": "earliest"}
        async with AIOKafkaConsumer(name, **whole) as consumer:
            left = _RECORDS
            while left:
                left -= sum(map(len, (await consumer.getmany(timeout_ms=1000)).values()))
        steps.append((made - begun, written - made, time.perf_counter() - written))
    await admin.close()
    return Suite(*map(sum, zip(*steps, strict=True)))


def measure_franz_go(tests: int) -> list[tuple[str, Suite]]:
    """Run franz-go's tests on our brokers and on kfake; nothing where there is no Go, or its modules cannot be had."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    found: list[tuple[str, Suite]] = []
    with tempfile.TemporaryDirectory(prefix="kafkatool-benchmark-") as name:
        program = Path(name, "franz-go")
        if go is None or subprocess.run([go, "build", "-o", program, "."], cwd=_FRANZ_GO, check=False).returncode:
            return found
        for brokers in (1, 3):
            command = [str(program), str(brokers), str(tests)]
            with EmbeddedCluster(brokers) as cluster:
                found.append((f"franz-go on brokers: {brokers}", _printed([*command, cluster.bootstrap])))
            found.append((f"franz-go on kfake's brokers: {brokers}", _printed(command)))
    return found


def _printed(command: Sequence[str]) -> Suite:
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    _, *steps = map(float, done.stdout.split())
    return Suite(*steps)


def _test(bootstrap: str, ports: Sequence[int], admin: AdminClient, name: str) -> Sequence[float]:
    begun = time.perf_counter()
    new = NewTopic(name, num_partitions=1, replication_factor=min(_REPLICAS, len(ports)))
    admin.create_topics([new])[name].result()
    for port in ports:
        wait_for(lambda p=port: _leads(p, name), f"{name} on every broker", 0.002)  # type: ignore[misc]
    made = time.perf_counter()
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(_RECORDS):
        producer.produce(name, str(number).encode())
    producer.flush()
    written = time.perf_counter()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([name])
        left = _RECORDS
        while left:
            record = consumer.poll(1)
            left -= record is not None and record.error() is None
    finally:
        consumer.close()
    return made - begun, written - made, time.perf_counter() - written


def _leads(port: int, topic: str) -> bool:
    asked = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(topic=topic)])
    with Connection("127.0.0.1", port, client_id="benchmark", timeout_ms=10_000, security=None) as connection:
        (found,) = connection.send(metadata.API, _METADATA_VERSION, asked).topics
    return bool(found.partitions) and all(p.error_code == 0 and p.leader_id >= 0 for p in found.partitions)


def _names(process: psutil.Process, directory: Path) -> bool:
    try:
        return any(str(directory) in argument for argument in process.cmdline())
    except psutil.Error:
        return False


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(prog="scripts/benchmark embedded", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="how often each start is measured (default 10)")
    parser.add_argument("--tests", type=int, default=200, help="tests of a suite (default 200; 0: no suite)")
    options = parser.parse_args()
    zookeeper_archive_maker.make()  # as it is after the first start
    print(f"{machine()}; load average {os.getloadavg()[0]:.1f}\n")
    print("| kt cluster up | s, least | s, median | CPU s, median |\n|---|---:|---:|---:|")
    for brokers in (1, 3):
        starts = [measure_start(brokers) for _ in range(options.rounds)]
        elapsed_s = [start.elapsed_s for start in starts]
        cpu_s = statistics.median(start.cpu_s for start in starts)
        print(
            f"| --brokers {brokers} | {min(elapsed_s):.2f} | {statistics.median(elapsed_s):.2f} | {cpu_s:.2f} |",
            flush=True,
        )
    if options.tests:
        print(f"\n| {options.tests} tests | s | topics | writing | reading |\n|---|---:|---:|---:|---:|")
        suites = [
            (f"{client} on brokers: {brokers}", measure(brokers, options.tests))
            for client, measure in (("aiokafka", measure_aiokafka), ("librdkafka", measure_suite))
            for brokers in (1, 3)
        ]
        for what, suite in [*suites, *measure_franz_go(options.tests)]:
            steps = " | ".join(f"{seconds:.1f}" for seconds in suite)
            print(f"| {what} | {sum(suite):.1f} | {steps} |", flush=True)


if __name__ == "__main__":
    main()
