"""Logs that real Kafka writes now: every line accounted for, Kafka's merger matched, the end as ZooKeeper has it.

Each version plays the same outage: a topic made and deleted, a broker killed, the controller killed, both started
again, leadership given back. Nothing of it is captured: times, ids and the order of lines are new each time.
"""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from kafkatool.commands.main import kt
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.cluster_view import ClusterView, read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.commands.logs.tools import run, without_spark
from tests.compat import real_kafka
from tests.compat.real_kafka import KraftKafka, RealKafka
from tests.core.statelog.logs import VERSIONS
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DEADLINE_S = 120
LAYOUTS = {"orders": "1:2:3,2:3:1,3:1:2", "payments": "2:1,3:2,1:3", "gone": "1:2,2:3"}
OPTIONS = {
    "zookeeper.session.timeout.ms": "4000",
    "delete.topic.enable": "true",  # 0.10 does not by default
}
DEPRECATED = "WARNING: This tool is deprecated"
WITHOUT_ZOOKEEPER = {"broker.session.timeout.ms": "9000"}
LOGGING = """\
log4j.rootLogger=OFF
log4j.logger.state.change.logger=TRACE, S
log4j.additivity.state.change.logger=false
log4j.appender.S=org.apache.log4j.FileAppender
log4j.appender.S.File={file}
log4j.appender.S.layout=org.apache.log4j.PatternLayout
log4j.appender.S.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


class LoggingKafka(RealKafka):
    """Real Kafka whose brokers write state-change.log, all of it, as their own configuration has them do."""

    @property
    def logs(self) -> Path:
        """Return their paths."""
        return self._directory / "logs"

    def _spawn(self, name: str, command: Sequence[str]) -> None:
        if name.startswith("broker-"):
            (own := self.logs / name).mkdir(parents=True, exist_ok=True)
            (own / "log4j.properties").write_text(LOGGING.format(file=own / "state-change.log"))
            ours = f"-Dlog4j.configuration=file:{own / 'log4j.properties'}"
            command = [ours if part.startswith("-Dlog4j.configuration=") else part for part in command]
        super()._spawn(name, command)


class LoggingKraft(LoggingKafka, KraftKafka):
    """The same without ZooKeeper."""


@pytest.mark.spec("SCL-5", "SCL-12X", "SCL-13X", "SCL-17X", "SCL-19X", "SCL-23X", "SCL-24X")
@pytest.mark.parametrize("version", real_kafka.versions(*VERSIONS, "3.6.1", "3.9.1"))
def test_logs_of_an_outage_of_now(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_kafka.require(version)
    with LoggingKafka(version, tmp_path, options=OPTIONS) as kafka:
        _play(kafka)
        without_spark(monkeypatch)
        ended = _wait(kafka, lambda view: _timeline_ends(kafka.logs) == _states(view))
        assert sorted(ended.topics) == ["orders", "payments"]
        kafka.stop()  # from here on the logs are read several times
        files = sorted(kafka.logs.glob("*/state-change.log"))
        assert len(files) == len(kafka.ports)
        for selection in ((), ("--topic", "orders"), ("--topic", "orders", "--partitions", "0,2", "--with-context")):
            _every_line_is_accounted_for(files, *selection)
            kafkas = kafka.tool("kafka.tools.StateChangeLogMerger", "--logs", _names(files), *selection[:4])
            ours = run("merge", "--kafka-compatible", "--logs", _names(files), *selection[:4])
            assert ours.exit_code == kafkas.returncode == 0, kafkas.stderr
            merged = [line for line in kafkas.stdout.splitlines() if not line.startswith(DEPRECATED)]
            assert sorted(ours.stdout.splitlines()) == sorted(merged)
            assert len(merged) < sum(len(file.read_bytes().splitlines()) for file in files) / 2


@pytest.mark.spec("SCL-24X", "SCL-26X", "SCL-27X", "SCL-12X", "SCL-17X")
@pytest.mark.parametrize("version", real_kafka.versions("3.9.1", "4.1.0"))
def test_logs_of_an_outage_of_now_without_zookeeper(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_kafka.require(version)
    with LoggingKraft(version, tmp_path, options=WITHOUT_ZOOKEEPER) as kafka:
        for topic, layout in LAYOUTS.items():
            made = _topics(kafka, "--create", "--topic", topic, "--replica-assignment", layout)
            assert made.returncode == 0, made.stderr
        _topics(kafka, "--delete", "--topic", "gone")
        kafka.kill_broker(3)
        eventually(lambda: bool(_described(kafka, without=3)), "nobody to need broker 3", DEADLINE_S)
        kafka.start_broker(3)
        without_spark(monkeypatch)
        eventually(lambda: all(len(isr) > 1 for _, isr in _described(kafka).values()), "all in sync", DEADLINE_S)
        eventually(lambda: _told_at_the_end(kafka.logs) == _described(kafka), "the logs to tell that", DEADLINE_S)
        kafka.stop()
        _every_line_is_accounted_for(sorted(kafka.logs.glob("*/state-change.log")))


def _topics(kafka: RealKafka, *arguments: str) -> subprocess.CompletedProcess[str]:
    return kafka.tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", kafka.bootstrap, *arguments)


def _described(kafka: RealKafka, *, without: int | None = None) -> dict[str, tuple[int, frozenset[int]]]:
    """Return leader and ISR of each partition as the controller has them; nothing while ``without`` is among them."""
    said = _topics(kafka, "--describe").stdout
    rows = re.findall(r"Topic: (\S+)\s+Partition: (\d+)\s+Leader: (\S+)\s+Replicas: \S+\s+Isr: ([\d,]*)", said)
    states = {
        f"{topic}-{p}": (-1 if leader == "none" else int(leader), frozenset(map(int, filter(None, isr.split(",")))))
        for topic, p, leader, isr in rows
    }
    return {} if any(without == leader or without in isr for leader, isr in states.values()) else states


def _told_at_the_end(logs: Path) -> dict[str, tuple[int, frozenset[int]]]:
    told = json.loads(run("timeline", "--logs", logs, "--output", "json").stdout)["items"]
    return {
        f"{item['topic']}-{item['partition']}": (item["leader"], frozenset(item["isr"] or ()))
        for item in told
        if item["fact"] == "final" and item["topic"] != "gone"  # without ZooKeeper no log names what was deleted
    }


def _play(kafka: LoggingKafka) -> None:
    for topic, layout in LAYOUTS.items():
        _kt(kafka, "topics", "create", "--topic", topic, "--replica-assignment", layout)
    _wait(kafka, _all_in_sync)
    _kt(kafka, "topics", "delete", "--topic", "gone")
    deleted = _wait(
        kafka, lambda v: "gone" not in v.topics and not v.marked_for_deletion and v.controller_id is not None
    )
    controller = deleted.controller_id
    assert controller is not None
    other = next(broker for broker in kafka.ports if broker != controller)
    kafka.kill_broker(other)
    _wait(kafka, lambda view: other not in view.brokers and other not in _leaders(view))
    kafka.kill_broker(controller)
    _wait(
        kafka, lambda view: view.controller_id not in (None, controller) and controller not in _leaders(view, "orders")
    )
    for broker in (other, controller):
        kafka.start_broker(broker)
    _wait(kafka, _all_in_sync)
    # A session of four seconds may end while others have the machine; who leads then is elected once more.
    eventually(lambda: _ends_well(kafka, "elect"), "all to be led by whom they prefer", DEADLINE_S)
    _wait(kafka, lambda view: all(_leads(view, p) for p in view.states))


def _every_line_is_accounted_for(files: Sequence[Path], *selection: str) -> None:
    merged = run("merge", "--strict", "--logs", _names(files), *selection)
    assert merged.exit_code == 0, merged.stderr  # --strict: no dated line of unknown form
    assert "kt:" not in merged.stderr, merged.stderr  # nothing odd about the files, and one machine has one clock
    counts = {name.strip(): int(number) for name, number in (s.rsplit(None, 1) for s in merged.stderr.splitlines())}
    given = [line for file in files for line in file.read_bytes().splitlines()]
    written = merged.stdout_bytes.splitlines()
    assert counts["lines"] == len(given) == counts["records"] + counts["continuation lines"]
    filtered = ("filtered by topic", "dropped, naming no partition")
    assert counts["records"] == counts["written"] + sum(counts[name] for name in filtered)
    assert counts["lines written"] == len(written)
    if not selection:
        assert sorted(written) == sorted(given)


def _timeline_ends(logs: Path) -> dict[TopicPartition, tuple[int | None, int, list[int]]]:
    """Return leader, leader epoch and ISR, by partition, that the timeline ends with."""
    told = json.loads(run("timeline", "--logs", logs, "--output", "json").stdout)["items"]
    return {
        TopicPartition(fact["topic"], fact["partition"]): (fact["leader"], fact["leader_epoch"], fact["isr"])
        for fact in told
        if fact["fact"] == "final" and fact["reason"] != "deleted"
    }


def _states(view: ClusterView) -> dict[TopicPartition, tuple[int | None, int, list[int]]]:
    states = {partition: state.leader_and_isr for partition, state in view.states.items()}
    return {partition: (s.leader, s.leader_epoch, list(s.isr)) for partition, s in states.items()}


def _leaders(view: ClusterView, *topics: str) -> set[int | None]:
    """Return those of some topics, or all. With two replicas, both dead, the last leader's name stays in ZooKeeper."""
    states = view.states.items()
    return {state.leader_and_isr.leader for partition, state in states if not topics or partition.topic in topics}


def _leads(view: ClusterView, partition: TopicPartition) -> bool:
    preferred = view.topics[partition.topic].assignment[partition.partition][0]
    return view.states[partition].leader_and_isr.leader == preferred


def _all_in_sync(view: ClusterView) -> bool:
    return view.partitions() == sorted(view.states) and all(
        set(state.leader_and_isr.isr) == set(view.topics[p.topic].assignment[p.partition])
        for p, state in view.states.items()
    )


def _kt(kafka: RealKafka, *command: str) -> None:
    result = CliRunner().invoke(kt, [*command, "--zookeeper", kafka.connect])
    assert result.exit_code == 0, result.output


def _ends_well(kafka: RealKafka, *command: str) -> bool:
    return CliRunner().invoke(kt, [*command, "--zookeeper", kafka.connect]).exit_code == 0


def _names(files: Sequence[Path]) -> str:
    return ",".join(map(os.fspath, files))


def _wait(kafka: RealKafka, reached: Callable[[ClusterView], bool]) -> ClusterView:
    deadline = time.monotonic() + DEADLINE_S
    with ZooKeeper(kafka.connect) as zk:
        while not reached(view := read_cluster(zk)):
            assert time.monotonic() < deadline, view
            time.sleep(0.2)
        return view
