"""Rows on a real Spark: Parquet holds what the JSON rows hold, in their order."""

import json
from pathlib import Path
from typing import Any

import pytest

from kafkatool.core.errors import UsageError
from kafkatool.core.statelog.jobs.carrier import Logs
from kafkatool.core.statelog.jobs.here import Here, PartFiles
from kafkatool.core.statelog.jobs.ordered_merge import merge_ordered
from kafkatool.core.statelog.jobs.tasks import Mapper
from kafkatool.core.statelog.lines.selection import Selection
from kafkatool.core.statelog.merging.rows import COLUMNS
from kafkatool.core.statelog.sources.clocks import clocks
from kafkatool.core.statelog.sources.files import open_logs
from kafkatool.core.statelog.sources.spool import spool
from kafkatool.core.statelog.spark.parquet import new_directory, write_parquet
from kafkatool.core.statelog.spark.pyspark_private import jvm
from kafkatool.core.statelog.spark.session import Spark
from tests.core.statelog.logs import InProcess, story
from tests.core.statelog.logs import written as written_text


@pytest.mark.slow
@pytest.mark.spec("SCL-16X", "SCL-8", "SCL-22X")
def test_parquet_holds_the_rows_in_order(spark: Spark, tmp_path: Path) -> None:
    written = tmp_path / "rows.parquet"
    with spool() as own:
        sources = open_logs(story("2.8.2"), own).sources
        given: list[tuple[int, Mapper]] = [(1 << 20, InProcess()), (400_000, spark)]
        texts = []
        for chunk_bytes, mapper in given:
            logs = Logs(sources, clocks(sources, []))
            merged = merge_ordered(logs, Selection(), Here(mapper, own), as_rows=True, chunk_bytes=chunk_bytes)
            texts.append(written_text(merged.parts))
        assert texts[0] == texts[1]
        assert isinstance(merged.parts, PartFiles)
        with new_directory(written) as directory:
            write_parquet(merged.parts, directory, spark, utc=False)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".parquet"]
    columns = spark.with_context(lambda context: _read(context, written, tmp_path / "text"))
    assert columns == [column.name for column in COLUMNS]
    rows = [json.loads(line) for part in (tmp_path / "text").glob("part-*") for line in part.read_text().splitlines()]
    expected = [json.loads(line) for line in texts[1].splitlines()]
    assert len(rows) == merged.rows == len(expected)
    assert sorted(map(_key, rows)) == sorted(map(_key, expected))


def test_a_dataset_is_never_written_over(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="exists"), new_directory(tmp_path):
        pass
    with pytest.raises(ZeroDivisionError), new_directory(tmp_path / "new") as directory:
        directory.mkdir()
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def _key(row: dict[str, object]) -> str:
    """Return the row without what is null, which Spark's JSON leaves out, as text that sorts."""
    return json.dumps({name: value for name, value in row.items() if value is not None}, sort_keys=True)


def _read(context: Any, path: Path, to: Path) -> list[str]:
    """Have the JVM write the dataset's rows as JSON into a directory; return the columns."""
    session = jvm(context).org.apache.spark.sql.classic.SparkSession.builder().getOrCreate()
    rows = session.read().format("parquet").load(path.as_uri())
    rows.toJSON().write().text(to.as_uri())
    return list(rows.columns())
