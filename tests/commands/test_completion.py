"""Shell completion: the scripts in completions/ are fresh; topics and brokers come from ZooKeeper, quickly or not."""

import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from kafkatool.commands import completion
from kafkatool.commands.main import kt
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.commands.topics.runner import make_orders
from tests.core.zookeeper import cluster_nodes as nodes
from tests.paths import ROOT
from tests.ports import free_port

FILES = {"bash": "kt.bash", "zsh": "_kt", "fish": "kt.fish"}


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer for values: this machine may be busy, and how long kt waits is another test's business."""
    monkeypatch.setattr(completion, "ANSWER_WITHIN_S", 60)


def complete(monkeypatch: pytest.MonkeyPatch, *words: str) -> list[str]:
    """Return what bash is offered for the last word."""
    monkeypatch.setenv("_KT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", " ".join(("kt", *words)))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    result = CliRunner().invoke(kt, [], prog_name="kt")
    assert result.stderr == ""
    return [line.partition(",")[2] for line in result.stdout.splitlines() if line]


@pytest.mark.spec("COM-8X")
@pytest.mark.parametrize("shell", completion.SHELLS)
def test_the_script_in_the_repository_is_what_the_command_prints(shell: str) -> None:
    file = ROOT / "completions" / FILES[shell]
    printed = CliRunner().invoke(kt, ["completion", shell])
    assert printed.exit_code == 0
    assert file.read_text() == printed.stdout, f"kt completion {shell} > completions/{FILES[shell]}"


def test_commands_and_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    assert complete(monkeypatch, "topics", "de") == ["describe", "delete"]
    assert "--replication-factor" in complete(monkeypatch, "topics", "create", "--rep")


@pytest.mark.usefixtures("patient")
@pytest.mark.spec("COM-8X")
def test_topics_from_zookeeper(zk: ZooKeeper, zk_connect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes.make_cluster(zk, topics={"orders": {}, "other": {}, "third": {}})
    line = ("topics", "describe", "--zookeeper", zk_connect, "--topic")
    assert complete(monkeypatch, *line, "o") == ["orders", "other"]
    monkeypatch.setenv("KAFKATOOL_ZOOKEEPER", zk_connect)
    assert complete(monkeypatch, "topics", "delete", "--topic", "th") == ["third"]
    assert complete(monkeypatch, "elect", "--topic", "th") == ["third"]
    assert complete(monkeypatch, "replica-verify", "--topic-white-list", "other,t") == ["other,third"]


@pytest.mark.usefixtures("patient")
@pytest.mark.spec("COM-8X")
def test_broker_ids_from_zookeeper_each_once(zk: ZooKeeper, zk_connect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_orders(zk)
    monkeypatch.setenv("KAFKATOOL_ZOOKEEPER", zk_connect)
    line = ("reassign", "--generate", "--broker-list")
    assert complete(monkeypatch, *line, "") == ["1", "2", "3", "4"]
    assert complete(monkeypatch, *line, "2,1,") == ["2,1,3", "2,1,4"]
    assert complete(monkeypatch, "elect", "--broker", "") == ["1", "2", "3", "4"]


@pytest.mark.spec("COM-8X")
def test_no_zookeeper_no_values_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    start = time.monotonic()
    line = ("topics", "describe", "--zookeeper", f"127.0.0.1:{free_port()}", "--topic", "o")
    assert complete(monkeypatch, *line) == []
    assert time.monotonic() - start < 25  # 0.8 s of waiting, on a busy machine; a command waits for 30 s
    assert complete(monkeypatch, "topics", "describe", "--topic", "o") == []


@pytest.mark.usefixtures("patient")
@pytest.mark.spec("COM-8X", "COM-7X")
def test_contexts_and_the_topics_of_the_one_that_was_chosen(
    zk: ZooKeeper, zk_connect: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nodes.make_cluster(zk, topics={"orders": {}})
    (tmp_path / ".kafkatool.toml").write_text(f'[contexts.prod]\nzookeeper = "{zk_connect}"\n[contexts.test]\n')
    monkeypatch.chdir(tmp_path)
    assert complete(monkeypatch, "--context", "p") == ["prod"]
    assert complete(monkeypatch, "--context", "prod", "topics", "describe", "--topic", "o") == ["orders"]
    assert complete(monkeypatch, "--context", "test", "topics", "describe", "--topic", "o") == []
    assert complete(monkeypatch, "--context", "none", "topics", "describe", "--topic", "o") == []
