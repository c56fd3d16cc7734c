"""Shell completion: the scripts in completions/ are fresh; topics and brokers come from ZooKeeper, quickly or not."""

import socket
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from kafkatool.broker.embedded import running
from kafkatool.broker.embedded.cluster_files import ClusterFiles, ClusterSpec
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


def test_names_of_files_are_left_to_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_KT_COMPLETE", "bash_complete")
    for line in (
        "kt reassign --reassignment-json-file pl",
        "kt reassign --topics-to-move-json-file pl",
        "kt elect --path-to-json-file pl",
        "kt broker start --config pl",
        "kt health --state pl",
    ):
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
        assert CliRunner().invoke(kt, [], prog_name="kt").stdout == "file,pl\n", line


def test_configs_are_completed_up_to_their_value(monkeypatch: pytest.MonkeyPatch) -> None:
    assert complete(monkeypatch, "topics", "create", "--config", "retention.m") == ["retention.ms="]
    assert complete(monkeypatch, "topics", "alter", "--delete-config", "remote.storage.en") == ["remote.storage.enable"]


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
    line = ("topics", "describe", "--zookeeper", f"127.0.0.1:{free_port()}", "--topic", "o")
    assert complete(monkeypatch, *line) == []
    assert complete(monkeypatch, "topics", "describe", "--topic", "o") == []


@pytest.mark.spec("COM-8X")
def test_a_zookeeper_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert completion.ANSWER_WITHIN_S < 1
    waited: list[float | None] = []

    class Thread(threading.Thread):
        def join(self, timeout: float | None = None) -> None:
            if self.name == "kt-completion":
                waited.append(timeout)
            super().join(timeout)

    monkeypatch.setattr(threading, "Thread", Thread)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        line = ("topics", "describe", "--zookeeper", f"127.0.0.1:{silent.getsockname()[1]}", "--topic", "o")
        assert complete(monkeypatch, *line) == []
    assert waited == [completion.ANSWER_WITHIN_S]


@pytest.mark.usefixtures("patient")
@pytest.mark.spec("COM-8X")
def test_the_only_cluster_of_this_machine_is_asked_where_no_zookeeper_is_named(
    zk: ZooKeeper, zk_connect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_orders(zk)
    here = {Path("/a"): running.RunningCluster(zk_connect, "127.0.0.1:1")}
    monkeypatch.setattr(running, "running_clusters", lambda: here)
    assert complete(monkeypatch, "topics", "describe", "--topic", "o") == ["orders"]
    assert complete(monkeypatch, "reassign", "--broker-list", "1,2", "--exclude-brokers", "") == ["1", "2", "3", "4"]
    line = ("replica-verify", "--broker-list", "kafka1:9092", "--topic-white-list", "o")
    assert complete(monkeypatch, *line) == [], "those brokers are of a cluster that may be another"
    here[Path("/b")] = running.RunningCluster("127.0.0.1:1", "127.0.0.1:2")
    assert complete(monkeypatch, "topics", "describe", "--topic", "o") == [], "two: which one is meant is not known"


def test_the_brokers_of_a_cluster_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ClusterFiles(tmp_path).save(ClusterSpec(2181, {1: 9001, 2: 9002, 10: 9010}))
    for action in ("kill", "start", "stop"):
        assert complete(monkeypatch, "cluster", action, "--dir", str(tmp_path), "1") == ["1", "10"]
        assert complete(monkeypatch, "cluster", action, "--dir", str(tmp_path / "none"), "") == []


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
