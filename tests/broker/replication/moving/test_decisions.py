"""What is decided about moves between log dirs."""

from pathlib import Path
from typing import Any

import pytest

from kafkatool.broker.replication.moving.decisions import Asked, Extent, Step, Verdict, judge, next_step, shared_end
from kafkatool.core.protocol.messages.error_codes import ErrorCode

A, B, C = Path("/a"), Path("/b"), Path("/c")


def asked(path: Path = B, **facts: Any) -> Asked:
    given: dict[str, Any] = {
        "is_log_dir": True,
        "fits_name": True,
        "live_dirs": [A, B, C],
        "some_offline": False,
        "found": ErrorCode.NONE,
        "now_in": A,
        "moves_to": None,
    }
    return Asked(path, **(given | facts))


@pytest.mark.spec("ADM-68")
@pytest.mark.parametrize(
    ("question", "verdict"),
    [
        (asked(), Verdict(ErrorCode.NONE, begin=True)),
        (asked(A), Verdict(ErrorCode.NONE)),
        (asked(B, moves_to=B), Verdict(ErrorCode.NONE)),
        (asked(A, moves_to=B), Verdict(ErrorCode.NONE, give_up=True)),
        (asked(C, moves_to=B), Verdict(ErrorCode.NONE, give_up=True, begin=True)),
        (asked(fits_name=False, is_log_dir=False), Verdict(ErrorCode.INVALID_TOPIC_EXCEPTION)),
        (asked(is_log_dir=False, found=ErrorCode.KAFKA_STORAGE_ERROR), Verdict(ErrorCode.LOG_DIR_NOT_FOUND)),
        (asked(B, live_dirs=[A, C], some_offline=True), Verdict(ErrorCode.KAFKA_STORAGE_ERROR)),
        (asked(found=ErrorCode.KAFKA_STORAGE_ERROR, now_in=None), Verdict(ErrorCode.KAFKA_STORAGE_ERROR)),
        (asked(some_offline=True), Verdict(ErrorCode.KAFKA_STORAGE_ERROR)),
        (asked(C, some_offline=True, moves_to=B), Verdict(ErrorCode.KAFKA_STORAGE_ERROR, give_up=True)),
        (asked(A, some_offline=True), Verdict(ErrorCode.NONE)),
        (asked(B, some_offline=True, moves_to=B), Verdict(ErrorCode.NONE)),
        (
            asked(found=ErrorCode.REPLICA_NOT_AVAILABLE, now_in=None),
            Verdict(ErrorCode.REPLICA_NOT_AVAILABLE, remember=True),
        ),
    ],
)
def test_each_partition_is_judged_in_the_order_of_kafkas_checks(question: Asked, verdict: Verdict) -> None:
    assert judge(question) == verdict


@pytest.mark.spec("ADM-69")
@pytest.mark.parametrize(
    ("log", "end", "copy", "copied", "shared"),
    [
        ([(0, 0)], 10, [(0, 0)], 4, 4),
        ([(0, 0)], 4, [(0, 0)], 10, 4),  # the log was cut, or lost its end
        ([(0, 0), (2, 6)], 9, [(0, 0)], 8, 6),  # cut at 6, then led anew
        ([(0, 0), (2, 6)], 9, [(0, 0), (1, 5)], 8, 5),
        ([(0, 0), (2, 6)], 9, [(0, 0), (2, 6)], 8, 8),
        ([(0, 0), (3, 10)], 10, [(0, 0)], 10, 10),  # an epoch without a record
        ([(2, 20)], 30, [(2, 12)], 25, 25),  # the log begins later by now
        ([(2, 20)], 30, [(1, 5)], 9, 0),
        ([], 9, [(0, 0)], 8, 0),  # formats without epochs: nothing tells
        ([(0, 0)], 9, [], 8, 0),
    ],
)
def test_what_a_copy_shares_with_its_log_is_told_by_their_epochs(
    log: list[tuple[int, int]], end: int, copy: list[tuple[int, int]], copied: int, shared: int
) -> None:
    assert shared_end(log, end, copy, copied) == shared


@pytest.mark.spec("ADM-69")
@pytest.mark.parametrize(
    ("copy", "cut", "near_end", "step"),
    [
        (Extent(0, 7), None, False, Step.COPY),
        (Extent(0, 7), None, True, Step.REPLACE),
        (Extent(0, 10), None, False, Step.REPLACE),
        (Extent(0, 10), 9, True, Step.CUT),
        (Extent(0, 11), None, True, Step.CUT),
        (Extent(0, 3), None, True, Step.START_OVER),
    ],
)
def test_the_next_step_of_a_move(copy: Extent, cut: int | None, near_end: bool, step: Step) -> None:
    assert next_step(Extent(5, 10), copy, cut, near_end=near_end) is step
