"""DataFrames of records and facts: every example of docs/logs-on-spark.md prints what the page says."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafkatool.core.java import find_java
from kafkatool.core.statelog.history.timeline import ITEM_KEYS
from kafkatool.core.statelog.jobs.carrier import Logs
from kafkatool.core.statelog.jobs.gathering import gather
from kafkatool.core.statelog.jobs.here import Here
from kafkatool.core.statelog.jobs.timeline import make_timeline
from kafkatool.core.statelog.lines.selection import Selection
from kafkatool.core.statelog.sources.files import find_files, open_logs
from tests.commands.logs.tools import EXAMPLE
from tests.core.statelog.logs import InProcess
from tests.paths import ROOT

PAGE = ROOT / "docs" / "logs-on-spark.md"
MARK = "-- an answer --"
ALL_FACTS = "print('-- all --')\nfor row in story.toJSON().collect():\n    print(row)\n"
TIMEOUT_S = 500


@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(600)
@pytest.mark.spec("SCL-16X", "SCL-17X")
def test_every_question_of_the_page_has_its_answer(tmp_path: Path) -> None:
    text = PAGE.read_text()
    blocks = re.findall(r"```python\n(.*?)```\n(?:\n```\n(.*?)```\n)?", text, re.DOTALL)
    assert len(blocks) == 6, "the beginning, and five questions"
    script = f"\nprint({MARK!r})\n".join(code for code, _ in blocks)
    (tmp_path / "questions.py").write_text(f"{script}\n" + ALL_FACTS)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
    environment |= {"JAVA_HOME": str(find_java().executable.parents[1]), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment |= {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "MASTER": "local[2]"}
    environment["PYSPARK_SUBMIT_ARGS"] = (
        f"--master local[2] --conf spark.ui.enabled=false --conf spark.local.dir={tmp_path} "
        f"--conf spark.sql.warehouse.dir={tmp_path} --conf spark.sql.shuffle.partitions=4 pyspark-shell"
    )
    command = [sys.executable, str(tmp_path / "questions.py")]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    *answers, last = done.stdout.split(f"{MARK}\n")[1:]
    last, _, facts = last.partition("-- all --\n")
    told = [answer.rstrip("\n") for answer in (*answers, last)]
    assert told == [answer.rstrip("\n") for _, answer in blocks[1:]]
    found = [json.loads(line) for line in facts.splitlines()]
    assert _plain(found) == _plain(_timeline(tmp_path))
    assert len(found) > 100


def _timeline(directory: Path) -> list[dict[str, Any]]:
    """Return the facts that ``kt logs timeline`` tells of the page's logs."""
    sources = open_logs(find_files(str(EXAMPLE), None), directory).sources
    logs = Logs(sources, (None,) * len(sources))
    gathered = gather(logs, Selection(), Here(InProcess(), directory), len(sources))
    return list(make_timeline(gathered, with_ignored=True).items())


def _plain(facts: list[dict[str, Any]]) -> list[str]:
    """Return facts as texts that sort; null where Spark's JSON leaves it out."""
    return sorted(
        repr(
            [fact["time"].replace("T", " ").replace(",", ".").removesuffix(".000")]
            + [fact.get(name) or None for name in ITEM_KEYS if name not in ("time", "until", "witnesses")]
            + [[(w["broker"], w["role"], w["late_ms"], w["line"]) for w in fact.get("witnesses") or ()]]
        )
        for fact in facts
        if fact["fact"] != "final"
    )


def test_the_page_names_every_column_of_facts() -> None:
    table = PAGE.read_text().split("| column | type | |")[1].split("\n\n")[0]
    first_cells = [line.split("|")[1] for line in table.splitlines()[1:]]
    assert sorted(re.findall(r"`(\w+)`", "".join(first_cells))) == sorted(ITEM_KEYS)
