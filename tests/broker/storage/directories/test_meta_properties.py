from pathlib import Path

import pytest

from kafkatool.broker.storage.directories.meta_properties import (
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from kafkatool.core.errors import ConfigError

_KAFKA = "#\n#Sat Nov 21 12:00:00 UTC 2026\ncluster.id=Xq1\nversion=0\nbroker.id=7\n"


def _dir(path: Path, text: str) -> Path:
    path.mkdir()
    (path / "meta.properties").write_text(text)
    return path


@pytest.mark.spec("BRK-149", "BRK-124")
def test_a_file_of_kafka_is_read_and_silent_dirs_have_no_say(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    assert read_meta_properties([tmp_path / "new", _dir(tmp_path / "a", _KAFKA)]) == MetaProperties(7, "Xq1")
    assert read_meta_properties([tmp_path / "new"]) == MetaProperties()


@pytest.mark.spec("BRK-149")
def test_unknown_keys_stay_and_an_unchanged_file_is_not_written(tmp_path: Path) -> None:
    directory = _dir(tmp_path / "a", _KAFKA.replace("cluster.id=Xq1\n", "color=blue\n# mine\n  ! too\n"))
    write_meta_properties(directory, 7, "Xq1")
    text = (directory / "meta.properties").read_text()
    assert "color=blue\n" in text
    assert text.splitlines()[:4] == ["#", "#Sat Nov 21 12:00:00 UTC 2026", "# mine", "  ! too"]
    assert read_meta_properties([directory]) == MetaProperties(7, "Xq1")
    written = (directory / "meta.properties").stat()
    write_meta_properties(directory, 7, "Xq1")
    assert (directory / "meta.properties").read_text() == text
    again = (directory / "meta.properties").stat()
    assert (again.st_ino, again.st_mtime_ns) == (written.st_ino, written.st_mtime_ns)


@pytest.mark.spec("BRK-124")
@pytest.mark.parametrize(
    "other", [_KAFKA.replace("7", "8"), _KAFKA.replace("Xq1", "Yr2"), _KAFKA.replace("=0", "=1"), "broker.id=x\n"]
)
def test_dirs_of_different_owners_stop_the_start(tmp_path: Path, other: str) -> None:
    with pytest.raises(ConfigError):
        read_meta_properties([_dir(tmp_path / "a", _KAFKA), _dir(tmp_path / "b", other)])


@pytest.mark.spec("BRK-149")
def test_what_is_written_is_what_kafka_writes(tmp_path: Path) -> None:
    write_meta_properties(tmp_path, 7, None)
    lines = (tmp_path / "meta.properties").read_text().splitlines()
    assert lines[0] == "#" and lines[1].startswith("#")
    assert sorted(lines[2:]) == ["broker.id=7", "version=0"]
    write_meta_properties(tmp_path, 7, "Xq1")
    assert sorted((tmp_path / "meta.properties").read_text().splitlines()[2:]) == [
        "broker.id=7",
        "cluster.id=Xq1",
        "version=0",
    ]
