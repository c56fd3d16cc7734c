"""Steps of the clock: nothing expires early by them, and all that is due expires once the clock has stood."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkatool.broker.coordination.clock import CoordinatorClock
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.broker.groups.test_coordinator import A, B, Stage, join, owned_group

MINUTE, HOUR, DAY, YEAR = 60_000.0, 3_600_000.0, 86_400_000.0, 365 * 86_400_000.0
RETENTION = 7 * DAY


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path / "data")
    yield made
    made.close()


@pytest.mark.spec("GRP-54")
@pytest.mark.parametrize("seed", range(200))
def test_whatever_steps_the_clock_makes_nothing_expires_before_its_time(seed: int) -> None:
    dice = random.Random(seed)
    now, error = 1000 * YEAR, dice.choice([0.0, -50 * YEAR, 10 * YEAR])
    clock = CoordinatorClock(lambda: now, lambda: now + error)
    stamps: list[tuple[float, float]] = []  # when it truly was, what the clock showed
    for _ in range(3000):
        now += dice.choice([MINUTE, 10 * MINUTE, 3 * HOUR])
        if dice.random() < 0.01:
            error = dice.choice([0.0, dice.uniform(-YEAR, YEAR), dice.uniform(-DAY, DAY)])
        if dice.random() < 0.1:
            stamps.append((now, clock.to_wall_ms(now)))
        due_at = clock.expiry_ms(RETENTION) - RETENTION
        for stamped, stamp in stamps:
            assert stamp > due_at or now - stamped >= RETENTION - 2 * MINUTE
        stamps = [(stamped, stamp) for stamped, stamp in stamps if stamp > due_at]
    error = 0.0
    late = [stamp for stamped, stamp in stamps if stamp <= now]  # others are of a time that is to come
    for _ in range(15 * 24):
        now += HOUR
        due_at = clock.expiry_ms(RETENTION) - RETENTION
    assert all(stamp <= due_at for stamp in late)


@pytest.mark.spec("GRP-54", "GRP-55")
def test_a_clock_wrong_at_the_start_costs_no_offsets(stage: Stage) -> None:
    stage.lead()
    stage.commit({A: 1}, at_ms=stage.wall_ms())
    stage.stepped_ms = 10 * YEAR
    stage.restart()
    stage.coordinator.expire()
    assert stage.fetch() == (ErrorCode.NONE, {A: 1}), "loaded, and ten years old by this clock"
    stage.stepped_ms = 0
    stage.expire_after(days=6)
    assert stage.fetch() == (ErrorCode.NONE, {A: 1})
    stage.expire_after(days=2)
    assert stage.fetch() == (ErrorCode.NONE, {})


@pytest.mark.spec("GRP-54", "GRP-55")
def test_what_was_stamped_by_a_clock_that_was_behind_stays_its_time(stage: Stage) -> None:
    stage.stepped_ms = -30 * YEAR
    stage.restart()
    member = join(stage).member_id
    assert stage.commit({A: 1}, member=member, generation=1)[A] is ErrorCode.REBALANCE_IN_PROGRESS
    stage.leave(member)
    stage.commit({A: 1}, at_ms=stage.wall_ms())
    stage.commit({B: 2}, group="simple", at_ms=stage.wall_ms())
    stage.stepped_ms = 0
    stage.expire_after(days=6)
    assert stage.fetch() == (ErrorCode.NONE, {A: 1})
    assert stage.fetch("simple") == (ErrorCode.NONE, {B: 2})
    stage.expire_after(days=2)
    assert (stage.fetch()[1], stage.fetch("simple")[1]) == ({}, {})


@pytest.mark.spec("GRP-11", "GRP-54")
def test_records_have_the_wall_clock_as_it_goes_when_they_are_written(stage: Stage) -> None:
    stage.stepped_ms = -30 * YEAR
    stage.restart()
    stage.stepped_ms = 0
    stage.leave(join(stage).member_id)
    stage.restart()
    stamp = owned_group(stage).group.state_timestamp_ms
    assert stamp is not None and abs(stamp - stage.wall_ms()) < HOUR, "for the next coordinator to reckon with"


@pytest.mark.spec("GRP-43", "GRP-44")
@pytest.mark.parametrize("step", [10 * YEAR, -10 * YEAR])
def test_no_session_ends_by_a_step_of_the_clock(stage: Stage, step: float) -> None:
    stage.lead()
    member = join(stage).member_id
    stage.stepped_ms = step
    group = owned_group(stage).group
    deadline = group.next_deadline_ms()
    assert deadline is not None and 0 < deadline - stage.coordinator.now_ms() <= 300_000
    assert group.on_time(stage.coordinator.now_ms()) == []
    assert stage.coordinator.heartbeat("g", member, None, 1) is ErrorCode.NONE
