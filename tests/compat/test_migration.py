"""kt migrate check on a real migration of Kafka 3.9.1 from ZooKeeper to KRaft, phase by phase, and on the way back."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kafkatool.commands.main import kt
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import AclsZnode, AdminZnode, BrokersZnode, ControllerZnode, MigrationZnode
from tests.compat import real_kafka
from tests.compat.migrating_kafka import VERSION, MigratingKafka
from tests.compat.migration_checks import check
from tests.core.zookeeper import cluster_nodes as nodes
from tests.waiting import awaited, eventually

pytestmark = [pytest.mark.slow, pytest.mark.slowest, pytest.mark.timeout(900)]


def in_phase(
    kafka: MigratingKafka, phase: str, *, asked: bool = True, unknown: Collection[str] = ()
) -> dict[str, dict[str, Any]]:
    """Wait for the phase with nothing in the way: replicas come in sync, and ZooKeeper is written behind.

    ``asked``: the controller, too. ``unknown``: the rows that are, and are to be, unknown.
    """
    flags = ("--bootstrap-controller", kafka.controller) if asked else ()

    def look() -> dict[str, dict[str, Any]] | None:
        rows = check(kafka, *flags)
        wrong = {(name, r["severity"]) for name, r in rows.items() if r["severity"] not in ("ok", "note")}
        settled = rows["phase"]["evidence"].startswith(f"{phase}:") and wrong == {(n, "unknown") for n in unknown}
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


def seen_in(kafka: MigratingKafka, phase: str, *flags: str) -> dict[str, dict[str, Any]]:
    """Wait for the phase, whatever else is found."""

    def look() -> dict[str, dict[str, Any]] | None:
        rows = check(kafka, *flags)
        return rows if rows["phase"]["evidence"].startswith(f"{phase}:") else None

    return awaited(look, phase, 240)


@pytest.mark.spec("ADM-99", "ADM-100", "ADM-101", "ADM-103", "ADM-104", "ADM-102")
def test_each_phase_of_a_migration_is_told_and_nothing_stands_in_its_way(tmp_path: Path) -> None:
    real_kafka.require(VERSION)
    with MigratingKafka(tmp_path) as kafka, ZooKeeper(kafka.connect) as zk:
        flags = ["--topic", "t", "--replica-assignment", "1:2,2:1"]
        made = CliRunner().invoke(kt, ["topics", "create", "--zookeeper", kafka.connect, *flags])
        assert made.exit_code == 0, made.output
        rows = in_phase(kafka, "none", asked=False)
        assert (rows["controllers"]["severity"], rows["controllers"]["evidence"]) == ("note", "not asked")
        asked = check(kafka, "--bootstrap-controller", kafka.controller)
        assert asked["controllers"]["severity"] == "unknown"
        assert asked["controllers"]["evidence"] == f"no controller answers: {kafka.controller}: refused"
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
        rows = in_phase(kafka, "dual_write")
        assert rows["next"]["remedy"].startswith("finalize: restart the controllers without")
        assert rows["back"]["remedy"].startswith("restart the brokers as ZooKeeper brokers")
        rows = in_phase(kafka, "dual_write_or_finalized", asked=False)
        assert "After finalizing there is no way back" in rows["back"]["remedy"]

        # and back again, as Kafka's own documentation has it
        for broker in (1, 2):
            kafka.restart(broker, "migrating")
        in_phase(kafka, "hybrid")
        kafka.stop_controller()
        before = nodes.tree(zk)
        rows = in_phase(kafka, "rolling_back", unknown={"controllers"})
        assert nodes.tree(zk) == before
        assert rows["next"]["remedy"].startswith(
            "see that every controller process is stopped; then delete /controller and /migration"
        )
        assert rows["back"]["remedy"] == "start the controllers again, and the migration goes on"
        for broker in (1, 2):  # a broker that is asked to stop waits for the controller, which has gone
            kafka.kill_broker(broker)
        eventually(lambda: zk.children(BrokersZnode.PATH) == [], "sessions of the killed ended", 120)
        zk.delete(ControllerZnode.PATH)
        for broker in (1, 2):
            kafka.start_as(broker, "zookeeper")

        rows = seen_in(kafka, "rolled_back")
        assert rows["residue"]["severity"] == "blocker"
        zk.delete(MigrationZnode.PATH)
        assert check(kafka)["phase"]["evidence"].startswith("none:")


@pytest.mark.spec("ADM-4", "ADM-100", "ADM-101", "ADM-103", "ADM-104")
def test_a_migration_that_is_finalized_is_told_from_one_that_is_not(tmp_path: Path) -> None:
    real_kafka.require(VERSION)
    with MigratingKafka(tmp_path) as kafka, ZooKeeper(kafka.connect) as zk:
        made = CliRunner().invoke(
            kt, ["topics", "create", "--zookeeper", kafka.connect, "--topic", "t", "--replica-assignment", "1:2,2:1"]
        )
        assert made.exit_code == 0, made.output
        kafka.start_controller(migrating=False)
        flags = ("--bootstrap-controller", kafka.controller)
        rows = awaited(
            lambda: found if "set to migrate" in (found := check(kafka, *flags))["controllers"]["evidence"] else None,
            "a controller that has registered",
            120,
        )
        assert rows["phase"]["evidence"].startswith("none:") and rows["controllers"]["severity"] == "blocker"
        assert rows["controllers"]["evidence"] == "controllers 3000 are not set to migrate"
        kafka.stop_controller(for_good=True)
        kafka.start_controller()
        for broker in (1, 2):
            kafka.restart(broker, "migrating")
        in_phase(kafka, "hybrid")
        for broker in (1, 2):
            kafka.restart(broker, "kraft")
        in_phase(kafka, "dual_write")
        kafka.stop_controller()
        kafka.start_controller(migrating=False)
        before = nodes.tree(zk)
        rows = in_phase(kafka, "finalized")
        assert nodes.tree(zk) == before
        assert "0 of 1 controllers set to migrate" in rows["phase"]["evidence"]
        assert rows["next"]["remedy"] == "switch ZooKeeper off"
        assert rows["back"]["remedy"].startswith("none: ")
        assert rows["diverged"]["evidence"] == "not looked at: ZooKeeper counts no more"


@pytest.mark.spec("ADM-100", "ADM-103", "ADM-104")
def test_a_load_that_does_not_come_to_its_end_is_told(tmp_path: Path) -> None:
    real_kafka.require(VERSION)
    with MigratingKafka(tmp_path) as kafka, ZooKeeper(kafka.connect) as zk:
        kafka.start_controller()
        in_phase(kafka, "waiting")
        # an entry that no Kafka can read: the controller begins to load, and ends over it
        zk.create(AclsZnode.PATH)
        zk.create(f"{AclsZnode.PATH}/Topic")
        zk.create(f"{AclsZnode.PATH}/Topic/t", b'{"version":9,"acls":[]}')
        for broker in (1, 2):
            kafka.restart(broker, "migrating")
        rows = seen_in(kafka, "loading", "--bootstrap-controller", kafka.controller)
        assert "delete /controller and /migration" in rows["back"]["remedy"]
