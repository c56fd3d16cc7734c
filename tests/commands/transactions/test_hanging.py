"""The flags of ``kt transactions``: what is refused before any broker is asked."""

import pytest
from click.testing import CliRunner

from kafkatool.commands.main import kt

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
def test_brokers_have_to_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKATOOL_BOOTSTRAP_SERVER", raising=False)
    result = CliRunner().invoke(kt, ["transactions", "list"])
    assert result.exit_code == 2
    assert "no broker is named, and no cluster of kt's runs here: give --bootstrap-server HOST:PORT" in result.stderr
