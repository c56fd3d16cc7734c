"""A planted use: a commit that comes late, in the middle of its producer's next transaction, and what the analyser says.

Neither Kafka to 3.9 nor ours can tell it from that transaction's own (docs/known-faults.md). So a proxy that is too mild
would show nothing here.
"""

from pathlib import Path

import pytest

from tests.compat import real_kafka
from tests.histories.analyser.verdict import Verdict, judge
from tests.histories.clients.client import Cell
from tests.histories.clients.values import PARTITIONS
from tests.histories.final import read_everything
from tests.histories.frames.record import Record, read_frames
from tests.histories.frames.rules import Call, Late, Rule
from tests.histories.frames.stage import Kafkas, Ours, Stage
from tests.histories.frames.stories import Tale
from tests.histories.frames.sweep import header
from tests.histories.history import FAIL, OK, History, read_file
from tests.histories.workload import ABORT, COMMIT
from tests.histories.writer import HistoryWriter

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
_PATIENCE_S = 240


def _play(stage: Stage, directory: Path, *, late: bool) -> tuple[Verdict, Path]:
    """Play it, again where clients had to wait too long for it to be what it is meant to be; return where frames are."""
    for attempt in range(5):
        place = directory / f"{attempt}"
        place.mkdir(parents=True)
        history = _commit_and_abort(stage, place, late=late)
        ended = [operation for operation in history.operations if operation.f == "txn"]
        sent = [send.outcome for operation in ended for send in operation.sends]
        if [operation.type for operation in ended] == [OK, FAIL] and sent == [OK, OK]:
            return judge(history), place / "frames.jsonl"
    raise AssertionError("a transaction did not end as it was to")


def _commit_and_abort(stage: Stage, directory: Path, *, late: bool) -> History:
    """Commit a transaction and take the next one back; ``late``: the commit is delivered again just before that."""
    cell = Cell("assign", "transactional")
    file, record = directory / "history.jsonl", Record(directory / "frames.jsonl")
    stage.doors.record = record
    rules = stage.doors.rules
    with HistoryWriter(file, header(stage, cell, late_end_txn=late)) as writer:
        tale = Tale(next(stage.numbers), stage.bootstrap, cell, writer, record)
        tale.transaction_timeout_ms = 120_000
        stage.make_topics(*tale.topics, partitions=PARTITIONS)
        key = tale.sources[0]
        if late:
            held = rules.add(Rule("EndTxn", Late(), client="tom", body={"committed": True}))

            def deliver(_: int) -> None:
                held.released.set()
                held.done.wait(_PATIENCE_S)

            rules.add(Rule("EndTxn", Call("before", deliver), client="tom", body={"committed": False}))
        with tale.actor("tom") as tom:
            tom.write(key, COMMIT)  # by a repeat, over another connection
            tom.write(key, ABORT)
        rules.clear()
        read_everything(stage.bootstrap, cell, writer, tale.sources + tale.outputs, [])
    record.close()
    return read_file(file)


@pytest.mark.spec("HIS-46", "HIS-22")
def test_a_late_commit_shows_an_aborted_value_and_without_it_nothing_is_found(tmp_path: Path) -> None:
    with Ours(tmp_path / "cluster") as stage:
        prompt, _ = _play(stage, tmp_path / "prompt", late=False)
        assert not prompt.anomalies and prompt.too_little is None, list(prompt.lines())
        late, frames = _play(stage, tmp_path / "late", late=True)
    assert [anomaly.kind for anomaly in late.unallowed] == ["G1a"], list(late.lines())
    ends = [line for line in read_frames(frames) if line["api"] == "EndTxn"]
    done = [(line["what"], line.get("committed")) for line in ends]
    assert done[:2] == [("asked", True), ("deserted", None)]
    assert done.index(("delivered", None)) > done.index(("asked", False))  # in the next transaction
    assert ("lost", None) in done


@pytest.mark.slowest
@pytest.mark.spec("HIS-46", "HIS-40")
def test_kafka_shows_it_too_and_there_it_is_known(tmp_path: Path) -> None:
    real_kafka.require("2.8.2")
    with Kafkas("2.8.2", tmp_path / "kafka") as stage:
        prompt, _ = _play(stage, tmp_path / "prompt", late=False)
        assert not prompt.anomalies and prompt.too_little is None, list(prompt.lines())
        late, _ = _play(stage, tmp_path / "late", late=True)
    assert "G1a" in late.kinds()
    assert not late.unallowed, list(late.lines())
