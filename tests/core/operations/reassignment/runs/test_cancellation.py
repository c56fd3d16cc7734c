"""A plan called off, over a real ZooKeeper; the controller is played by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from kafkatool.core.client.access import PLAINTEXT_ACCESS
from kafkatool.core.errors import RefusedError
from kafkatool.core.operations.reassignment import events, throttles
from kafkatool.core.operations.reassignment.runs.cancellation import Cancellation, CancelTerms
from kafkatool.core.operations.reassignment.runs.saved_run import RunFiles, RunState
from kafkatool.core.operations.reassignment.submission import prepare
from kafkatool.core.planner.plan_files import Moves, dashed
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigZnode, ReassignmentZnode
from tests.core.operations.reassignment.plans import NINE, config, plan
from tests.core.operations.reassignment.runs.test_run import GOAL, kinds, new_run, prepared_in_batches
from tests.core.zookeeper import cluster_nodes as nodes

BEFORE = plan({0: (1,), 1: (2,), 3: (1,)})
RATES = dict.fromkeys(throttles.RATES, "1111")


def cancellation(zk: ZooKeeper, files: RunFiles, before: Moves, terms: CancelTerms) -> Cancellation:
    return Cancellation(zk, GOAL, files, before, terms, name_of=dashed, on_progress=lambda _: None)


@pytest.mark.spec("RSN-37X")
def test_a_cancelled_run_goes_back_to_what_was_there(zk: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    run, files = new_run(zk, tmp_path)
    list(run.start(prepared_in_batches(zk), followed=True, timeout_s=0))
    nodes.reassign(zk)  # the first batch: nothing is under way
    other = cancellation(zk, files, BEFORE, CancelTerms(rollback=True))
    with nodes.controller(zk_connect, ReassignmentZnode.PATH, nodes.reassign):
        told = list(other.carry_out(PLAINTEXT_ACCESS, timeout_s=60))
    assert kinds(told) == ["Following", "Following", "ThrottleRemoved", "Cancelled"]
    assert isinstance(told[-1], events.Cancelled) and told[-1].ended and told[-1].found.completed
    assert nodes.assignment(zk, "t") == NINE and not files.state.exists()


@pytest.mark.spec("RSN-37X", "RSN-23X")
def test_a_cancel_that_was_refused_touches_no_throttle(zk: ZooKeeper, tmp_path: Path) -> None:
    """The state file is that of another plan, so the throttle of a way back has no place to be noted at."""
    run, files = new_run(zk, tmp_path)
    list(run.start(prepared_in_batches(zk), followed=True, timeout_s=0))
    nodes.reassign(zk)
    replace(RunState.read(files.state, GOAL), plan_sha256="0" * 64).write(files.state)
    found = config(zk, "brokers", "1")
    assert found and config(zk, "topics", "t")
    refused = cancellation(zk, files, BEFORE, CancelTerms(rollback=True, throttle=7000))
    with pytest.raises(RefusedError, match="belongs to another plan"):
        list(refused.carry_out(PLAINTEXT_ACCESS, timeout_s=60))
    assert list(refused.end_early()) == []
    assert config(zk, "brokers", "1") == found


@pytest.mark.spec("COM-6X", "RSN-37X")
@pytest.mark.parametrize("follows", [False, True], ids=["of-an-administrator", "of-another-plan"])
def test_rates_that_a_cancel_leaves_are_not_shown_as_dropped(zk: ZooKeeper, tmp_path: Path, follows: bool) -> None:
    """``follows``: a run is under way, beside another plan whose lists stand, and which moves."""
    files = RunFiles(str(tmp_path / "plan.json"))
    if follows:
        nodes.make_cluster(zk, topics={"t": NINE, "u": NINE})
        run, files = new_run(zk, tmp_path)
        list(run.start(prepare(zk, GOAL, throttle=5000), followed=True, timeout_s=0))
        nodes.reassign(zk)
        zk.create("/config/topics/u", ConfigZnode.encode({throttles.REPLICAS[0]: "0:1"}), make_parents=True)
        nodes.request(zk, next(iter(plan({0: (1,)}, "u"))), (1, 2))
    else:
        nodes.make_cluster(zk, topics={"t": NINE})
        zk.create("/config/brokers/1", ConfigZnode.encode(RATES), make_parents=True)
    found = config(zk, "brokers", "1")
    assert found
    cancelled = cancellation(zk, files, BEFORE, CancelTerms())
    shown = cancelled.plan(None).ops
    assert not any("/brokers/" in op.path and "/changes/" not in op.path for op in shown)
    told = kinds(list(cancelled.carry_out(PLAINTEXT_ACCESS, timeout_s=60)))
    assert ("ThrottleStays" in told) == follows and told[-1] == "Cancelled"
    assert config(zk, "brokers", "1") == found
