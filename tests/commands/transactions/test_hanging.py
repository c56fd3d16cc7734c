"""The flags of ``kt transactions``: what is refused before any broker is asked."""

import pytest
from click.testing import CliRunner

from kafkatool.commands.main import kt
from kafkatool.core.protocol.messages import metadata
from tests.core.client.fake_broker import FakeBroker

BOOT = ["--bootstrap-server", "localhost:1"]
PLACE = ["--topic", "t", "--partition", "0"]


@pytest.mark.spec("TXN-92")
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["find-hanging"], "requires either --topic or --broker-id"),
        (["find-hanging", "--broker-id", "1", "--partition", "0"], "--partition argument requires --topic"),
        (["abort", *PLACE], "must be identified either with --start-offset"),
        (["abort", *PLACE, "--producer-id", "1"], "Missing required argument --producer-epoch"),
        (
            ["abort", *PLACE, "--producer-id", "1", "--producer-epoch", "0"],
            "Missing required argument --coordinator-epoch",
        ),
        (["abort", *PLACE, "--start-offset", "3", "--producer-id", "1"], "--start-offset finds the producer by itself"),
    ],
    ids=lambda value: "" if isinstance(value, list) else value.split(" ")[-1],
)
def test_what_does_not_name_one_is_bad_usage(args: list[str], words: str) -> None:
    result = CliRunner().invoke(kt, ["transactions", *args, *BOOT])
    assert result.exit_code == 2 and words in result.stderr


@pytest.mark.spec("TXN-92")
def test_a_broker_that_holds_nothing_of_it_is_no_all_clear() -> None:
    partition = metadata.MetadataResponsePartition(partition=0, leader_id=1, replica_nodes=[1], isr_nodes=[1])
    topic = metadata.MetadataResponseTopic(topic="t", partitions=[partition])
    with FakeBroker(1) as broker, FakeBroker(2) as other:
        broker.knows = [broker, other]
        broker.answers[metadata.API.key] = lambda _: broker.metadata([topic])
        for args, why in (
            (("--broker-id", 33), "broker 33 holds no partition; brokers that are up: 1,2"),
            (("--topic", "t", "--broker-id", 2), "broker 2 holds no partition of t; brokers that are up: 1,2"),
        ):
            command = ["transactions", "find-hanging", "--bootstrap-server", str(broker.address), *map(str, args)]
            result = CliRunner().invoke(kt, command)
            assert result.exit_code == 1 and result.stdout == f"{why}\n", result.output
        there = ["transactions", "find-hanging", "--bootstrap-server", str(broker.address), "--broker-id", "2"]
        assert CliRunner().invoke(kt, there).exit_code == 0, "it is there, and holds nothing that could hang"


@pytest.mark.spec("TXN-92")
def test_brokers_have_to_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKATOOL_BOOTSTRAP_SERVER", raising=False)
    result = CliRunner().invoke(kt, ["transactions", "list"])
    assert result.exit_code == 2
    assert "no broker is named, and no cluster of kt's runs here: give --bootstrap-server HOST:PORT" in result.stderr
