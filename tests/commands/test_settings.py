"""Where a flag's value comes from when it is not given."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kafkatool.commands import settings
from kafkatool.commands.main import kt
from kafkatool.core.zookeeper import ZooKeeper
from tests.commands.topics_runner import make_orders


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty directory to run in, and a user without a file."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    monkeypatch.chdir(tmp_path)
    settings._read.cache_clear()
    yield tmp_path
    settings._read.cache_clear()


def run(*args: str) -> Result:
    return CliRunner().invoke(kt, ["topics", "list", *args])


def user_file(place: Path, text: str) -> None:
    (place / "user" / "kafkatool").mkdir(parents=True)
    (place / "user" / "kafkatool" / "config.toml").write_text(text)


@pytest.mark.spec("COM-7X")
def test_flag_then_environment_then_directory_then_user(
    zk: ZooKeeper, zk_connect: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_orders(zk)
    user_file(place, 'zookeeper = "127.0.0.1:1"\noutput = "tsv"\n')
    (place / settings.LOCAL_FILE).write_text(f'zookeeper = "{zk_connect}"\n')
    assert run().stdout.startswith("TOPIC\tMARKED_FOR_DELETION")
    monkeypatch.setenv("KAFKATOOL_OUTPUT", "json")
    assert json.loads(run().stdout)["items"][0]["topic"] == "orders"
    assert run("--output", "text").stdout == "orders\n"


@pytest.mark.spec("COM-7X")
def test_names_of_the_other_kt_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KT_BROKERS", "127.0.0.1:1")
    monkeypatch.setenv("KT_TOPIC", "x")
    result = run()
    assert result.exit_code == 2 and "--zookeeper" in result.stderr


@pytest.mark.spec("COM-7X", "COM-3X")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("zokeeper = 1", "unknown setting 'zokeeper'"),
        ("zookeeper = [1]", "zookeeper is not a single value"),
        ("zookeeper", "cannot read settings"),
    ],
)
def test_a_bad_file_is_named(place: Path, text: str, why: str) -> None:
    (place / settings.LOCAL_FILE).write_text(text)
    result = run()
    assert result.exit_code == 2
    assert why in result.stderr and settings.LOCAL_FILE in result.stderr
