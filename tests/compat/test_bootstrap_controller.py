"""``kt reassign --bootstrap-controller`` on real clusters without ZooKeeper, beside Kafka's own tool (ADM-4)."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from kafkatool.commands.main import kt
from tests.compat import real_kafka
from tests.compat.admin_actors import main_class
from tests.compat.real_kafka import KraftKafka
from tests.steady import LASTING_KRAFT, ONE_BATCH_A_FETCH
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.slowest, pytest.mark.timeout(600)]

WAIT_S = 120


@pytest.mark.spec("ADM-4", "ADM-19", "ADM-37", "ADM-38", "ADM-41")
@pytest.mark.parametrize("version", ["4.1.0", "3.9.1"])
def test_a_move_to_a_broker_that_is_down_is_listed_and_cancelled_with_its_throttle(
    version: str, tmp_path: Path
) -> None:
    real_kafka.require(version)
    with KraftKafka(version, tmp_path / "kafka", options={**LASTING_KRAFT, **ONE_BATCH_A_FETCH}) as kafka:

        def by_brokers(*args: object) -> Result:
            return CliRunner().invoke(kt, [*map(str, args), "--bootstrap-server", kafka.bootstrap])

        def by_controllers(mode: str, *args: object) -> Result:
            flags = ["reassign", f"--{mode}", "--bootstrap-controller", kafka.controllers]
            return CliRunner().invoke(kt, [*flags, *map(str, args)])

        def own_tool(*args: str) -> str:
            flags = ("--bootstrap-controller", kafka.controllers, *args)
            return kafka.tool(main_class("reassign", version), *flags).stdout

        made = by_brokers("topics", "create", "--topic", "m", "--replica-assignment", "1:2")
        assert made.exit_code == 0, made.output
        assert by_controllers("list").stdout == "No partition reassignments found.\n"
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": "all", "batch.num.messages": 1})
        for _ in range(40):
            producer.produce("m", bytes(50_000))
        assert producer.flush(60) == 0
        plan = tmp_path / "plan.json"
        plan.write_text('{"version":1,"partitions":[{"topic":"m","partition":0,"replicas":[3,1]}]}')
        flags = ["--reassignment-json-file", plan]
        started = by_brokers("reassign", "--execute", *flags, "--throttle", 1)
        assert started.exit_code == 0, started.output
        kafka.stop_broker(3)  # killed, it would not be let in again before its session has ended

        listed = "Current partition reassignments:\nm-0: replicas: 3,1,2. adding: 3. removing: 2.\n"
        # the one that was stopped may have been active: the other two elect one of them
        eventually(lambda: by_controllers("list").stdout == listed, "the move is listed", WAIT_S)
        if version == "4.1.0":
            assert own_tool("--list") == listed
        shown = by_controllers("cancel", *flags, "--dry-run")
        assert shown.exit_code == 0, shown.output
        assert [line.split()[0] for line in shown.stdout.splitlines()] == ["controller", "controller"]
        assert by_controllers("list").stdout == listed
        cancelled = by_controllers("cancel", *flags)
        assert (cancelled.exit_code, cancelled.stdout) == (
            0,
            "Successfully cancelled partition reassignment for: m-0\nNone of the specified partition moves are active.\n"
            "Clearing broker-level throttles on brokers 1,2,3\nClearing topic-level throttles on topic m\n",
        ), cancelled.output
        again = by_controllers("cancel", *flags)
        assert again.exit_code == 0, again.output
        assert again.stdout.startswith("None of the specified partition reassignments are active.\n")

        kafka.start_broker(3)

        def is_unthrottled() -> bool:  # the broker that was down, too
            asked = (main_class("configs", version), "--bootstrap-server", kafka.bootstrap)
            told = kafka.tool(*asked, "--describe", "--entity-type", "brokers", "--entity-name", "3").stdout
            described = by_brokers("topics", "describe", "--topic", "m").stdout
            return "throttled" not in told + described and "Replicas: 1,2" in described and "broker 3" in told

        eventually(is_unthrottled, "the throttle is off, also where it was set on who was down", WAIT_S)
