import subprocess
import sys
from pathlib import Path

import pytest

from kafkatool.broker.storage.directories.dir_lock import DirLock
from kafkatool.core.errors import StorageError

_TAKE = """
import sys
from pathlib import Path
from kafkatool.broker.storage.directories.dir_lock import DirLock
DirLock(Path(sys.argv[1]))
"""


def _take_elsewhere(directory: Path) -> bool:
    """Tell whether another process can have the lock."""
    done = subprocess.run([sys.executable, "-c", _TAKE, str(directory)], capture_output=True, timeout=60, check=False)
    return done.returncode == 0


@pytest.mark.spec("BRK-148")
def test_lock_excludes_this_process_and_others_until_released(tmp_path: Path) -> None:
    lock = DirLock(tmp_path)
    with pytest.raises(StorageError):
        DirLock(tmp_path)
    assert not _take_elsewhere(tmp_path)  # also: the refused attempt did not lose the lock
    lock.release()
    lock.release()
    assert _take_elsewhere(tmp_path)
    DirLock(tmp_path).release()


@pytest.mark.spec("BRK-148")
def test_one_dir_by_two_names_is_one_dir(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    lock = DirLock(tmp_path / "real")
    with pytest.raises(StorageError):
        DirLock(tmp_path / "link")
    lock.release()


_AS_JAVA = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the other kind of lock: nobody has one
try:
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    print("record lock held")
"""


@pytest.mark.spec("BRK-148")
def test_it_is_a_record_lock_as_java_takes_on_the_file_that_kafka_names(tmp_path: Path) -> None:
    lock = DirLock(tmp_path)
    command = [sys.executable, "-c", _AS_JAVA, str(tmp_path / ".lock")]
    assert (
        subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout == "record lock held\n"
    )
    lock.release()
    assert subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout == ""
