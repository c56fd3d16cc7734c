"""kt migrate check on a real migration of Kafka 3.9.1 from ZooKeeper to KRaft, phase by phase, and on the way back."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kafkatool.commands.main import kt
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import AdminZnode, BrokersZnode, ControllerZnode, MigrationZnode
from tests.compat import real_kafka
from tests.compat.migrating_kafka import VERSION, MigratingKafka
from tests.core.zookeeper import cluster_nodes as nodes
from tests.waiting import awaited, eventually

pytestmark = [pytest.mark.slow, pytest.mark.slowest, pytest.mark.timeout(900)]


def check(kafka: MigratingKafka) -> dict[str, dict[str, Any]]:
    words = [
        "migrate",
        "check",
        "--zookeeper",
        kafka.connect,
        "--bootstrap-server",
        kafka.bootstrap,
        "--output",
        "json",
    ]
    result = CliRunner().invoke(kt, words)
    assert result.exit_code in (0, 1), result.output
    found = json.loads(result.stdout)
    rows = {item["id"]: item for item in found["items"]}
    assert not found["errors"] and bool(result.exit_code) == any(i["severity"] == "blocker" for i in rows.values())
    return rows


def in_phase(kafka: MigratingKafka, phase: str) -> dict[str, dict[str, Any]]:
    """Wait for the phase with nothing in the way: replicas come in sync, and ZooKeeper is written behind."""

    def look() -> dict[str, dict[str, Any]] | None:
        rows = check(kafka)
        severities = {row["severity"] for name, row in rows.items() if name not in ("next", "back")}
        settled = rows["phase"]["evidence"].startswith(f"{phase}:") and severities <= {"ok", "note"}
        if not settled:
            last.append(
                {n: (r["severity"], r["evidence"]) for n, r in rows.items() if r["severity"] not in ("ok", "note")}
            )
            last[-1]["phase"] = rows["phase"]["evidence"]
        return rows if settled else None

    last: list[dict[str, Any]] = []
    try:
        return awaited(look, phase, 240)
    except AssertionError as e:
        raise AssertionError(f"{phase}: {last[-1]}") from e


@pytest.mark.spec("ADM-99", "ADM-100", "ADM-101", "ADM-103", "ADM-104", "ADM-102")
def test_each_phase_of_a_migration_is_told_and_nothing_stands_in_its_way(tmp_path: Path) -> None:
    real_kafka.require(VERSION)
    with MigratingKafka(tmp_path) as kafka, ZooKeeper(kafka.connect) as zk:
        flags = ["--topic", "t", "--replica-assignment", "1:2,2:1"]
        made = CliRunner().invoke(kt, ["topics", "create", "--zookeeper", kafka.connect, *flags])
        assert made.exit_code == 0, made.output
        rows = in_phase(kafka, "none")
        before = nodes.tree(zk)
        assert "start a quorum of KRaft controllers" in check(kafka)["next"]["remedy"]
        assert nodes.tree(zk) == before
        zk.create(f"{AdminZnode.PATH}/somebody's")
        assert check(kafka)["stray_admin"]["severity"] == "warning"
        zk.delete(f"{AdminZnode.PATH}/somebody's")

        kafka.start_controller()
        rows = in_phase(kafka, "waiting")
        assert "delete /migration" in rows["back"]["remedy"]
        for broker in (1, 2):
            kafka.restart(broker, "migrating")
        rows = in_phase(kafka, "hybrid")
        assert "one by one as KRaft brokers" in rows["next"]["remedy"]
        kafka.restart(1, "kraft")
        rows = in_phase(kafka, "hybrid")
        assert "1 brokers in /brokers/ids, 1 elsewhere" in rows["phase"]["evidence"]
        kafka.restart(2, "kraft")
        rows = in_phase(kafka, "dual_write_or_finalized")
        assert "finalize" in rows["next"]["remedy"]

        # and back again, as Kafka's own documentation has it
        for broker in (1, 2):
            kafka.restart(broker, "migrating")
        in_phase(kafka, "hybrid")
        kafka.stop_controller()
        for broker in (1, 2):  # a broker that is asked to stop waits for the controller, which has gone
            kafka.kill_broker(broker)
        eventually(lambda: zk.children(BrokersZnode.PATH) == [], "sessions of the killed ended", 120)
        zk.delete(ControllerZnode.PATH)
        for broker in (1, 2):
            kafka.start_as(broker, "zookeeper")

        def rolled_back() -> dict[str, dict[str, Any]] | None:
            rows = check(kafka)
            return rows if rows["phase"]["evidence"].startswith("rolled_back:") else None

        rows = awaited(rolled_back, "rolled back", 240)
        assert rows["residue"]["severity"] == "blocker"
        zk.delete(MigrationZnode.PATH)
        assert check(kafka)["phase"]["evidence"].startswith("none:")
