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
    directory = _dir(tmp_path / "a", _KAFKA.replace("cluster.id=Xq1\n", "color=blue\n"))
    write_meta_properties(directory, 7, "Xq1")
    text = (directory / "meta.properties").read_text()
    assert "color=blue\n" in text
    assert read_meta_properties([directory]) == MetaProperties(7, "Xq1")
    write_meta_properties(directory, 7, "Xq1")
    assert (directory / "meta.properties").read_text() == text


@pytest.mark.spec("BRK-124")
@pytest.mark.parametrize(
    "other", [_KAFKA.replace("7", "8"), _KAFKA.replace("Xq1", "Yr2"), _KAFKA.replace("=0", "=1"), "broker.id=x\n"]
)
def test_dirs_of_different_owners_stop_the_start(tmp_path: Path, other: str) -> None:
    with pytest.raises(ConfigError):
        read_meta_properties([_dir(tmp_path / "a", _KAFKA), _dir(tmp_path / "b", other)])
