"""kt reassign --wait on a throttled move: bytes, rate and ETA where brokers tell their sizes, which Kafka 0.10 does not."""

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.commands.main import kt
from kafkatool.commands.shared import run_progress
from kafkatool.commands.shared.progress_line import ProgressLine
from tests.compat import real_kafka
from tests.compat.real_kafka import RealKafka
from tests.steady import LASTING
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

MEBIBYTES = 8  # of each of two partitions, which go to one broker
BYTES = re.compile(r"([\d.]+) of ([\d.]+) MiB(?:, [\d.]+ [KM]?i?B/s)?, ETA (?:unknown|\d+:\d\d)$")


class Place(NamedTuple):
    """A cluster; ``throttle`` makes the move take some seconds there; ``told``: brokers know DescribeLogDirs."""

    zookeeper: str
    bootstrap: str
    throttle: int
    told: bool


@pytest.fixture(scope="module", params=real_kafka.versions("ours", "2.8.2", "1.1.1", "0.10.2.2"))
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    version: str = request.param
    if version == "ours":
        with EmbeddedCluster(brokers=3, options=LASTING) as cluster:
            yield Place(cluster.zookeeper, cluster.bootstrap, 1 << 20, True)  # after a burst of ten seconds' worth
        return
    real_kafka.require(version)
    with RealKafka(version, tmp_path_factory.mktemp("kafka"), options=LASTING) as kafka:
        yield Place(kafka.connect, kafka.bootstrap, 3 << 20, version != "0.10.2.2")


def fill(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20})
    for _ in range(MEBIBYTES):
        for number in range(32):
            producer.produce(topic, bytes(65_536 - 512), partition=number % 2)
        assert producer.flush(120) == 0


@pytest.mark.spec("RSN-33X", "RSN-23X")
def test_a_throttled_move_tells_bytes_where_brokers_know_them(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: str, *args: object) -> str:
        words = [*command.split(" "), "--zookeeper", place.zookeeper, *map(str, args)]
        result = CliRunner().invoke(kt, words)
        assert result.exit_code == 0, result.output
        return result.stderr

    monkeypatch.setattr(run_progress, "ProgressLine", partial(ProgressLine, interval_s=0))
    run("topics create --topic big --replica-assignment 1:2,2:1")
    fill(place.bootstrap, "big")
    topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    topics.write_text('{"topics":[{"topic":"big"}]}')
    generate = ("reassign --generate --broker-list 3 --replication-factor 1", "--topics-to-move-json-file", topics)
    if place.told:  # a busy broker may not tell within the time that sizes are worth
        eventually(lambda: "2 replicas to copy (16 MiB)" in run(*generate, "--out", plan), "sizes", 120)
    else:
        assert "2 replicas to copy\n" in run(*generate, "--out", plan)
    assert [entry["replicas"] for entry in json.loads(plan.read_text())["partitions"]] == [[3], [3]]
    told = run("reassign --execute --wait", "--reassignment-json-file", plan, "--throttle", place.throttle).splitlines()
    lines = [line for line in told if " partitions, " in line]
    assert lines, told
    found = [match for match in map(BYTES.search, lines) if match]
    print("\n".join(lines))
    assert place.told or not found  # with sizes, too, how many lines there are is the machine's affair
    assert all(float(match[1]) <= 17 and 15 <= float(match[2]) <= 17 for match in found), lines
