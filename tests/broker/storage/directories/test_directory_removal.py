import shutil
import threading
from pathlib import Path

import pytest

from kafkatool.broker.storage.directories.directory_removal import DirectoryRemoval


def _directories(parent: Path, count: int) -> list[Path]:
    made = [parent / f"t-{number}" for number in range(count)]
    for path in made:
        path.mkdir()
        (path / "a.log").touch()
    return made


@pytest.mark.spec("BRK-150")
def test_whoever_erases_takes_over_what_others_bring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    doomed = _directories(tmp_path, 8)
    threads: set[int] = set()
    begun, go_on = threading.Event(), threading.Event()
    really = shutil.rmtree

    def slowly(path: Path) -> None:
        threads.add(threading.get_ident())
        begun.set()
        assert go_on.wait(60)
        really(path)

    monkeypatch.setattr(shutil, "rmtree", slowly)
    removal = DirectoryRemoval()
    worker = threading.Thread(target=removal.erase, args=(doomed[0],))
    worker.start()
    assert begun.wait(60)
    for path in doomed[1:]:
        removal.erase(path)  # returns at once
    go_on.set()
    worker.join(60)
    assert not list(tmp_path.iterdir())
    assert len(threads) == 1


@pytest.mark.spec("BRK-150")
def test_what_is_gone_or_cannot_go_does_not_stop_the_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, second = _directories(tmp_path, 2)
    no_directory = tmp_path / "file"
    no_directory.touch()
    removal = DirectoryRemoval()
    for path in (first, tmp_path / "gone", no_directory, second):
        removal.erase(path)
    assert list(tmp_path.iterdir()) == [no_directory]
    assert "could not be removed" in caplog.text


@pytest.mark.spec("BRK-150")
def test_a_stop_leaves_the_rest_to_the_next_start(tmp_path: Path) -> None:
    (doomed,) = _directories(tmp_path, 1)
    removal = DirectoryRemoval()
    removal.stop()
    removal.erase(doomed)
    assert doomed.exists()
