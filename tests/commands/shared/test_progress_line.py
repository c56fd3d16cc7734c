"""Progress of a long wait: rewritten in place on a terminal, now and then a whole line elsewhere."""

import io
import re
import sys
import time

import pytest

from kafkatool.commands.shared.progress_line import INTERVAL_S, ProgressLine
from kafkatool.commands.shared.run_progress import STILL_S, progress_text
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.reassignment.copy_progress import Copied
from kafkatool.core.operations.reassignment.following import Progress
from kafkatool.core.operations.reassignment.hindrances import Hindrances

ESCAPE = r"\x1b\[\??[0-9;]*[A-Za-z]"
GIB = 1024**3


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


class Terminal(io.StringIO):
    """A stderr of 50 columns."""

    def isatty(self) -> bool:
        return True


@pytest.mark.spec("RSN-33X")
def test_on_a_terminal_there_is_one_line_with_a_bar_however_narrow_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, before = Terminal(), sys.stdout
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    line = ProgressLine(lambda _: pytest.fail("a whole line on a terminal"))
    line.show("1/10 partitions, [t,0] first", 0.1)
    assert sys.stdout is before  # rich would take it
    line.show("10/10 partitions, and so much more to say that it must be cut", 1.0)
    line.end()
    shown = screen.getvalue()
    *_, last = (text for text in re.split(r"[\r\n]+", re.sub(ESCAPE, "", shown)) if text)
    assert len(last) == 50 and last.startswith("━" * 10 + " 10/10 partitions, and so") and last.endswith("…")
    assert not re.search(r"\x1b\[[0-9;]*3[0-9;]*m", shown)  # no colour


@pytest.mark.spec("RSN-33X")
@pytest.mark.parametrize(
    ("finished", "elapsed_s", "text"),
    [
        (0, 30, "0/8 partitions, 5/16 in sync, ETA unknown"),
        (2, 30, "2/8 partitions, 5/16 in sync, ETA 1:30"),
        (2, 3000, "2/8 partitions, 5/16 in sync, ETA 2:30:00"),
        (8, 30, "8/8 partitions, 5/16 in sync, ETA 0:00"),
    ],
)
def test_without_bytes_the_rest_is_estimated_from_partitions_so_far(finished: int, elapsed_s: float, text: str) -> None:
    assert progress_text(Progress(finished, 8, 5, 16, elapsed_s), None) == text


@pytest.mark.spec("RSN-33X")
def test_where_brokers_tell_sizes_the_rest_is_estimated_from_bytes() -> None:
    progress = Progress(0, 8, 5, 16, 30.0, batch=2, batches=3, left=frozenset({TopicPartition("t", 0)}))
    at_first = progress_text(progress, Copied(512, 2 * GIB, None))
    assert at_first == "batch 2/3, 0/8 partitions, 5/16 in sync, 0.0 of 2.0 GiB, ETA unknown"
    later = progress_text(progress, Copied(GIB, 2 * GIB, GIB / 64))
    assert later == "batch 2/3, 0/8 partitions, 5/16 in sync, 1.0 of 2.0 GiB, 16 MiB/s, ETA 1:04"
    assert len(later) < 80
    stalled = progress_text(progress, Copied(GIB, 2 * GIB, 0.0))
    assert stalled.endswith("1.0 of 2.0 GiB, 0 B/s, ETA unknown")
    outrun = progress_text(progress, Copied(GIB, 2 * GIB, 1024.0, 2048.0))
    assert outrun.endswith("1.0 KiB/s, ETA unknown: 2.0 KiB/s are written meanwhile")


@pytest.mark.spec("RSN-33X")
def test_while_nothing_moves_there_is_no_eta_but_how_long_and_what_is_in_the_way() -> None:
    left = frozenset({TopicPartition("t", 0)})
    still = Copied(GIB, 2 * GIB, GIB / 64, still_s=STILL_S)
    assert progress_text(Progress(2, 8, 0, 0, 30.0, left=left), still).endswith("16 MiB/s, no bytes moved for 10 s")
    bursts = still._replace(still_s=STILL_S - 0.1)
    assert progress_text(Progress(2, 8, 0, 0, 30.0, left=left), bursts).endswith("16 MiB/s, ETA 1:04")
    found = Hindrances((3,), ((1, 0), (2, 1023)), (TopicPartition("t", 0),))
    in_the_way = (
        "2/8 partitions, waiting for broker 3, which is down, without leader: t-0, the throttle of broker 1 is 0 B/s, "
        "the throttle of broker 2 is 1023 B/s, "
    )
    hindered = Progress(2, 8, 0, 0, 30.0, left=left, hindrances=found)
    assert progress_text(hindered, None) == f"{in_the_way}ETA unknown"
    assert progress_text(hindered, bursts).endswith("16 MiB/s, ETA unknown"), "others move, and it does not end"
    others = Hindrances(others=tuple(TopicPartition("u", p) for p in range(5)))
    waits = progress_text(Progress(2, 8, 0, 0, 30.0, left=left, hindrances=others), None)
    assert waits == "2/8 partitions, waiting for what others move: u-0, u-1, u-2 and 2 more, ETA unknown"
