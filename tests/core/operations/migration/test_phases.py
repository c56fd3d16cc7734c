"""The phases of a migration, told by /controller, /migration and who is registered."""

import pytest

from kafkatool.core.operations.migration.phases import STEPS, Phase, phase_of, told
from kafkatool.core.operations.migration.reading import Evidence
from kafkatool.core.zookeeper.znodes import ControllerZnode, KRaftControllerZnode, MigrationZnode
from tests.core.operations.migration.evidence import (
    BEGUN,
    BY_KRAFT,
    LOADED,
    NOBODY,
    UNHEARD,
    controllers_say,
    evidence,
)

pytestmark = pytest.mark.spec("ADM-100")
FINAL = controllers_say(migrates=(False, False))
ONE_IS_SILENT = controllers_say(migrates=(False, False), silent=(3002,))
UNTOLD = controllers_say(migrates=(False, False), leader=None, untold="not permitted")


@pytest.mark.parametrize(
    ("found", "phase"),
    [
        (evidence(), Phase.NONE),
        (evidence(controller=None), Phase.NONE),
        (evidence(migration=BEGUN), Phase.WAITING),
        (evidence(migration=BEGUN, controller=None), Phase.INCONSISTENT),
        (evidence(migration=BEGUN, controller=BY_KRAFT), Phase.LOADING),
        (evidence(migration=MigrationZnode(3000, 1, 0, 1), controller=BY_KRAFT), Phase.LOADING),
        (evidence(migration=LOADED, controller=BY_KRAFT), Phase.HYBRID),
        (evidence(migration=LOADED, controller=BY_KRAFT, registered=(2,)), Phase.HYBRID),
        (evidence(migration=LOADED, controller=BY_KRAFT, registered=()), Phase.DUAL_WRITE_OR_FINALIZED),
        (
            evidence(migration=LOADED, controller=BY_KRAFT, registered=(), controllers=controllers_say()),
            Phase.DUAL_WRITE,
        ),
        (
            evidence(migration=LOADED, controller=BY_KRAFT, registered=(), controllers=NOBODY),
            Phase.DUAL_WRITE_OR_FINALIZED,
        ),
        (
            evidence(
                migration=LOADED,
                controller=BY_KRAFT,
                registered=(),
                controllers=controllers_say(migrates=(True, False)),
            ),
            Phase.DUAL_WRITE,
        ),
        (evidence(migration=LOADED, controller=BY_KRAFT, registered=(), controllers=FINAL), Phase.FINALIZED),
        (evidence(migration=LOADED, controller=None, registered=(), controllers=FINAL), Phase.FINALIZED),
        (
            evidence(migration=LOADED, controller=BY_KRAFT, registered=(), controllers=ONE_IS_SILENT),
            Phase.DUAL_WRITE_OR_FINALIZED,
        ),
        (
            evidence(migration=LOADED, controller=BY_KRAFT, registered=(), controllers=UNTOLD),
            Phase.DUAL_WRITE_OR_FINALIZED,
        ),
        (evidence(migration=LOADED, controller=BY_KRAFT, registered=(2,), controllers=FINAL), Phase.HYBRID),
        (evidence(migration=LOADED, controller=BY_KRAFT, controllers=controllers_say()), Phase.HYBRID),
        (evidence(migration=LOADED, controller=BY_KRAFT, controllers=NOBODY), Phase.ROLLING_BACK),
        (evidence(migration=LOADED, controller=BY_KRAFT, controllers=UNHEARD), Phase.HYBRID),
        (evidence(migration=LOADED, controller=BY_KRAFT, registered=(2,), controllers=NOBODY), Phase.HYBRID),
        (evidence(migration=BEGUN, controller=BY_KRAFT, controllers=NOBODY), Phase.LOADING),
        (evidence(migration=LOADED, controllers=NOBODY), Phase.ROLLED_BACK),
        (evidence(migration=LOADED), Phase.ROLLED_BACK),
        (evidence(migration=LOADED, controller=None), Phase.ROLLED_BACK),
        (evidence(migration=None, controller=BY_KRAFT), Phase.INCONSISTENT),
        (evidence(migration=None, registered=(2,)), Phase.INCONSISTENT),
        (evidence(migration=BEGUN, controller=BY_KRAFT, registered=(2,)), Phase.INCONSISTENT),
    ],
    ids=[
        *(
            "none",
            "none-without-controller",
            "waiting",
            "waiting-without-controller",
            "loading",
            "loading-at-0",
            "hybrid",
        ),
        *("hybrid-half", "dual-write-or-finalized", "dual-write", "dual-write-or-finalized-none-answers"),
        *(
            "finalizing",
            "finalized",
            "finalized-controller-gone",
            "finalized-as-far-as-heard",
            "finalized-as-far-as-known",
            "finalized-too-early",
            "hybrid-asked",
            "rolling-back",
            "hybrid-none-heard",
        ),
        *("hybrid-none-answers", "loading-none-answers", "rolled-back-none-answers"),
        *("rolled-back", "rolled-back-without-controller", "no-migration", "kraft-alone"),
        "kraft-before-load",
    ],
)
def test_the_first_phase_that_fits_is_told(found: Evidence, phase: Phase) -> None:
    assert phase_of(found) is phase


@pytest.mark.spec("ADM-103")
def test_a_later_kafkas_keys_are_told() -> None:
    assert set(STEPS) == set(Phase)
    later = evidence(migration=MigrationZnode(3000, 1, 99, 1, ("state",)), controller=BY_KRAFT)
    assert phase_of(later) is Phase.INCONSISTENT and "unknown keys state" in told(later)


def test_what_the_controllers_said_is_part_of_the_evidence() -> None:
    assert "controllers" not in told(evidence())
    asked = evidence(controllers=controllers_say(migrates=(True, False)))
    assert told(asked).endswith("; 1 of 2 controllers set to migrate")
    assert told(evidence(controllers=NOBODY)).endswith("; no controller answers: c:1: refused")


def test_the_nodes_are_read_as_kafka_writes_them() -> None:
    by_kraft = b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":7}'
    assert KRaftControllerZnode.decode(by_kraft) == KRaftControllerZnode(3000, 7)
    assert KRaftControllerZnode.decode(ControllerZnode.encode(1, 0)) == KRaftControllerZnode(1, None)
    of_a_broker = b'{"version":2,"brokerid":1,"timestamp":"1","kraftControllerEpoch":-1}'
    assert KRaftControllerZnode.decode(of_a_broker) == KRaftControllerZnode(1, None)
    node = b'{"version":0,"kraft_metadata_offset":9,"kraft_controller_id":1,"kraft_metadata_epoch":2,'
    node += b'"kraft_controller_epoch":3,"x":1}'
    assert MigrationZnode.decode(node) == MigrationZnode(1, 3, 9, 2, ("x",))
