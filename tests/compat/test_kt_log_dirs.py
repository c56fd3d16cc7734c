"""``kt reassign`` with a plan that names log directories, on real Kafka with ZooKeeper and without."""

from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

from kafkatool.commands.main import kt
from tests.compat.real_kafka import KraftKafka, RealKafka, require
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.usefixtures("unhurried")]

_BROKER = 1


@pytest.mark.spec("ADM-40", "ADM-34", "ADM-36")
@pytest.mark.parametrize(
    ("version", "kind"),
    [pytest.param("2.8.2", RealKafka, id="2.8.2"), pytest.param("4.1.0", KraftKafka, id="4.1.0-kraft")],
)
def test_a_replica_of_kafka_moves_to_another_directory(tmp_path: Path, version: str, kind: type[RealKafka]) -> None:
    require(version)
    dirs = [tmp_path / name for name in "ab"]
    replication = {"offsets.topic.replication.factor": "1", "log.dirs": ",".join(map(str, dirs))}
    with kind(version, tmp_path / "real", brokers=1, options=replication) as real:
        flags = ("--bootstrap-server", f"127.0.0.1:{real.ports[_BROKER]}")

        def run(*words: object) -> Result:
            return CliRunner().invoke(kt, [*map(str, words)])

        def lies_in() -> list[Path]:
            return [path for path in dirs if (path / "t-0").exists()]

        made = run("topics", "create", *flags, "--topic", "t", "--partitions", 1, "--replication-factor", 1)
        assert made.exit_code == 0, made.output
        eventually(lambda: len(lies_in()) == 1, "the replica to be made")
        (here,) = lies_in()
        there = next(path for path in dirs if path != here)
        plan = tmp_path / "plan.json"

        def planned(path: Path | str) -> tuple[object, ...]:
            entry = {"topic": "t", "partition": 0, "replicas": [_BROKER], "log_dirs": [str(path)]}
            plan.write_bytes(orjson.dumps({"version": 1, "partitions": [entry]}))
            return "reassign", *flags, "--reassignment-json-file", plan

        before = run(*planned(there), "--verify")
        assert before.exit_code == 1
        assert before.stdout.splitlines()[:3] == [
            "Status of partition reassignment:",
            "Reassignment of partition t-0 is completed.",
            f"Partition t-0 on broker 1 is not being moved from log dir {here} to {there}.",
        ]
        moved = run(*planned(there), "--execute", "--replica-alter-log-dirs-throttle", 1_000_000, "--wait")
        assert moved.exit_code == 0, moved.output
        lines = moved.stdout.splitlines()
        assert "The replica-alter-dir throttle limit was set to 1000000 B/s" in lines
        assert f"Successfully started moving log directory to {there} for replica t-0 with broker 1 " in lines
        assert "Reassignment of replica t-0-1 completed successfully." in lines
        assert "Clearing broker-level throttles on broker 1" in lines
        eventually(lambda: lies_in() == [there], "the former directory to go")
        for wrong in ("data2", "/nowhere/data"):
            refused = run(*planned(wrong), "--execute")
            assert refused.exit_code == 1
            assert refused.stdout.splitlines()[-1].startswith("Error: Failed to alter dir for t-0-1: "), refused.output
