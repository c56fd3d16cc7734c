"""A run on our brokers while one of them is killed, and the same workload on real Kafka: nothing that is not allowed."""

import signal
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

import psutil
import pytest

from tests.compat import real_kafka
from tests.faults.schedule import Kind
from tests.histories import chores, last_phase, nemesis, upkeep
from tests.histories import run as histories_run
from tests.histories.analyser.verdict import Verdict
from tests.histories.chores import Chore
from tests.histories.clients.client import AIOKAFKA, KAFKA_PYTHON, Cell
from tests.histories.clients.values import topic_of
from tests.histories.frames.doors import Doors
from tests.histories.frames.record import Record, read_frames
from tests.histories.history import NEVER, OK, Operation, Process, read_file
from tests.histories.kept.plan import WORKERS
from tests.histories.matrix import broker_options, unsafe
from tests.histories.run import run
from tests.waiting import eventually

READERS = range(1_000_000, 2_000_000)  # who reads everything at the end
HARDWARE = [("power cut all", True), ("slow disk", False), ("failing disk", False), ("clock", False)]
"""Each with whether brokers sync each batch."""
OTHERS: list[Kind] = [
    "tear", "stop", "freeze", "zookeeper", "expire", "link", "isolate", "disk", "depose", "kill all", "starve", "outrun",
]  # fmt: skip


def _judged(
    stage: nemesis.Stage,
    directory: Path,
    cell: Cell,
    steps: int,
    kinds: Sequence[str] = ("kill",),
    operations: int = 400,
    seed: int = 7,
) -> Verdict:
    file = directory / "history.jsonl"
    try:
        return run(stage, file, seed, cell, operations=operations, steps=steps, pause_s=1, kinds=kinds, least=steps)
    finally:
        stage.down()


def _check_last_phase(directory: Path) -> None:
    last_phase.check(directory / "history.jsonl", WORKERS)


def _is_amid_operations(directory: Path) -> bool:
    """Tell whether workers did operations before, while and after the faults were there."""
    history = read_file(directory / "history.jsonl")
    begins, *_, ends = [line["index"] for line in history.faults if "upkeep" not in str(line["value"]["step"])]
    acknowledged = [o for o in history.operations if o.type == OK and o.sends]
    return all(
        any(first < o.invoked and o.completed < last for o in acknowledged)
        for first, last in ((-1, begins), (begins, ends), (ends, NEVER))
    )


def _begun(directory: Path) -> list[str]:
    faults = read_file(directory / "history.jsonl").faults
    begun = [told for line in faults if line["value"]["begins"] for told in line["value"]["faults"]]
    return [told.rpartition(" ")[0] for told in begun if "history-" not in told]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.spec("HIS-8")
def test_clients_that_stand_still_for_good_end_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As all of a process do when one has locked itself up with the interpreter in hand."""
    monkeypatch.setattr(histories_run, "LEAVING_S", 10)
    stage = nemesis.OurStage(tmp_path / "cluster")
    stopped = threading.Thread(target=_stop_one, args=(tmp_path / "history.jsonl",))
    stopped.start()
    verdict = _judged(stage, tmp_path, Cell("subscribe", "idempotent"), 0, operations=600)
    stopped.join()
    assert "clients of 1 of 4 processes stood still" in capsys.readouterr().out
    assert not verdict.unallowed, list(verdict.lines())
    assert verdict.too_little is None


def _stop_one(history: Path) -> None:
    """Stop one of the processes of clients when they are at work."""
    eventually(lambda: history.exists() and history.read_bytes().count(b"\n") > 200, "operations", 120)
    of_clients = [child for child in psutil.Process().children() if "spawn_main" in " ".join(child.cmdline())]
    of_clients[0].send_signal(signal.SIGSTOP)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.spec("HIS-43", "HIS-45", "HIS-47", "BRK-60", "BRK-137")
def test_a_broker_whose_power_fails_loses_nothing_that_the_others_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_sync, settle = [], nemesis.settle

    def noted(stage: nemesis.Stage) -> None:
        settle(stage)
        in_sync.append((tmp_path / "history.jsonl").read_bytes().count(b"\n") - 1)

    monkeypatch.setattr(nemesis, "settle", noted)
    stage = nemesis.OurStage(tmp_path / "cluster")
    verdict = _judged(stage, tmp_path, Cell("assign", "idempotent"), 1, ["power cut"], 100)
    assert not verdict.unallowed, list(verdict.lines())
    assert verdict.too_little is None
    assert _begun(tmp_path) == ["power cut"]
    _check_last_phase(tmp_path)
    operations = read_file(tmp_path / "history.jsonl").operations
    first = next(o for o in operations if o.f == "assign" and o.process in READERS)
    assert in_sync[-1] <= first.invoked, "all replicas were in sync before"
    assert _is_amid_operations(tmp_path)


@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(("kind", "flushed"), HARDWARE)
@pytest.mark.spec("HIS-45", "HIS-47")
def test_neither_do_brokers_that_synced_each_batch_nor_those_whose_disk_or_clock_fails(
    tmp_path: Path, kind: str, flushed: bool
) -> None:
    stage = nemesis.OurStage(tmp_path / "cluster", flushed=flushed)
    verdict = _judged(stage, tmp_path, Cell("assign", "transactional"), 2, [kind])
    assert not verdict.unallowed, list(verdict.lines())
    assert verdict.too_little is None
    assert _begun(tmp_path) == [kind, kind]
    _check_last_phase(tmp_path)


@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.spec("HIS-45")
def test_nobody_sees_a_wrong_whatever_else_befalls_brokers_and_wires(tmp_path: Path, kind: Kind) -> None:
    stage = nemesis.OurStage(tmp_path / "cluster")
    verdict = _judged(stage, tmp_path, Cell("assign", "transactional"), 2, [kind])
    if stage.notes:
        pytest.skip(f"{stage.notes[0]}")
    assert not verdict.unallowed, list(verdict.lines())
    assert verdict.too_little is None
    assert _begun(tmp_path) == [kind, kind]
    _check_last_phase(tmp_path)


@pytest.mark.spec("HIS-45")
def test_of_each_kind_of_fault_there_is_a_run() -> None:
    assert {"kill", "power cut", *(kind for kind, _ in HARDWARE), *OTHERS} == set(get_args(Kind))


@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("cell", "steps"),
    # Who subscribes while a coordinator goes may meet a fault of librdkafka's own: docs/histories.md.
    [
        (Cell("assign", "idempotent"), 1),
        (Cell("subscribe", "transactional"), 0),
        (Cell("assign", "idempotent", client=KAFKA_PYTHON), 1),  # it keeps fetch sessions
        (Cell("subscribe", "idempotent", client=AIOKAFKA), 1),
    ],
    ids=[
        "a leader is killed",
        "transactions",
        "a leader of kafka-python's is killed",
        "a leader of aiokafka's is killed",
    ],
)
@pytest.mark.spec("HIS-8", "HIS-9", "HIS-12", "HIS-42", "HIS-43", "HIS-45")
def test_clients_of_our_brokers_see_nothing_that_is_not_allowed(tmp_path: Path, cell: Cell, steps: int) -> None:
    verdict = _judged(nemesis.OurStage(tmp_path / "cluster"), tmp_path, cell, steps)
    assert not verdict.unallowed, list(verdict.lines())
    assert verdict.too_little is None
    _check_last_phase(tmp_path)
    assert _begun(tmp_path) == ["kill"] * steps
    assert steps == 0 or _is_amid_operations(tmp_path)


@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(1500)
@pytest.mark.spec("HIS-45", "HIS-46")
def test_requests_come_late_and_answers_are_lost_and_all_is_written_down(tmp_path: Path) -> None:
    doors = Doors(Record(tmp_path / "frames.jsonl"))
    stage = nemesis.OurStage(tmp_path / "cluster", doors)
    verdict = _judged(stage, tmp_path, Cell("assign", "transactional"), 0, operations=1500)
    assert not verdict.unallowed, list(verdict.lines())
    assert verdict.too_little is None
    told = [line["value"] for line in read_file(tmp_path / "history.jsonl").faults]
    assert [step["begins"] for step in told] == [True, False] * (len(told) // 2)
    assert any(step.get("met") for step in told)
    assert {line["what"] for line in read_frames(tmp_path / "frames.jsonl")} > {"asked", "answered"}


@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(1500)
@pytest.mark.spec("HIS-13", "HIS-43")
def test_the_same_clients_on_real_kafka_show_nothing_either(tmp_path: Path) -> None:
    real_kafka.require("2.8.2")
    stage = nemesis.KafkaStage("2.8.2", tmp_path / "cluster")
    verdict = _judged(stage, tmp_path, Cell("assign", "idempotent"), 0)
    assert not verdict.unallowed, list(verdict.lines())
    assert verdict.too_little is None
    _check_last_phase(tmp_path)


@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(1500)
@pytest.mark.spec("HIS-41", "HIS-44", "HIS-45", "HIS-30")
def test_topics_are_compacted_while_clients_send_and_read_and_none_of_them_sees_a_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "chores_of", lambda _, number, **__: [Chore("force compaction", 0.1, number)])
    cell = Cell("subscribe", "transactional", cleanup="compact")
    stage = nemesis.OurStage(tmp_path / "cluster", options=broker_options(cell))
    verdict = _judged(stage, tmp_path, cell, 1, operations=3000)
    assert not verdict.unallowed, list(verdict.lines())
    assert verdict.too_little is None
    _check_last_phase(tmp_path)
    operations = read_file(tmp_path / "history.jsonl").operations
    sent = {send.value for o in operations if o.type == OK for send in o.sends}
    read = {v for o in operations if o.process in READERS for p in o.polls for _, vs in p.runs.values() for v in vs}
    assert any(value < 0 for value in sent), "tombstones"
    assert any(value is not None and value < 0 for value in read), "which are read"
    assert len(sent - read) > len(sent) / 4, "what was replaced is gone"
    assert _chores_done(tmp_path) == {"force compaction"}


@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(1500)
@pytest.mark.spec("HIS-41", "HIS-12", "HIS-45")
def test_topics_are_made_moved_elected_grown_and_lose_records_while_clients_are_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of each topic one, so that all are done before the run is over.
    kinds: list[chores.Kind] = ["elect", "delete group", "reassign", "delete", "add partitions"]
    monkeypatch.setattr(upkeep, "chores_of", lambda _, number, **__: [Chore(kinds[number % len(kinds)], 0.1, number)])
    create, amid = nemesis.create_topic, set[str]()

    def noted(stage: nemesis.Stage, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        if (tmp_path / "history.jsonl").read_bytes().count(b"\n") > 1:
            amid.add(topic)
        create(stage, topic, partitions, configs)

    monkeypatch.setattr(nemesis, "create_topic", noted)
    stage = nemesis.OurStage(tmp_path / "cluster")
    verdict = _judged(stage, tmp_path, Cell("subscribe", "idempotent"), 1, operations=5000)
    assert not verdict.unallowed, list(verdict.lines())
    assert verdict.too_little is None
    _check_last_phase(tmp_path)
    assert _chores_done(tmp_path) == set(kinds)
    operations = _operations(tmp_path)
    deleted = [o for o in operations if o.f == "delete" and o.type == OK]
    assert any(max(o.value.values()) > 0 for o in deleted)
    sent = {topic_of(send.key) for o in operations for send in o.sends if send.outcome == OK}
    assert amid & sent, "topics that were made meanwhile are sent to"
    assigned, polled = _strangers(operations)
    assert assigned and polled, "who subscribes to a topic for one of its keys gets the other one, too"


def _operations(directory: Path) -> list[Operation]:
    return read_file(directory / "history.jsonl").operations


def _chores_done(directory: Path) -> set[str]:
    lines = [line["value"] for line in read_file(directory / "history.jsonl").faults]
    done = [line["faults"][0] for line in lines if "upkeep" in str(line["step"]) and not line["begins"]]
    return {told.rpartition(" ")[0] for told in done}


def _strangers(operations: Sequence[Operation]) -> tuple[set[int], set[int]]:
    """Return the keys that were assigned to processes that had never named them, and those of which such ones polled."""
    named: dict[Process, set[int]] = defaultdict(set)
    assigned, polled = set[int](), set[int]()
    for operation in operations:
        if operation.f == "subscribe":
            named[operation.process].update(operation.value)
        elif operation.group is not None:
            told = {key for event in operation.rebalance if event.what == "assigned" for key in event.keys}
            assigned |= told - named[operation.process]
            polled |= {key for poll in operation.polls for key in poll.runs} - named[operation.process]
    return assigned, polled


@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(3600)
@pytest.mark.spec("HIS-44", "HIS-50", "HIS-40")
def test_what_may_lose_on_purpose_what_was_acknowledged_is_seen_to_do_so_in_one_of_five_runs(tmp_path: Path) -> None:
    """Else the analyser is blind. Nothing of it is anybody's fault."""
    cell, seen = unsafe(Cell("assign", "plain")), set[str]()
    for number in range(5):
        stage = nemesis.OurStage(tmp_path / f"cluster-{number}", options=broker_options(cell))
        verdict = _judged(stage, tmp_path, cell, 2, ["starve"], 1000, seed=7 + number)
        assert not verdict.unallowed, list(verdict.lines())
        seen |= verdict.kinds() & {"lost-write", "unseen", "inconsistent-offsets"}
        if seen:
            break
    assert seen
