"""Logs named by URI: Hadoop's file system for ``file://`` stands for those of hdfs and s3a, which it is one of."""

import gzip
from pathlib import Path

import pytest

from kafkatool.core.errors import UsageError
from kafkatool.core.statelog.sources.files import open_logs
from kafkatool.core.statelog.sources.spool import spool
from kafkatool.core.statelog.spark.remote import fetch, is_remote
from kafkatool.core.statelog.spark.session import Spark

LINE = "[2026-11-21 16:00:0%d,000] TRACE Broker %d received LeaderAndIsr request\n"


def test_a_path_is_no_uri() -> None:
    assert [is_remote(name) for name in ("hdfs://nn/logs", "s3a://b/l", "file:///l", "a/b", "C:/l", "-", "/a://b")] == [
        True,
        True,
        True,
        *[False] * 4,
    ]


@pytest.mark.spec("SCL-1", "SCL-10X", "SCL-11X", "SCL-14X")
def test_files_directories_and_patterns_are_fetched_and_keep_their_names(spark: Spark, tmp_path: Path) -> None:
    there = tmp_path / "there"
    for broker in (1, 2):
        (there / f"b{broker}").mkdir(parents=True)
        (there / f"b{broker}" / "state-change.log").write_text(LINE % (broker, broker))
    (there / "b2" / "server.log").write_text("no state change\n")
    (there / "b1" / "state-change.log.2026-11-21-15.gz").write_bytes(gzip.compress((LINE % (0, 1)).encode()))
    with spool() as own:
        copies = own.directory / "fetched"
        copies.mkdir()
        uris = [f"{there.as_uri()}/b1", f"{there.as_uri()}/b?/state-change.log"]
        fetched = fetch(spark, uris[:1], copies) | fetch(spark, [f"{there.as_uri()}/b2"], copies)
        opened = open_logs([], own, fetched=fetched)
        names = [source.name.removeprefix("file:").removeprefix(str(there)) for source in opened.sources]
        assert names == ["/b1/state-change.log.2026-11-21-15.gz", "/b1/state-change.log", "/b2/state-change.log"]
        assert [source.label for source in opened.sources] == ["1", "1", "2"]
        assert opened.sources[2].read(0, opened.sources[2].size) == (LINE % (2, 2)).encode()
        assert len(fetch(spark, uris[1:], copies)) == 2


@pytest.mark.spec("SCL-2")
@pytest.mark.parametrize(
    ("uri", "told"), [("file:///nowhere/x", "no such file"), ("nothing://x/y", 'No FileSystem for scheme "nothing"')]
)
def test_what_is_not_there_or_cannot_be_reached_is_named(spark: Spark, tmp_path: Path, uri: str, told: str) -> None:
    with pytest.raises(UsageError, match=f"{uri}: .*{told}"):
        fetch(spark, [uri], tmp_path)
