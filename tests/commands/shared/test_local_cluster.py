"""Without --zookeeper: the one cluster that kt cluster up runs here, or a word on how to name one."""

from pathlib import Path

import pytest

from kafkatool.broker.embedded import running
from kafkatool.broker.embedded.running import RunningCluster
from kafkatool.commands.shared.local_cluster import local_bootstrap, local_zookeeper
from kafkatool.core.errors import UsageError


@pytest.mark.spec("COM-1")
def test_the_only_one_is_taken_and_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(
        running,
        "running_clusters",
        lambda: {Path.home() / "c": RunningCluster("127.0.0.1:2181", "127.0.0.1:9092,127.0.0.1:9093")},
    )
    assert local_zookeeper() == "127.0.0.1:2181"
    assert capsys.readouterr() == ("", "kt: on the cluster of this machine, 127.0.0.1:2181 (~/c)\n")
    assert local_bootstrap() == "127.0.0.1:9092,127.0.0.1:9093"
    told = "kt: on the cluster of this machine, 127.0.0.1:9092,127.0.0.1:9093 (~/c)\n"
    assert capsys.readouterr() == ("", told)


@pytest.mark.spec("COM-1")
def test_of_several_none_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    both = {Path(f"/{n}"): RunningCluster(f"127.0.0.1:{z}", f"127.0.0.1:{b}") for n, z, b in (("b", 2, 4), ("a", 1, 3))}
    monkeypatch.setattr(running, "running_clusters", lambda: both)
    with pytest.raises(
        UsageError, match=r"run here: name one of --zookeeper 127\.0\.0\.1:1 \(/a\), --zookeeper 127\.0\.0\.1:2 \(/b\)"
    ):
        local_zookeeper()
    with pytest.raises(
        UsageError, match=r"no broker is named, .* one of --bootstrap-server 127\.0\.0\.1:3 \(/a\), --boot"
    ):
        local_bootstrap()
