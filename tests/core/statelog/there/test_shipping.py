"""What is sent to workers works where nothing else is installed."""

import subprocess
import sys
from pathlib import Path

import pytest

from kafkatool.core.statelog.there.shipping import pack

MODULES = ("tasks", "surveys", "ranges", "frames")
"""What functions that are sent to workers are found in."""


@pytest.mark.spec("SCL-8")
@pytest.mark.parametrize("module", MODULES)
def test_a_bare_python_can_import_what_tasks_are_made_of(module: str, tmp_path: Path) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(pack(tmp_path))!r})
import kafkatool.core.statelog.there.{module}, kafkatool.core.statelog.jobs.ordered_merge
import kafkatool.core.statelog.jobs.report, kafkatool.core.statelog.jobs.timeline
from kafkatool.core.statelog.merging.rows import as_json
print(as_json({{"text": "\\x01\\x7f/\\u00e4\\ufffd\\"", "n": None, "list": (1, 2)}}).decode(), end="")
print(sorted(name for name in sys.modules if name.split(".")[0] in ("pyspark", "orjson", "click", "kazoo")))
"""
    command = [
        sys.executable,
        "-I",
        "-S",
        "-X",
        "utf8",
        "-c",
        code,
    ]  # nothing installed is seen
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == '{"text":"\\u0001\x7f/\u00e4\ufffd\\"","n":null,"list":[1,2]}\n[]\n'
