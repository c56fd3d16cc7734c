"""What a fault leaves in the history: a line where it begins and one where it ends, whatever kind it is."""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from tests.faults.schedule import ALONE, TOGETHER, Fault, Kind, Step, steps, steps_of
from tests.faults.world import BROKERS, troubles_of
from tests.histories import nemesis
from tests.histories.analyser.notation import HEADER
from tests.histories.history import read_file
from tests.histories.writer import HistoryWriter


class Noted:
    """A stage that says when it was told to begin and to end."""

    def __init__(self, writer: HistoryWriter) -> None:
        self._writer = writer
        self.told: list[tuple[str, Step, int]] = []

    def begin(self, step: Step) -> None:
        self.told.append(("begin", step, self._writer.count))

    def end(self, step: Step) -> None:
        self.told.append(("end", step, self._writer.count))


def _each_kind() -> Iterator[Step]:
    for kind in get_args(Kind):
        yield next(steps_of(1, BROKERS, [kind]))
    yield next(step for step in steps(1, BROKERS) if len(step.faults) == 3)


@pytest.mark.spec("HIS-12", "HIS-45")
def test_each_kind_is_on_a_line_before_it_begins_and_on_one_after_it_has_ended(tmp_path: Path) -> None:
    drawn = [replace(step, seconds=0.0, settle=False) for step in _each_kind()]
    with HistoryWriter(tmp_path / "h", HEADER) as writer:
        stage = Noted(writer)
        for number, step in enumerate(drawn):
            nemesis.play(stage, step, number, writer)  # type: ignore[arg-type]
    assert stage.told == [(what, step, 2 * n + 1) for n, step in enumerate(drawn) for what in ("begin", "end")]
    faults = read_file(tmp_path / "h").faults
    assert {(line["process"], line["type"]) for line in faults} == {("nemesis", "info")}
    lines = [line["value"] for line in faults]
    assert [(line["step"], line["begins"]) for line in lines] == [
        (n, b) for n in range(len(drawn)) for b in (True, False)
    ]
    for number, (step, *both) in enumerate(zip(drawn, lines[::2], lines[1::2], strict=True)):
        assert [line["faults"] for line in both] == [[_named(fault) for fault in step.faults]] * 2
        is_dark = any(fault.kind == "power cut all" for fault in step.faults)
        assert [line.get("down") for line in both] == [None, 2 * number + 1 if is_dark else None]


@pytest.mark.spec("HIS-40", "HIS-45")
def test_when_the_power_of_all_was_cut_is_told_by_the_line_before_which_it_was(tmp_path: Path) -> None:
    """What clients were told while it was being done may be lost; what they were told later may not."""
    with HistoryWriter(tmp_path / "h", HEADER) as writer:

        class Busy(Noted):
            def begin(self, step: Step) -> None:
                writer.write(7, "invoke", "poll", [["poll"]])

            def end(self, step: Step) -> None:
                writer.write(7, "ok", "poll", [["poll", {}]])

        step = replace(next(steps_of(1, BROKERS, ["power cut all"])), seconds=0.0, settle=False)
        nemesis.play(Busy(writer), step, 0, writer)  # type: ignore[arg-type]
    begins, ends = read_file(tmp_path / "h").faults
    assert (begins["index"], ends["index"], ends["value"]["down"]) == (0, 3, 2)


def _named(fault: Fault) -> str:
    """Return how a line calls it: by its broker, or by both where it befalls two."""
    ends = f"{fault.broker}-{fault.other}" if fault.kind in ("link", "outrun") else f"{fault.broker}"
    return f"{fault.kind} {ends}"


@pytest.mark.spec("HIS-12")
def test_a_fault_that_is_not_mended_has_no_line_of_an_end(tmp_path: Path) -> None:
    class Unmended(Noted):
        def end(self, step: Step) -> None:
            raise OSError("not mended")

    step = next(steps_of(1, BROKERS, ["kill"]))
    with HistoryWriter(tmp_path / "h", HEADER) as writer, pytest.raises(OSError, match="not mended"):
        nemesis.play(Unmended(writer), replace(step, seconds=0.0), 0, writer)  # type: ignore[arg-type]
    assert [line["value"]["begins"] for line in read_file(tmp_path / "h").faults] == [True]


@pytest.mark.spec("HIS-45")
def test_kinds_come_as_often_as_the_table_says_and_on_every_broker() -> None:
    drawn = [step.faults for step in itertools.islice(steps(3, BROKERS), 6000)]
    alone = [faults[0] for faults in drawn if faults[0].kind in ALONE]
    assert 0.27 < len(alone) / len(drawn) < 0.33
    for table, faults in ((ALONE, alone), (TOGETHER, [f[0] for f in drawn if f[0].kind not in ALONE])):
        kinds = Counter(fault.kind for fault in faults)
        for kind, weight in table.items():
            assert abs(kinds[kind] / len(faults) - weight / sum(table.values())) < 0.03, kind
        assert all(0.3 < sum(fault.broker == broker for fault in faults) / len(faults) < 0.37 for broker in BROKERS)
    assert {len(faults) for faults in drawn} == {1, 2, 3}


def _variants(kind: Kind) -> Sequence[Fault]:
    return [step.faults[0] for step in itertools.islice(steps_of(5, BROKERS, [kind]), 400)]


@pytest.mark.spec("HIS-45", "HIS-47")
def test_clocks_leap_an_hour_at_most_either_way_or_drift_or_both() -> None:
    drawn = _variants("clock")
    assert {fault.variant for fault in drawn} == {"leap", "drift", "leap and drift"}
    for fault in drawn:
        troubles = troubles_of(fault)
        assert (troubles.leap_s != 0, troubles.drift != 0) == ("leap" in fault.variant, "drift" in fault.variant)
        assert -3600 <= troubles.leap_s <= 3600 and troubles._replace(leap_s=0, drift=0, since_s=0) == (0,) * 5 + ("",)
        again = troubles_of(fault)
        assert (again.leap_s, again.drift) == (troubles.leap_s, troubles.drift), "a function of the seed"
    leaps = [troubles_of(fault).leap_s for fault in drawn]
    drifts = [troubles_of(fault).drift for fault in drawn]
    assert min(leaps) < -3000 and max(leaps) > 3000
    assert min(drifts) < -0.1 and max(drifts) > 0.1


@pytest.mark.spec("HIS-45", "HIS-47")
def test_syncs_take_a_tenth_of_a_second_to_five_and_disks_fail_from_a_write_that_is_drawn() -> None:
    syncs = [troubles_of(fault).sync_s for fault in _variants("slow disk")]
    assert min(syncs) >= 0.1 and max(syncs) <= 5.0 and min(syncs) < 0.3 and max(syncs) > 4.5
    failing = _variants("failing disk")
    assert {fault.variant for fault in failing} == {"any", "a partition's"}
    writes = {troubles_of(fault).failing_write for fault in failing}
    assert min(writes) >= 1 and len(writes) > 50


@pytest.mark.spec("HIS-45")
def test_kills_and_freezes_also_outlast_the_session() -> None:
    for kind in ("kill", "power cut", "freeze"):
        assert "expired" in {fault.variant for fault in _variants(kind)}
    assert {fault.variant for fault in _variants("freeze")} == {"short", "expired", "expired, clients cut off"}
    assert {fault.variant for fault in _variants("starve")} == {"frozen", "cut"}
    assert {fault.variant for fault in _variants("link")} == {"silent", "cut", "silent one way", "cut one way"}
