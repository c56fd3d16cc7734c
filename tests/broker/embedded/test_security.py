"""What a secured cluster writes for its users: nothing that means more than it says, and nothing for others to read."""

import os
from pathlib import Path

import pytest

from kafkatool.broker.embedded.secured.security import ClusterSecurity
from kafkatool.broker.embedded.zookeeper_process import ZooKeeperProcess
from kafkatool.core.errors import RefusedError
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
