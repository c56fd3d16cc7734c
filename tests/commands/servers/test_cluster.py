"""What ``kt cluster`` says of what it has done, or refuses; the clusters themselves are tried in tests/integration."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.broker.embedded.cluster_files import ClusterFiles, ClusterSpec
from kafkatool.commands.main import kt


def run(*arguments: object) -> Result:
    return CliRunner().invoke(kt, ["cluster", *map(str, arguments)])


@pytest.fixture
def five(tmp_path: Path) -> Path:
    """Make the directory of a cluster of five brokers that does not run."""
    (directory := tmp_path / "a cluster").mkdir()
    ClusterFiles(directory).save(ClusterSpec(2181, {i: 9000 + i for i in range(1, 6)}, complete=True))
    return directory


def test_a_broker_of_a_cluster_that_is_down_is_not_waited_for(five: Path) -> None:
    result = run("start", 2, "--dir", five)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "kt: broker 2 cannot start: the ZooKeeper of this cluster does not run; start the whole cluster again: "
        f"kt cluster up --brokers 5 --dir '{five}'\n"
    )
    assert not (five / "broker-2").exists()


@pytest.mark.parametrize(
    ("command", "method", "said"),
    [
        ("kill", "kill_broker", "broker 2 is killed"),
        ("stop", "stop_broker", "broker 2 is stopped"),
        ("start", "start_broker", "broker 2 is started, and answers"),
    ],
)
def test_what_was_done_to_a_broker_is_told(
    five: Path, monkeypatch: pytest.MonkeyPatch, command: str, method: str, said: str
) -> None:
    done: list[int] = []
    monkeypatch.setattr(EmbeddedCluster, method, lambda cluster, broker_id: done.append(broker_id))
    result = run(command, 2, "--dir", five)
    assert (result.exit_code, result.stdout, result.stderr, done) == (0, f"{said}\n", "", [2])


def test_a_cluster_that_is_down_stays_so_and_one_that_never_was_is_told(five: Path, tmp_path: Path) -> None:
    ended = run("down", "--dir", five)
    assert (ended.exit_code, ended.stdout) == (
        0,
        f"the cluster in {five} is down; its data stays there, until you remove the directory\n",
    )
    nothing = run("down", "--dir", tmp_path / "none")
    assert (nothing.exit_code, nothing.stdout) == (0, "")
    assert nothing.stderr == f"no cluster in {tmp_path / 'none'}: nothing to end\n"
    assert not (tmp_path / "none").exists()


@pytest.mark.spec("COM-3X")
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("-o", "num.io.thread=1"), "no broker option num.io.thread: did you mean num.io.threads?"),
        (("-o", "broker.id=1"), "broker.id of an embedded cluster's brokers cannot be set"),
        (("--port", "9001", "--zookeeper-port", "9002"), "port 9002 is for ZooKeeper and broker 2"),
    ],
)
def test_flags_that_cannot_be_meant_are_bad_usage(tmp_path: Path, flags: tuple[str, ...], said: str) -> None:
    result = run("up", "--dir", tmp_path / "none", *flags)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert not (tmp_path / "none").exists()


@pytest.mark.spec("COM-3X")
@pytest.mark.parametrize("server", ["broker start", "controller start --zookeeper 127.0.0.1:1"])
def test_a_file_of_properties_that_is_not_there_is_bad_usage(server: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(kt, [*server.split(), "--config", str(tmp_path / "server.properties")])
    assert result.exit_code == 2
    assert "does not exist" in result.stderr
