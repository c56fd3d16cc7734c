"""What ``kt migrate check`` prints of a phase: the next step, and the way back."""

import pytest

from kafkatool.commands.migrate.check import _answer
from kafkatool.core.operations.migration.phases import Phase
from kafkatool.core.operations.migration.reading import Evidence
from tests.core.operations.migration.evidence import BEGUN, BY_KRAFT, LOADED, evidence


@pytest.mark.spec("ADM-103")
@pytest.mark.parametrize(
    ("phase", "found", "forward", "back"),
    [
        (Phase.NONE, evidence(), "start a quorum of KRaft controllers", "nothing has begun"),
        (
            *(Phase.WAITING, evidence(migration=BEGUN), "restart each broker that has not"),
            "stop the controllers, delete /migration, restart the brokers without the migration's settings",
        ),
        (
            *(Phase.LOADING, evidence(migration=BEGUN, controller=BY_KRAFT), "wait: the controller copies"),
            "stop the controllers, delete /controller and /migration, restart the brokers without",
        ),
        (
            *(Phase.HYBRID, evidence(migration=LOADED, controller=BY_KRAFT), "restart the brokers one by one as KRaft"),
            "restart the KRaft brokers as ZooKeeper brokers; stop the controllers; delete /controller and /migration",
        ),
        (
            Phase.DUAL_WRITE_OR_FINALIZED,
            *(evidence(migration=LOADED, controller=BY_KRAFT, registered=()), "finalize: restart the controllers"),
            "After finalizing there is no way back",
        ),
        (
            *(Phase.ROLLED_BACK, evidence(migration=LOADED), "delete /migration before the next attempt"),
            "the cluster is back on ZooKeeper",
        ),
        (
            *(Phase.INCONSISTENT, evidence(controller=BY_KRAFT), "find out what happened before any further step"),
            "not told: no phase fits",
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, Phase) else "",
)
def test_each_phase_tells_its_next_step_and_the_way_back(
    phase: Phase, found: Evidence, forward: str, back: str
) -> None:
    answer = _answer(found, ())
    first, ahead, behind = answer.lines
    assert first.startswith(f"phase: {phase} (")
    assert ahead.startswith("next: ") and forward in ahead
    assert behind.startswith("way back: ") and back in behind
    rows = {item["id"]: item for item in answer.items}
    assert [f"next: {rows['next']['remedy']}", f"way back: {rows['back']['remedy']}"] == [ahead, behind]
    assert {rows["next"]["severity"], rows["back"]["severity"]} == {"note"}
