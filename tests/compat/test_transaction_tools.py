"""``kt transactions`` and Kafka's kafka-transactions, on brokers of ours and on real Kafka (TXN-92 to 94, KIP-664)."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place
from jsonschema import Draft202012Validator

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.commands.main import kt
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.compat import real_kafka
from tests.compat.real_kafka import RealKafka
from tests.paths import ROOT
from tests.raw_transactions import Brokers, RawProducer
from tests.steady import LASTING
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TOOLS = "3.9.1"
PLACE = TopicPartition("t", 0)
LIMIT_S = 120.0
OPEN_MS = 600_000  # as long as the test may last
ONE_BROKER = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.replication.factor": "1",
}
WITHOUT_VERIFICATION = {"transaction.partition.verification.enable": "false"}  # so that one can be made to hang


class Tools:
    """kafka-transactions of Kafka 3.9.1: a Java process each call."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        directory.mkdir()
        self._kafka = RealKafka(TOOLS, directory, brokers=0)
        self._bootstrap = bootstrap

    def __call__(self, *args: str) -> str:
        main = "org.apache.kafka.tools.TransactionsCommand"
        done = self._kafka.tool(main, "--bootstrap-server", self._bootstrap, *args, timeout_s=180)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Brokers]:
    with EmbeddedCluster(1, directory=tmp_path / "cluster", options=LASTING | WITHOUT_VERIFICATION) as running:
        yield running


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Brokers]:
    real_kafka.require(TOOLS)
    options = ONE_BROKER | WITHOUT_VERIFICATION
    with RealKafka(TOOLS, tmp_path / "kafka", brokers=1, options=options) as running:
        yield running


@pytest.fixture
def older(tmp_path: Path) -> Iterator[Brokers]:
    real_kafka.require("2.8.2")
    with RealKafka("2.8.2", tmp_path / "kafka", brokers=1, options=ONE_BROKER) as running:
        yield running


def run(cluster: Brokers, *args: str) -> Result:
    return CliRunner().invoke(kt, ["transactions", *args, "--bootstrap-server", cluster.bootstrap])


def told(cluster: Brokers, *args: str) -> list[dict[str, Any]]:
    result = run(cluster, *args, "--output", "json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    schema = json.loads((ROOT / "docs" / "schemas" / f"kt-transactions-{args[0]}.schema.json").read_text())
    Draft202012Validator(schema).validate(document)
    items: list[dict[str, Any]] = document["items"]
    if args[0] != "abort":  # which acts
        (columns,) = (shape["x-tsv-columns"] for name, shape in schema["$defs"].items() if name != "error")
        compare_with_tsv(run(cluster, *args, "--output", "tsv"), items, columns)
    return items


def compare_with_tsv(result: Result, items: list[dict[str, Any]], columns: list[str]) -> None:
    """Hold the table against the same answer's items: a row for each, in the order of its columns (COM-4X)."""
    assert result.exit_code == 0, result.output
    heading, *rows = (line.split("\t") for line in result.stdout.splitlines())
    assert heading == [*(column.upper() for column in columns), "ERROR", "MESSAGE"]
    assert all(len(row) == len(heading) and row[-2:] == ["", ""] for row in rows)
    steady_columns = [n for n, column in enumerate(columns) if not column.startswith("duration")]

    def cell(value: Any) -> str:
        return "" if value is None else ",".join(value) if isinstance(value, list) else str(value)

    wanted = [[cell(item[columns[n]]) for n in steady_columns] for item in items]
    assert [[row[n] for n in steady_columns] for row in rows] == wanted


def steady(text: str) -> list[list[str]]:
    """Return the rows of a table, in order, without what another moment changes: how long it has been so."""
    lines = re.sub(r"\t\d+ *\t(?=t-0)", "\t", text).splitlines()
    head, *rows = [[word for word in line.split("\t") if word.strip()] for line in lines]
    return [head, *sorted(rows)]


def make_topic(cluster: Brokers, topic: str = "t") -> None:
    command = f"topics create --topic {topic} --partitions 1 --replication-factor 1"
    made = CliRunner().invoke(kt, f"{command} --bootstrap-server {cluster.bootstrap}".split())
    assert made.exit_code == 0, made.output


def hang(cluster: Brokers) -> RawProducer:
    """Write into a transaction that nobody has been told of; the producer is returned, to be closed."""
    late = RawProducer(cluster.bootstrap, "hangs")
    assert late.init() == ErrorCode.NONE
    assert late.send(PLACE, "never ended") == ErrorCode.NONE
    return late


def last_stable_offset(cluster: Brokers) -> int:
    asking = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "asks", "log_level": 0})
    try:
        return int(asking.get_watermark_offsets(Place("t", 0), 30)[1])
    finally:
        asking.close()


def story(cluster: Brokers) -> None:
    """Look at one under way and one that hangs; end the one that hangs."""
    make_topic(cluster)
    with RawProducer(cluster.bootstrap, "under way", timeout_ms=OPEN_MS) as open_, hang(cluster) as late:
        assert (open_.init(), open_.add(PLACE), open_.send(PLACE, "a", "b")) == (0, 0, 0)
        listed = {i["transactional_id"]: i for i in told(cluster, "list")}
        assert {id_: i["state"] for id_, i in listed.items()} == {"under way": "Ongoing", "hangs": "Empty"}
        assert listed["hangs"]["producer_id"] == late.producer_id
        (described,) = told(cluster, "describe", "--transactional-id", "under way")
        assert (described["partitions"], described["producer_epoch"]) == (["t-0"], open_.epoch)
        assert described["timeout_ms"] == OPEN_MS and described["duration_ms"] >= 0
        missing = run(cluster, "describe", "--transactional-id", "nobody's")
        assert missing.exit_code == 1
        assert missing.stdout.startswith("Failed to describe transaction state of transactional-id `nobody's`")

        producers = told(cluster, "describe-producers", "--topic", "t", "--partition", "0")
        starts = {p["producer_id"]: p["start_offset"] for p in producers}
        assert starts == {late.producer_id: 0, open_.producer_id: 1}
        scope = ("find-hanging", "--topic", "t", "--max-transaction-timeout", "0")
        assert told(cluster, *scope[:-2]) == []  # it is young: its coordinator may be about to know
        (found,) = told(cluster, *scope)
        assert (found["producer_id"], found["start_offset"]) == (late.producer_id, 0)
        assert told(cluster, "find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0") == [found]

        assert last_stable_offset(cluster) == 0
        wrong = run(cluster, "abort", "--topic", "t", "--partition", "0", "--start-offset", "77")
        assert wrong.exit_code == 1 and "Could not find any open transactions starting at offset 77" in wrong.stdout
        by_offset = ("abort", "--topic", "t", "--partition", "0", "--start-offset", "0")
        (planned,) = told(cluster, *by_offset, "--dry-run")
        assert planned["api"] == "WriteTxnMarkers" and last_stable_offset(cluster) == 0
        (aborted,) = told(cluster, *by_offset)
        assert aborted["producer_id"] == late.producer_id
        assert told(cluster, *scope) == []
        eventually(lambda: last_stable_offset(cluster) == 1, "the one under way to be first", LIMIT_S)
        assert open_.end(committed=True) == ErrorCode.NONE
        eventually(lambda: last_stable_offset(cluster) == 5, "all to be ended", LIMIT_S)
        assert open_.lost == late.lost == 0, "nobody was hurt"


@pytest.mark.spec("TXN-92", "TXN-93", "TXN-94", "COM-4X")
def test_kt_finds_and_aborts_what_hangs_on_ours(ours: Brokers) -> None:
    story(ours)


@pytest.mark.slowest
@pytest.mark.spec("TXN-92", "TXN-93", "TXN-94")
def test_kt_finds_and_aborts_what_hangs_on_real_kafka_and_prints_what_its_tool_prints(
    real: Brokers, tmp_path: Path
) -> None:
    story(real)
    compare_with_tool(real, tmp_path)


@pytest.mark.slowest
@pytest.mark.spec("TXN-92", "TXN-93", "TXN-94")
def test_kafkas_tool_finds_and_aborts_what_hangs_on_ours(ours: Brokers, tmp_path: Path) -> None:
    real_kafka.require(TOOLS)
    make_topic(ours)
    compare_with_tool(ours, tmp_path)
    tool = Tools(tmp_path / "tool", ours.bootstrap)
    tool("abort", "--topic", "t", "--partition", "0", "--start-offset", "0")
    eventually(lambda: last_stable_offset(ours) == 2, "the end of the one that hangs", LIMIT_S)


def compare_with_tool(cluster: Brokers, tmp_path: Path) -> None:
    """Have both print the same of one that hangs."""
    tool = Tools(tmp_path / "beside", cluster.bootstrap)
    with hang(cluster):
        for args in (
            ("list",),
            ("describe", "--transactional-id", "hangs"),
            ("describe-producers", "--topic", "t", "--partition", "0"),
            ("find-hanging", "--topic", "t", "--max-transaction-timeout", "0"),
        ):
            assert steady(run(cluster, *args).stdout) == steady(tool(*args)), args


@pytest.mark.slowest
@pytest.mark.spec("TXN-92")
def test_on_kafka_before_3_0_one_is_ended_by_naming_its_producer(older: Brokers) -> None:
    make_topic(older)
    with hang(older) as late:
        refused = run(older, "list")
        assert refused.exit_code == 1 and "ListTransactions" in refused.stderr
        producers = told(older, "describe-producers", "--topic", "t", "--partition", "0")
        assert [(p["producer_id"], p["start_offset"]) for p in producers] == [(late.producer_id, 0)]
        named = (
            "--producer-id",
            str(late.producer_id),
            "--producer-epoch",
            str(late.epoch),
            "--coordinator-epoch",
            "-1",
        )
        told(older, "abort", "--topic", "t", "--partition", "0", *named)
        eventually(lambda: last_stable_offset(older) == 2, "the end of the one that hangs", LIMIT_S)
