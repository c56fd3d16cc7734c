"""What ``kt migrate check`` prints of a phase: the next step, and the way back."""

import pytest

from kafkatool.commands.migrate.check import _answer
from kafkatool.core.operations.migration.conditions import blocked, check
from kafkatool.core.operations.migration.phases import STEPS, Phase
from kafkatool.core.operations.migration.reading import Evidence
from tests.core.operations.migration.evidence import (
    BEGUN,
    BY_KRAFT,
    LOADED,
    NOBODY,
    UNHEARD,
    controllers_say,
    evidence,
)


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
            Phase.DUAL_WRITE,
            evidence(migration=LOADED, controller=BY_KRAFT, registered=(), controllers=controllers_say()),
            "finalize: restart the controllers without",
            "restart the brokers as ZooKeeper brokers with the migration's settings; stop the controllers",
        ),
        (
            Phase.FINALIZED,
            evidence(migration=LOADED, registered=(), controllers=controllers_say(migrates=(False,))),
            "switch ZooKeeper off",
            "none: what has changed since is not in ZooKeeper",
        ),
        (
            *(Phase.ROLLING_BACK, evidence(migration=LOADED, controller=BY_KRAFT, controllers=NOBODY)),
            "see that every controller process is stopped; then delete /controller and /migration, so that a broker becomes",
            "start the controllers again, and the migration goes on",
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


@pytest.mark.spec("ADM-103", "ADM-99")
def test_the_way_back_goes_on_with_its_own_step_though_the_controllers_are_unknown() -> None:
    def told(found: Evidence) -> tuple[bool, str]:
        rows = check(found)
        steps = {item["id"]: item["remedy"] for item in _answer(found, rows).items}
        return blocked(rows, strict=False), steps["next"]

    on_its_way_back = evidence(migration=LOADED, controller=BY_KRAFT, controllers=NOBODY)
    assert told(on_its_way_back) == (True, STEPS[Phase.ROLLING_BACK].forward)
    offline = evidence(migration=LOADED, controller=BY_KRAFT, controllers=NOBODY, leader=-1)
    assert told(offline) == (True, "remove what blocks, and check again: offline")
    unheard = evidence(migration=LOADED, controller=BY_KRAFT, controllers=UNHEARD)
    assert told(unheard) == (True, "remove what blocks, and check again: controllers")
