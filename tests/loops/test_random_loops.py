"""A short run of loops under faults; the long one is scripts/loop-run."""

import itertools
import math
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat import real_kafka
from tests.histories.nemesis import OurStage
from tests.loops.loop import differences
from tests.loops.mixed_stage import MixedStage
from tests.loops.run import CLIENTS, loops, our_stage, play

VERSION = "2.8.2"
_SEED = int(os.environ.get("KAFKATOOL_LOOP_SEED", "1108"))
_STEPS = int(os.environ.get("KAFKATOOL_LOOP_STEPS", "4"))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[OurStage]:
    made = our_stage(tmp_path / "cluster")
    try:
        yield made
    finally:
        made.down()


@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(1800)
@pytest.mark.spec("TXN-108")
def test_each_record_is_copied_once_whatever_goes_wrong_with_brokers_and_loops(stage: OurStage, tmp_path: Path) -> None:
    print(f"seed {_SEED}")
    plan = itertools.islice(stage.plan(_SEED), _STEPS)
    with loops(stage, CLIENTS, tmp_path) as copying:
        assert len(copying) >= 3
        play(stage, stage.proxies, copying, _SEED, plan, math.inf)
    stage.check_logs()


@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(1800)
@pytest.mark.spec("TXN-109")
def test_each_record_is_copied_once_whichever_broker_comes_back_as_ours_or_as_kafkas(tmp_path: Path) -> None:
    real_kafka.require(VERSION)
    print(f"seed {_SEED}")
    stage = MixedStage(VERSION, tmp_path / "cluster")
    try:
        with loops(stage, CLIENTS, tmp_path) as copying:
            assert len(copying) >= 3
            play(stage, (), copying, _SEED, itertools.islice(stage.plan(_SEED), _STEPS), math.inf)
    finally:
        stage.down()


def test_what_is_copied_again_or_never_or_out_of_order_is_told() -> None:
    came = {0: [b"1", b"2", b"3"]}
    assert differences(came, {0: [b"1", b"2", b"3"]}) == []
    assert differences(came, {0: [b"1", b"2", b"3", b"2"]}) == ["partition 0: 1 copied again, the first [('2', 1)]"]
    assert differences(came, {0: [b"1", b"3"]}) == ["partition 0: 1 copied never, the first [('2', None)]"]
    assert differences(came, {0: [b"1", b"3", b"2"]}) == ["partition 0 is out of order from its record 1 on"]
