"""Keys and history of a run, asked for over a wire: the same as where they are, and by each for itself."""

import threading
import time
from pathlib import Path

import pytest

from tests.histories.analyser.notation import HEADER
from tests.histories.crew import awaited_until
from tests.histories.desk import Desk, Seat
from tests.histories.history import OK, read_file
from tests.histories.workload import Keys
from tests.histories.writer import HistoryWriter
from tests.waiting import eventually


@pytest.mark.spec("HIS-5", "HIS-6", "HIS-41")
def test_who_sits_at_the_desk_draws_keys_and_writes_lines_as_who_has_them(tmp_path: Path) -> None:
    keys, same = Keys(), Keys()
    with HistoryWriter(tmp_path / "far", HEADER) as writer, HistoryWriter(tmp_path / "near", HEADER) as near:
        (end,) = Desk(keys, writer, [9]).seats.values()
        seat = Seat(end)
        for places in ((7,), (7, 0, 7, 3), ()):
            assert seat.draw(*places) == same.draw(*places)
        assert seat.values(3) == same.values(3)
        for _ in range(same.limit):
            assert seat.draw(5) == same.draw(5)
        assert seat.active() == same.active() != list(range(8))
        event = {"what": "assigned", "keys": [3], "generation": 4, "time": 9, "part": 0}
        for index, (kind, told) in enumerate((("invoke", [["poll"]]), (OK, [["poll", {3: [(5, 7), (6, None)]}]]))):
            more = {"group": "g", "member": "m", "rebalance": [event]} if kind == OK else {"group": "g"}
            assert seat.write(4, kind, "poll", told, **more) == near.write(4, kind, "poll", told, **more) == index
        before = writer.now()
        assert before <= seat.now() <= writer.now()
        end.close()
    (far,), (close,) = (read_file(tmp_path / name).operations for name in ("far", "near"))
    assert (far.polls, far.rebalance, far.group, far.member) == (
        close.polls,
        close.rebalance,
        close.group,
        close.member,
    )
    assert far.polls[0].runs == {3: ((5, 6), (7, None))}


def test_one_leaves_and_the_others_go_on_until_nobody_is_left(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "h", HEADER) as writer:
        there = set(threading.enumerate())
        desk = Desk(Keys(), writer, [4, 9])
        first, second = desk.seats.values()
        (answering,) = set(threading.enumerate()) - there
        assert Seat(first).values(1) == [1]
        first.close()
        assert Seat(second).values(2) == [2, 3]
        eventually(lambda: desk.asked_at(4) is None, "the first to have left")
        assert answering.is_alive()
        before = time.monotonic()
        assert (desk.asked_at(9) or 0) <= before
        Seat(second).values(1)
        assert before <= (desk.asked_at(9) or 0) <= time.monotonic()
        second.close()
        answering.join(120)
        assert not answering.is_alive()
        assert desk.asked_at(9) is None


@pytest.mark.spec("HIS-8")
def test_who_has_stood_still_for_long_when_the_run_ends_is_waited_for_no_longer_than_others_would_have_been() -> None:
    patience = awaited_until([], 0.0, 150.0)
    assert awaited_until([100.0, 300.0], 310.0, 150.0) == 300 + 150 + patience
    assert awaited_until([100.0], 310.0, 150.0) < 310, "for what it began a process has no more time than that"
    assert awaited_until([], 310.0, 150.0) == 310 + patience, "all have left: it ends by itself"
