"""README's first five minutes, pasted line by line as a newcomer would: every line works after those before it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.waiting import eventually

# A broker that has just come back may need a moment, as the page says; one that stands still is not verified.
UNSURE = ("kt elect", "kt replica-verify --once")
LASTING = "-o zookeeper.session.timeout.ms=18000 -o replica.lag.time.max.ms=60000"  # as in tests/steady.py


def pasted_lines() -> list[str]:
    (block,) = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    return str(block).splitlines()


@pytest.mark.timeout(1200)  # twenty commands, two JVMs and their archives: five minutes may pass on a busy machine
def test_the_first_five_minutes_work_as_pasted(tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    kt = Path(sys.executable).parent
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("KAFKATOOL_", "XDG_"))}
    environment |= {"HOME": str(home), "PATH": f"{kt}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}

    def paste(words: str) -> subprocess.CompletedProcess[str]:
        line = f"{words} {LASTING}" if words == "kt cluster up" else words
        return subprocess.run(
            ["bash", "-c", line], cwd=work, env=environment, capture_output=True, text=True, timeout=240, check=False
        )

    def settled(line: str) -> subprocess.CompletedProcess[str]:
        outcomes: list[subprocess.CompletedProcess[str]] = []

        def is_done() -> bool:
            outcomes.append(paste(line))
            return outcomes[-1].returncode == 0

        eventually(is_done, line)
        return outcomes[-1]

    lines = pasted_lines()
    assert lines[0] == "kt cluster up" and lines[-1] == "kt cluster down"
    answers = {}
    try:
        for line in lines:
            done = settled(line) if line in UNSURE else paste(line)
            assert done.returncode == 0, (line, done.stdout, done.stderr)
            answers[line] = done.stdout
    finally:
        paste("kt cluster down")
    # and they show what the text around them promises
    described = answers["kt topics describe --under-replicated-partitions"]
    assert "Topic: orders" in described and "Isr: 2\n" in described
    assert "20000 records written to orders" in answers["kt cluster fill orders"]
    (generated,) = (answers[line] for line in lines if "--generate" in line)
    assert "6 partitions planned: plan.json" in generated
    (moved,) = (answers[line] for line in lines if "--wait" in line)
    assert moved.count("completed successfully") == 6 and moved.endswith("Throttle was removed.\n")
    (compared,) = (answers[line] for line in lines if "replica-verify" in line)
    assert compared.count(" equal: ") == 6 and "offsets 0 to 0" not in compared
    (report,) = (answers[line] for line in lines if line.startswith("kt logs report"))
    # it handed its leaderships over, unless everything stood still for longer than its session
    assert re.search("broker 1 (stopped in a controlled way|gone)[:,] ", report) and "broker 1 back in an ISR" in report
    for broker in (2, 3):  # one was always there, the other was emptied; neither was gone, unless it lost its session
        own_log = (home / f".local/state/kafkatool/cluster/broker-{broker}/server.log").read_text()
        assert f"broker {broker} gone" not in report or f"registering broker {broker} again" in own_log, report
    assert (work / "merged.log").stat().st_size and "<html" in (work / "report.html").read_text()
