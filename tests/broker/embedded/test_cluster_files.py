"""cluster.json and the lock: torn files, dead owners, two at once. No process is started."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.broker.embedded.cluster_files import ClusterFiles, ClusterSpec, this_process
from kafkatool.core.errors import KafkatoolError, RefusedError


def test_a_spec_comes_back_and_a_torn_one_counts_as_none(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path)
    assert files.load() is None
    spec = ClusterSpec(1, {1: 2, 2: 3}, {"a": "b"}, this_process(), complete=True)
    files.save(spec)
    assert files.load() == spec
    (tmp_path / "cluster.json").write_text('{"zookeeper_port":1,"por')
    assert files.load() is None


def test_an_owner_is_gone_when_its_pid_is_another_process_or_none() -> None:
    pid, started = this_process()
    assert not ClusterSpec(1, {}, owner=(pid, started)).owner_is_gone()
    assert ClusterSpec(1, {}, owner=(pid, started - 1)).owner_is_gone()
    assert ClusterSpec(1, {}, owner=(2**22 - 1, started)).owner_is_gone()
    assert not ClusterSpec(1, {}).owner_is_gone()


def test_two_at_once_are_told_apart(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path)
    with files.lock(), pytest.raises(KafkatoolError, match="another kt"), ClusterFiles(tmp_path).lock():
        pass
    with files.lock():
        pass


def test_what_cannot_be_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="at least one broker"):
        EmbeddedCluster(0)
    with pytest.raises(RefusedError, match="listeners"):
        EmbeddedCluster(1, directory=tmp_path, options={"listeners": "PLAINTEXT://:1"})
    with pytest.raises(RefusedError, match="no cluster in"):
        EmbeddedCluster(directory=tmp_path).status()


def test_a_temporary_directory_goes_when_the_start_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def fail(count: int) -> Iterator[int]:
        raise RefusedError("no port is free")

    monkeypatch.setattr("kafkatool.broker.embedded.cluster.free_ports", fail)
    with pytest.raises(RefusedError, match="no port"), EmbeddedCluster(1):
        pass
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RefusedError, match="no port"), EmbeddedCluster(1, directory=tmp_path / "kept"):
        pass
    assert (tmp_path / "kept").is_dir()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(KafkatoolError, match=str(tmp_path)):
        EmbeddedCluster(1, directory=tmp_path / "x").up()
