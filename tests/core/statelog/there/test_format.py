"""The rows of ``records`` as a format of Spark's, in a session that pyspark itself starts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafkatool.core.java import find_java
from tests.commands.logs.tools import EXAMPLE
from tests.paths import ROOT

TIMEOUT_S = 900
SCRIPT = """
import json, sys, threading
from pyspark.sql import SparkSession
from kafkatool.statelog import records, register

path, told = sys.argv[1], {}
spark = SparkSession.builder.getOrCreate()
register(spark)
register(spark)
logs = spark.read.format("kafka-state-change")
expected = records(spark, path).cache()
rows = logs.load(path).cache()
told["rows"] = [rows.count(), expected.count(), rows.exceptAll(expected).count()]
told["schema"] = rows.schema == expected.schema
told["sorted"] = [row.asDict() == other.asDict() for row, other in zip(
    rows.orderBy("time", "file_number", "offset", "topic", "partition").limit(50).collect(),
    expected.orderBy("time", "file_number", "offset", "topic", "partition").limit(50).collect(), strict=True)]
told["a few columns"] = sorted(map(list, logs.load(path).select("partition", "event").distinct().collect()), key=str)
told["of records"] = sorted(map(list, expected.select("partition", "event").distinct().collect()), key=str)
(name,) = expected.select("file").distinct().limit(1).first()
told["a file"] = [logs.load(name).count(), expected.where(expected.file == name).count()]
told["a pattern"] = logs.load(path + "/*.gz").count()

def elsewhere():
    told["another thread's session"] = spark.newSession().read.format("kafka-state-change").load(path).count()
    spark.sql(f"create temp view story using `kafka-state-change` options (path '{path}')")
    told["SQL"] = spark.sql("select count(*) from story").first()[0]

thread = threading.Thread(target=elsewhere)
thread.start()
thread.join()
for name, wrong in (("missing", "/no/such.log"), ("no connector", "nofs://a/b"), ("several", [path, path])):
    try:
        logs.load(wrong)
    except Exception as e:
        told[name] = f"{type(e).__name__}: {e}"
print(json.dumps(told))
"""


@pytest.mark.slow
@pytest.mark.timeout(1000)
@pytest.mark.spec("SCL-16X")
def test_the_format_gives_the_rows_of_records(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
    environment |= {"JAVA_HOME": str(find_java().executable.parents[1]), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment |= {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    environment["PYSPARK_SUBMIT_ARGS"] = (
        f"--master local[2] --conf spark.ui.enabled=false --conf spark.local.dir={tmp_path} "
        f"--conf spark.sql.warehouse.dir={tmp_path} --conf spark.sql.shuffle.partitions=2 pyspark-shell"
    )
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py"), str(EXAMPLE)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "ERROR" not in done.stderr, "code is sent to workers once"
    told = json.loads(done.stdout.splitlines()[-1])
    number = told["rows"][0]
    assert number > 1000
    assert told["rows"] == [number, number, 0]
    assert told["schema"]
    assert told["sorted"] == [True] * 50
    assert told["a few columns"] == told["of records"]
    assert told["a file"][0] == told["a file"][1] < number
    assert told["a pattern"] == told["another thread's session"] == told["SQL"] == number
    assert told["missing"] == "IllegalArgumentException: kafka-state-change: /no/such.log: no such file"
    assert told["no connector"].startswith("IllegalArgumentException: kafka-state-change: nofs://a/b: ")
    assert "records(spark, [...])" in told["several"]
