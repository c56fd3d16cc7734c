"""cluster.json and the locks: torn files, users that are gone, two at once. No process is started."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.broker.embedded.cluster_files import ClusterFiles, ClusterSpec, Usage, abandoned, remove_directory
from kafkatool.broker.embedded.ports import free_ports
from kafkatool.core.errors import KafkatoolError, RefusedError


def is_abandoned(directory: Path) -> bool:
    with abandoned(directory) as it_is:
        return it_is


def test_a_spec_comes_back_and_a_torn_one_counts_as_none(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path)
    assert files.load() is None
    spec = ClusterSpec(1, {1: 2, 2: 3}, {"a": "b"}, owned=True, complete=True)
    files.save(spec)
    assert files.load() == spec
    (tmp_path / "cluster.json").write_text('{"zookeeper_port":1,"por')
    assert files.load() is None


def test_a_cluster_is_abandoned_when_the_last_of_its_users_is_gone(tmp_path: Path) -> None:
    assert not is_abandoned(tmp_path), "nobody ever used it"
    first, second = Usage(tmp_path), Usage(tmp_path)
    assert first.alone and not second.alone
    first.end()
    assert not is_abandoned(tmp_path)
    second.end()
    second.end()
    assert is_abandoned(tmp_path)
    assert Usage(tmp_path).alone


def test_a_child_that_is_forked_uses_nothing(tmp_path: Path) -> None:
    usage = Usage(tmp_path)
    ready, go = os.pipe(), os.pipe()
    if not (child := os.fork()):
        os.write(ready[1], b".")
        os.close(go[1])
        os.read(go[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    usage.end()
    try:
        assert is_abandoned(tmp_path)
    finally:
        os.close(go[1])
        os.waitpid(child, 0)
        for fd in (*ready, go[0]):
            os.close(fd)


def test_who_was_alone_is_so_no_more_when_another_was_quicker_to_start(tmp_path: Path) -> None:
    first = Usage(tmp_path)
    second = Usage(tmp_path)
    assert first.alone and not second.alone
    ClusterFiles(tmp_path).save(ClusterSpec(1, {1: 2}, owned=True, complete=True))
    assert not first.alone, "it would end what the second has just started"
    first.end()
    second.end()


def test_a_child_that_is_forked_meanwhile_keeps_no_lock(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path)
    go = os.pipe()
    with files.lock():
        if not (child := os.fork()):
            os.close(go[1])
            os.read(go[0], 1)
            os._exit(0)
    try:
        with files.lock():
            pass
    finally:
        os.close(go[1])
        os.waitpid(child, 0)
        os.close(go[0])


def test_only_what_was_made_to_be_removed_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("kafkatool.broker.embedded.cluster.free_ports", lambda count: 1 / 0)
    chosen, used, left, empty = (tmp_path / f"kafkatool-cluster-{name}" for name in ("mine", "used", "left", "empty"))
    Usage(chosen).end()
    Usage(left, temporary=True).end()
    user = Usage(used, temporary=True)
    empty.mkdir()
    os.utime(empty, (1, 1))
    with pytest.raises(ZeroDivisionError), EmbeddedCluster(1):
        pass
    assert sorted(tmp_path.iterdir()) == [chosen, used]
    assert used.stat().st_mode & 0o777 == 0o700
    user.end()


def test_a_removal_that_was_killed_is_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "d"
    Usage(directory, temporary=True).end()
    (directory / "broker-1").mkdir()

    class Killed(BaseException):
        pass

    def killed(path: Path, **_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr("shutil.rmtree", killed)
        remove_directory(directory)
    assert is_abandoned(directory)
    remove_directory(directory)
    assert not directory.exists()


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
    with pytest.raises(RefusedError, match=r"no cluster runs in .*: start it by kt cluster up, up\(\)"):
        EmbeddedCluster(directory=tmp_path).status()
    with pytest.raises(RefusedError, match="no condition topics: did you mean topic"):
        EmbeddedCluster(directory=tmp_path).faults.answer("Produce", "NOT_COORDINATOR", topics="t")  # type: ignore[call-arg]


def test_a_cluster_that_is_down_is_asked_nothing_and_waited_for_by_nobody(tmp_path: Path) -> None:
    zookeeper, broker = free_ports(2)
    ClusterFiles(tmp_path).save(ClusterSpec(zookeeper, {1: broker}, complete=True))
    cluster = EmbeddedCluster(directory=tmp_path)
    with pytest.raises(RefusedError, match="the cluster is down"):
        cluster.leader("t")
    with pytest.raises(RefusedError, match="the cluster is down"):
        cluster.faults.answer("Produce", "NOT_COORDINATOR")
    with pytest.raises(RefusedError, match="the cluster is down"):
        cluster.faults.move_leader("t")


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
