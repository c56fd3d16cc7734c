"""Histories of brokers under the product's controller: the same for the same seed, clean, and not blind."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kafkatool.broker.controller import failover
from kafkatool.broker.controller.deciding import leader_selection
from kafkatool.core.model.values import LeaderAndIsr
from kafkatool.core.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataRequest
from kafkatool.core.zookeeper.znodes import IsrChangeZnode
from tests.broker.replication.world import Clock
from tests.histories.analyser.verdict import CLEAN
from tests.histories.power.disk import Disk
from tests.histories.power.noting import Noting
from tests.histories.simulated.ruled.broker import RuledBroker
from tests.histories.simulated.ruled.realm import RuledRealm
from tests.histories.simulated.ruled.troubles import OWN_ASKED_FOR, OWN_KINDS
from tests.histories.simulated.simulation import (
    DISKS,
    RULED_KINDS,
    BrokenRuleError,
    Schedule,
    Simulation,
    StalledError,
    drawn,
    run,
)
from tests.paths import ROOT
from tests.simulation.server import Server, Writer

_OPERATIONS = 300


def ruled(seed: int, kinds: tuple[str, ...] | None = None, operations: int = _OPERATIONS) -> Schedule:
    return drawn(seed, operations, kinds, is_ruled=True)


def played(directory: Path, schedule: Schedule) -> RuledRealm:
    """Play a schedule and return what is left of the cluster."""
    (disks := directory / DISKS).mkdir(parents=True)
    disk, clock = Disk(disks), Clock()
    with Noting(disks, disk.take):
        simulation = Simulation(directory, schedule, disk, clock)
        simulation.play()
    assert isinstance(simulation.controller, RuledRealm)
    return simulation.controller


@pytest.mark.spec("HIS-48")
def test_the_same_schedule_gives_the_same_history_byte_for_byte(tmp_path: Path) -> None:
    for name in ("once", "again"):
        run(tmp_path / name, ruled(5))
    once, again = ((tmp_path / name / "history.jsonl").read_bytes() for name in ("once", "again"))
    assert once == again
    run(tmp_path / "written", replace(ruled(5), is_ruled=False, faults=()))
    assert (tmp_path / "written" / "history.jsonl").read_bytes() != once


@pytest.mark.slow
@pytest.mark.spec("HIS-48")
def test_no_order_of_a_set_shows_in_a_history(tmp_path: Path) -> None:
    for hashes in ("1", "2"):
        kept = ["--controller", "real", "--seeds", "5", "--operations", "200", "--keep", str(tmp_path / hashes)]
        environment = {**os.environ, "PYTHONHASHSEED": hashes}
        subprocess.run(
            [sys.executable, "-m", "tests.histories.simulated", *kept], cwd=ROOT, env=environment, check=True
        )
    one, other = ((tmp_path / hashes / "5" / "history.jsonl").read_bytes() for hashes in ("1", "2"))
    assert one == other


_ALONE = """
import sys, threading, time
from pathlib import Path
from tests.histories.simulated.simulation import drawn, run

def refuse(*_):
    raise AssertionError("nobody waits, and nobody else is at work")

def thrice(clock):
    return lambda: clock() * 3

for owner, name in ((threading.Thread, "start"), (threading.Condition, "wait"), (threading.Event, "wait")):
    setattr(owner, name, refuse)
for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter"):
    setattr(time, name, thrice(getattr(time, name)))
run(Path(sys.argv[1]), drawn(5, int(sys.argv[2]), is_ruled=True))
"""


@pytest.mark.slow
@pytest.mark.spec("HIS-48")
def test_a_run_has_one_thread_and_a_clock_of_its_own(tmp_path: Path) -> None:
    """In an interpreter of its own, as whatever else waits in this one would be refused as well."""
    run(tmp_path / "once", ruled(5))
    alone = [sys.executable, "-c", _ALONE, str(tmp_path / "again"), str(_OPERATIONS)]
    subprocess.run(alone, cwd=ROOT, check=True)
    once, again = ((tmp_path / name / "history.jsonl").read_bytes() for name in ("once", "again"))
    assert once == again


@pytest.mark.spec("HIS-48", "HIS-50")
@pytest.mark.parametrize("seed", range(1, 5))
def test_clients_see_nothing_that_is_not_allowed(tmp_path: Path, seed: int) -> None:
    verdict = run(tmp_path / "run", ruled(seed))
    assert verdict.exit_code == CLEAN, list(verdict.lines())


@pytest.mark.spec("HIS-45", "HIS-48")
@pytest.mark.parametrize("kind", [*OWN_KINDS, *OWN_ASKED_FOR])
def test_each_trouble_of_its_own_shows_nothing(tmp_path: Path, kind: str) -> None:
    verdict = run(tmp_path / "run", ruled(2, (kind,), 150))
    assert verdict.exit_code == CLEAN, list(verdict.lines())


@pytest.mark.spec("HIS-45", "HIS-48")
def test_a_schedule_has_every_kind_of_trouble() -> None:
    assert {fault.kind for seed in range(40) for fault in ruled(seed, operations=2000).faults} == set(RULED_KINDS)


@pytest.mark.slow
@pytest.mark.spec("HIS-48", "CTL-14", "CTL-35")
def test_controllers_come_and_go_and_their_orders_are_obeyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[type, int]] = []
    written: list[str] = []
    obey, note = RuledBroker.obey, Server.written

    def noted(self: RuledBroker, request):  # type: ignore[no-untyped-def]
        told.append((type(request.message), request.message.controller_id))
        return obey(self, request)

    def noted_write(self: Server, writer: Writer, op, before, after) -> None:  # type: ignore[no-untyped-def]
        if writer.part == "broker" and after is not None:
            written.append(op.path)
        note(self, writer, op, before, after)

    monkeypatch.setattr(RuledBroker, "obey", noted)
    monkeypatch.setattr(Server, "written", noted_write)
    realm = played(tmp_path / "run", ruled(3, ("ruler", "expire", "still", "exile", "isolate"), 2 * _OPERATIONS))
    assert realm.invariants.controller_epoch() > 3
    assert {kind for kind, _ in told} == {LeaderAndIsrRequest, UpdateMetadataRequest, StopReplicaRequest}
    assert len({controller for _, controller in told}) > 1
    assert any(path.endswith("/state") for path in written), "leaders change their in-sync sets"
    assert any(path.startswith(IsrChangeZnode.PREFIX) for path in written), "and tell of it"
    assert all(broker.life > 0 for broker in realm.brokers.values())
    assert max(realm.state(key)[0].controller_epoch for key in (0, 1, 2)) > 1


# --- what it is not blind to --------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.spec("HIS-48", "CTL-35")
def test_a_controller_that_has_brokers_lead_on_from_a_former_life_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next leader lost its power, and what clients know to be written, in a life whose end no controller saw."""

    def kinds(schedule: Schedule) -> set[str]:
        return {anomaly.kind for anomaly in run(tmp_path / "run", schedule).unallowed}

    schedules = [ruled(seed, ("relapse",)) for seed in range(1, 20)]
    with monkeypatch.context() as patch:
        patch.setattr(failover, "_bounced", lambda *_: {})
        patch.setattr("tests.simulation.invariants.Invariants._leads_anew", lambda *_: None)  # which says so at once
        caught = next(schedule for schedule in schedules if kinds(schedule) & {"lost-write", "inconsistent-offsets"})
    assert kinds(caught) == set()


@pytest.mark.slow
@pytest.mark.spec("HIS-48", "CTL-43")
def test_a_leader_from_outside_the_in_sync_set_breaks_a_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = leader_selection.elect_offline

    def careless(state: LeaderAndIsr, assigned, live, *, unclean_allowed):  # type: ignore[no-untyped-def]
        return real(state, assigned, live, unclean_allowed=unclean_allowed) and leader_selection.Choice(
            next(b for b in reversed(assigned) if b in live), tuple(b for b in assigned if b in live)
        )

    monkeypatch.setattr(leader_selection, "elect_offline", careless)

    def breaks(schedule: Schedule) -> bool:
        try:
            run(tmp_path / "run", schedule)
        except BrokenRuleError as e:
            return "ISR" in str(e)
        except StalledError:
            return False
        return False

    assert any(breaks(ruled(seed, ("kill", "isolate", "starve"))) for seed in range(1, 10))
