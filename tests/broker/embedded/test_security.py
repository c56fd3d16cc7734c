"""What a secured cluster writes for its users: nothing that means more than it says, and nothing for others to read."""

import os
from pathlib import Path

import pytest

from kafkatool.broker.embedded.secured.security import ClusterSecurity
from kafkatool.broker.embedded.zookeeper_process import ZooKeeperProcess
from kafkatool.core.errors import ConfigError, RefusedError
from kafkatool.core.java import find_java


@pytest.mark.spec("SEC-105", "SEC-108")
@pytest.mark.parametrize("password", ['x" user_eve="y', "back\\slash", "two\nlines", ""])
def test_a_password_that_a_login_file_would_read_as_more_is_refused(tmp_path: Path, password: str) -> None:
    with pytest.raises(RefusedError, match="password of 'alice'"):
        ClusterSecurity(tmp_path, "sasl_plaintext", {"alice": password}).prepare()


@pytest.mark.spec("SEC-107")
@pytest.mark.parametrize("user", ["../x", 'a"b', "store", "kafka", ""])
def test_a_user_whose_files_would_be_others_is_refused(tmp_path: Path, user: str) -> None:
    security = ClusterSecurity(tmp_path, "sasl_plaintext")
    security.prepare()
    before = {path: path.read_bytes() for path in security.directory.iterdir()}
    with pytest.raises(RefusedError, match="can be called"):
        security.add_user(user, "secret")
    assert before == {path: path.read_bytes() for path in security.directory.iterdir()}


@pytest.mark.spec("SEC-105", "SEC-45")
def test_the_data_of_a_secured_zookeeper_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        ZooKeeperProcess(tmp_path / "zk", 1, login_file=tmp_path / "jaas.conf").command(find_java(), [])
    finally:
        os.umask(before)
    assert (tmp_path / "zk").stat().st_mode & 0o777 == 0o700


@pytest.mark.spec("SEC-45", "SEC-104")
def test_the_directory_of_a_secured_cluster_is_for_its_owner_alone_as_records_lie_in_it(tmp_path: Path) -> None:
    open_to_all = tmp_path / "cluster"
    open_to_all.mkdir()
    open_to_all.chmod(0o755)
    ClusterSecurity(open_to_all, "sasl_plaintext").prepare()
    assert open_to_all.stat().st_mode & 0o777 == 0o700
    assert (open_to_all / "security").stat().st_mode & 0o777 == 0o700


@pytest.mark.spec("SEC-45")
def test_another_users_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = tmp_path / "cluster"
    theirs.mkdir(mode=0o755)
    monkeypatch.setattr(os, "geteuid", lambda: theirs.stat().st_uid + 1)
    with pytest.raises(ConfigError, match=f"{theirs} belongs to another user, who could change what is in it"):
        ClusterSecurity(theirs, "sasl_plaintext").prepare()
    assert not list(theirs.iterdir())
    assert theirs.stat().st_mode & 0o777 == 0o755
