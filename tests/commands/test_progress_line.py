"""Progress of a long wait: rewritten in place on a terminal, now and then a whole line elsewhere."""

import time

import pytest

from kafkatool.commands.progress_line import INTERVAL_S, ProgressLine
from kafkatool.commands.reassign_execute import progress_text
from kafkatool.core.operations.reassignment import Progress


@pytest.mark.spec("RSN-33X")
def test_off_a_terminal_there_is_one_line_per_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    noted: list[str] = []
    line = ProgressLine(noted.append)
    for second in range(25):
        now[0] = 1000 + second
        line.show(f"after {second} s")
    line.end()
    assert noted == ["after 10 s", "after 20 s"]
    assert INTERVAL_S == 10


@pytest.mark.spec("RSN-33X")
def test_on_a_terminal_the_line_is_rewritten(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    line = ProgressLine(lambda _: pytest.fail("a whole line on a terminal"))
    line.show("1/10 partitions")
    line.show("10/10")
    line.end()
    assert capsys.readouterr() == ("", "\r1/10 partitions\r10/10          \n")


@pytest.mark.spec("RSN-33X")
@pytest.mark.parametrize(
    ("finished", "elapsed_s", "text"),
    [
        (0, 30, "batch 1/1: 0/8 partitions, 5/16 replicas in sync, ETA unknown"),
        (2, 30, "batch 1/1: 2/8 partitions, 5/16 replicas in sync, ETA 1:30"),
        (8, 30, "batch 1/1: 8/8 partitions, 5/16 replicas in sync, ETA 0:00"),
    ],
)
def test_the_rest_is_estimated_from_the_rate_so_far(finished: int, elapsed_s: float, text: str) -> None:
    assert progress_text(Progress(finished, 8, 5, 16, elapsed_s)) == text
