"""kt brokers, kt health and kt drain on clusters of real Kafka, with ZooKeeper and, as far as they go, without."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kafkatool.commands.main import kt
from tests.compat import real_kafka
from tests.compat.real_kafka import KraftKafka, RealKafka
from tests.steady import LASTING
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def run(command: str, *way: str) -> Result:
    return CliRunner().invoke(kt, [*command.split(), *way])


def rows(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)["items"]
    return found


@pytest.mark.spec("ADM-105", "ADM-106", "ADM-107")
@pytest.mark.parametrize("version", real_kafka.versions("2.8.2"))
def test_a_broker_of_real_kafka_is_emptied_and_the_cluster_is_well(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_kafka.require(version)
    monkeypatch.chdir(tmp_path)
    with RealKafka(version, tmp_path / "kafka", options=LASTING) as kafka:
        way = ("--zookeeper", kafka.connect)
        made = run("topics create --topic t --replica-assignment 1:2,2:3,3:1", *way)
        assert made.exit_code == 0, made.output
        eventually(lambda: run("health", *way).exit_code == 0, "well", 120)
        asked = ("--bootstrap-server", kafka.bootstrap)

        def same() -> bool:
            """ZooKeeper may know of the topic before the broker that is asked, and one that stands still tells nothing."""
            told, by_request = (run("brokers --output json", *by) for by in (way, asked))
            if told.exit_code or by_request.exit_code or rows(told) != rows(by_request):
                return False
            number = version.rpartition(".")[0]
            assert [row["replicas"] for row in rows(told)] == [2, 2, 2]
            return all(row["software"] == number and row["bytes"] for row in rows(told))

        eventually(same, "the same of all three by both ways", 120)
        by_request = run("health --output json", *asked)
        assert by_request.exit_code == 0, by_request.output
        unknown = {row["check"] for row in json.loads(by_request.stdout)["items"] if row["level"] == "unknown"}
        assert unknown == {"controller", "moves", "unclean elections", "deletions"}
        (proof,) = rows(run("drain 3 --throttle 5000000 --output json", *way))
        assert proof["drained"] and proof["on_disk"] == []
        eventually(lambda: run("health", *way).exit_code == 0, "well again", 120)

        def told_empty() -> bool:
            told = run("brokers --output json", *way)
            return not told.exit_code and [row["replicas"] for row in rows(told)] == [3, 3, 0]

        eventually(told_empty, "all brokers to answer, and the third to hold nothing", 120)


@pytest.mark.slowest
@pytest.mark.spec("ADM-106", "ADM-109")
@pytest.mark.parametrize("version", ["3.9.1", "4.1.0"])
def test_a_broker_without_zookeeper_is_emptied_brought_back_and_once_dead_emptied_again(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_kafka.require(version)
    monkeypatch.chdir(tmp_path)
    with KraftKafka(version, tmp_path / "kafka") as kafka:
        way = ("--bootstrap-server", kafka.bootstrap)
        made = run("topics create --topic t --replica-assignment 1:2,2:3,3:1", *way)
        assert made.exit_code == 0, made.output

        def assigned() -> dict[int, list[int]]:
            return {
                row["partition"]: row["replicas"] for row in rows(run("topics describe --topic t --output json", *way))
            }

        def all_live() -> bool:
            told = run("brokers --output json", *way)
            return not told.exit_code and [row["live"] for row in rows(told)] == [True, True, True]

        def unthrottled() -> bool:
            told = run("brokers --output json", *way)
            return not told.exit_code and not any(
                row["leader_throttle"] or row["follower_throttle"] for row in rows(told)
            )

        eventually(all_live, "all three to answer", 120)
        described = ("topics describe --topic t", *way)  # who has just started may hear of it later than its maker
        eventually(lambda: run(*described).exit_code == 0, "the broker that is asked to know of the topic", 120)
        (proof,) = rows(run("drain 3 --throttle 5000000 --output json", *way))
        left: dict[str, Any] = {"assigned": [], "in_isr": [], "leads": [], "on_disk": []}
        assert proof == {"broker": 3, "live": True, "drained": True, **left}
        assert {b for replicas in assigned().values() for b in replicas} == {1, 2}
        eventually(unthrottled, "no rate to be left", 60)
        back = run("drain 3 --cancel --rollback --throttle 5000000", *way)
        assert back.exit_code == 0, back.output
        assert assigned() == {0: [1, 2], 1: [2, 3], 2: [3, 1]}
        kafka.kill_broker(3)

        def told_dead() -> bool:
            """The controller takes a while to see it."""
            told = run("brokers --output json", *way)
            return [row["live"] for row in json.loads(told.stdout)["items"]] == [True, True, False]

        eventually(told_dead, "the broker to be known for dead", 120)
        (proof,) = rows(run("drain 3 --throttle 5000000 --output json", *way))
        assert proof == {"broker": 3, "live": False, "drained": True, **left, "on_disk": None}
        assert {b for replicas in assigned().values() for b in replicas} == {1, 2}


def levels(result: Result) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for row in json.loads(result.stdout)["items"]:
        found.setdefault(row["check"], set()).add(row["level"])
    return found


@pytest.mark.slowest
@pytest.mark.spec("ADM-107", "ADM-109")
@pytest.mark.parametrize("version", ["3.9.1", "4.1.0"])
def test_the_health_of_a_cluster_without_zookeeper_from_well_to_no_quorum(version: str, tmp_path: Path) -> None:
    real_kafka.require(version)
    with KraftKafka(version, tmp_path) as kafka:
        way = ("--bootstrap-server", kafka.bootstrap)
        made = run("topics create --topic t --partitions 3 --replication-factor 3", *way)
        assert made.exit_code == 0, made.output

        def well() -> bool:
            """Tell if all is well but for what no request tells; a broker that stands still leaves more open."""
            told = run("health --output json", *way)
            found = levels(told)
            open_ = {check for check, level in found.items() if level == {"unknown"}}
            assert open_ >= {"controller", "unclean elections"}, found
            rest = {check: level for check, level in found.items() if check not in ("controller", "unclean elections")}
            return told.exit_code == 0 and all(level == {"ok"} for level in rest.values())

        eventually(well, "well", 120)

        kafka.kill_broker(3)

        def one_gone() -> bool:
            told = run("health --output json", *way)
            found = levels(told)
            return told.exit_code == 1 and all("degraded" in found[c] for c in ("controller", "partitions", "brokers"))

        eventually(one_gone, "the broker and voter that died to be told", 120)
        kafka.kill_broker(2)

        def no_quorum() -> bool:
            told = run("health --output json", *way)
            found = levels(told)
            return told.exit_code == 2 and "critical" in found["controller"] and found["moves"] == {"unknown"}

        eventually(no_quorum, "no leader of the quorum", 240)


@pytest.mark.slowest
@pytest.mark.spec("ADM-105")
@pytest.mark.parametrize("version", ["3.9.1", "4.1.0"])
def test_brokers_without_zookeeper_are_told_too(version: str, tmp_path: Path) -> None:
    real_kafka.require(version)
    with KraftKafka(version, tmp_path, brokers=1) as kafka:
        (row,) = rows(run("brokers --output json", "--bootstrap-server", kafka.bootstrap))
        assert (row["broker"], row["live"], row["software"]) == (1, True, version.rpartition(".")[0])
        assert all(free > 0 for free in row["free_bytes"].values())
