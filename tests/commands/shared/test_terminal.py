"""Output on a real pseudo-terminal, other than on a pipe: colour; NO_COLOR; a narrow window."""

import os
import pty
import re
import subprocess
import sys

import pytest

from kafkatool.core.zookeeper.session import ZooKeeper
from tests.commands.topics.runner import make_orders

COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9]m")
WAITING = re.compile(r"^kt: waiting up to \d+ s for ZooKeeper .*\n", re.MULTILINE)
KT = (sys.executable, "-m", "kafkatool")


def on_terminal(*args: str, **environment: str) -> str:
    """Return what ``kt`` writes to a terminal, but for the note that it waits, which a busy machine makes it write."""
    ours, theirs = pty.openpty()
    env = {**{k: v for k, v in os.environ.items() if k != "NO_COLOR"}, "TERM": "xterm", "COLUMNS": "60", **environment}
    process = subprocess.Popen([*KT, *args], stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    shown = b""
    try:
        while block := os.read(ours, 65536):
            shown += block
    except OSError:
        pass  # Linux says so when the other end is closed
    finally:
        os.close(ours)
    process.wait(60)
    return WAITING.sub("", shown.decode())


@pytest.mark.spec("COM-2")
def test_colour_is_for_terminals_alone_and_the_text_is_the_same(zk: ZooKeeper, zk_connect: str) -> None:
    make_orders(zk)
    describe = ("topics", "describe", "--zookeeper", zk_connect)
    shown = on_terminal(*describe)
    yellow = [line for line in shown.splitlines() if COLOUR.search(line)]
    assert len(yellow) == 1 and "\x1b[33m\tTopic: orders\tPartition: 1\t" in yellow[0]  # 2 of 3 in sync
    piped = subprocess.run([*KT, *describe], capture_output=True, text=True, check=True, timeout=60)
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines() == piped.stdout.splitlines() and "\x1b" not in piped.stdout
    assert "\x1b" not in on_terminal(*describe, NO_COLOR="1")
    assert "\x1b" not in on_terminal(*describe, TERM="dumb")


@pytest.mark.spec("COM-2", "COM-3X")
def test_an_error_is_red_on_a_terminal_and_plain_in_a_pipe(zk_connect: str) -> None:
    wrong = ("topics", "list", "--zookeeper", f"{zk_connect}/nowhere")
    shown = on_terminal(*wrong)
    assert shown.startswith("\x1b[31mkt: ZooKeeper at ")
    piped = subprocess.run([*KT, *wrong], capture_output=True, text=True, check=False, timeout=60)
    assert piped.returncode == 1 and piped.stderr.startswith("kt: ZooKeeper at ") and "\x1b" not in piped.stderr
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines() == WAITING.sub("", piped.stderr).splitlines()
