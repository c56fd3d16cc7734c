"""What commands that ask brokers load before they ask (ADM-60)."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.ports import free_port

COMMANDS = (
    "topics list",
    "topics describe",
    "topics create --topic t --partitions 1 --replication-factor 1",
    "topics alter --topic t --partitions 2",
    "topics delete --topic t",
    "reassign --list",
    "elect --election-type preferred --all-topic-partitions",
    "replica-verify --once",
    "acls list",
    "users list",
    "transactions list",
    "brokers",
    "health",
    "drain 1 --no-throttle",
)
RUN = """
import sys
from kafkatool.commands.main import main
sys.argv = ["kt", *sys.argv[1:]]
try:
    main()
finally:
    print("loaded:", *sorted({m.split(".")[0] for m in sys.modules} & {"kazoo", "pyspark", "py4j", "rich", "kafkatool"}))
"""
LOADED = RUN.partition("    print(")[0] + "    print(*(m for m in sys.modules if m.startswith('kafkatool.')))"
ZNODES, MESSAGES = "kafkatool.core.zookeeper", "kafkatool.core.protocol.messages"


def printed_last(program: str, command: str, directory: Path) -> list[str]:
    """Run the command there against a broker that is not; return the words that the program prints at its end."""
    nobody = f"127.0.0.1:{free_port()}"
    line = [sys.executable, "-c", program, *command.split(), "--bootstrap-server", nobody]
    found = subprocess.run(line, cwd=directory, capture_output=True, text=True, timeout=60, check=False)
    assert nobody in found.stdout + found.stderr, "it came as far as asking"
    return found.stdout.splitlines()[-1].split()


@pytest.mark.spec("ADM-60")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_asks_brokers_loads_neither_kazoo_nor_spark(command: str, tmp_path: Path) -> None:
    assert printed_last(RUN, command, tmp_path) == ["loaded:", "kafkatool"]


@pytest.mark.spec("ADM-60")
@pytest.mark.parametrize(
    "command",
    [
        "reassign --list",
        "reassign --verify --reassignment-json-file plan.json",
        "reassign --execute --reassignment-json-file plan.json",
        "elect --election-type preferred --all-topic-partitions",
        "replica-verify --once",
    ],
)
def test_a_command_loads_neither_znodes_nor_the_requests_of_others(command: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1]}]}')
    loaded = set(printed_last(LOADED, command, tmp_path))
    assert f"{MESSAGES}.metadata" in loaded, "what each asks first"
    others = {f"{MESSAGES}.{name}" for name in ("create_topics", "create_partitions", "delete_topics", "create_acls")}
    znodes = {m for m in loaded if m.startswith(f"{ZNODES}.")} - {f"{ZNODES}.connect_string"}
    assert not znodes | loaded & others


@pytest.mark.spec("ADM-60")
def test_a_plan_for_what_brokers_tell_loads_nothing_that_reads_znodes_nor_other_strategies(tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_text('{"version":1,"topics":[{"topic":"t"}]}')
    generate = "reassign --generate --topics-to-move-json-file topics.json --broker-list 1"
    loaded = set(printed_last(LOADED, generate, tmp_path))
    assert "kafkatool.core.planner.kafkas" in loaded
    others = {f"{ZNODES}.cluster_view", f"{ZNODES}.session", "kafkatool.core.planner.minimal"}
    assert not loaded & others
