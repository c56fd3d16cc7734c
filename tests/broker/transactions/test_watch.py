"""Counters of transactions, and the ends that take too long."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkatool.broker.transactions.states import TransactionState
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.broker.transactions.stage import DATA, HERE, OWN, THERE, Mortal, Stage, stage

NONE = ErrorCode.NONE
MINUTE_MS = 60_000


@pytest.fixture
def on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with stage(tmp_path, monkeypatch) as made:
        yield made


@pytest.mark.spec("TXN-23")
def test_each_transaction_counts_once_by_how_it_ended(on: Stage) -> None:
    _, mine = on.init("id")
    for committed in (True, True, False):
        assert (on.add("id", mine, HERE), on.add("id", mine, THERE), on.add("id", mine, THERE)) == (NONE,) * 3
        assert (on.end("id", mine, committed=committed), on.end("id", mine, committed=committed)) == (NONE, NONE)
    assert on.add("id", mine, *DATA) is NONE
    on.passed_ms += MINUTE_MS + 1
    on.coordinator.time_out()
    on.settle()
    watch = on.coordinator.watch
    assert (watch.begun, watch.committed, watch.aborted, watch.timed_out) == (4, 2, 2, 1)
    on.succeed(Mortal())
    assert on.coordinator.watch.begun == 0, "what another coordinator counted is not its own"


@pytest.mark.spec("TXN-23")
def test_an_end_that_takes_more_than_five_minutes_is_told_of_once_a_minute(
    on: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    _, mine = on.init("slow")
    gone = TopicPartition("gone", 0)
    assert on.add("slow", mine, HERE, gone) is NONE
    on.coordinator.end("slow", mine, committed=True, done=lambda _: None)

    def lines_after(ms: int) -> list[str]:
        on.passed_ms += ms
        caplog.clear()
        on.coordinator.time_out()
        return [r.message for r in caplog.records if "slow" in r.message and "without a marker" in r.message]

    watch = on.coordinator.watch
    assert lines_after(5 * MINUTE_MS) == [] and watch.oldest_prepare_ms == {OWN.partition: 5 * MINUTE_MS}
    (line,) = lines_after(1)
    for told in ("slow", str(mine.producer_id), f"epoch {mine.epoch}", TransactionState.PREPARE_COMMIT.label):
        assert told in line
    assert line.endswith(f"without a marker in {gone}")
    assert lines_after(MINUTE_MS - 1) == []
    assert len(lines_after(1)) == 1
    on.deleted.add(gone)
    on.settle()
    assert lines_after(10 * MINUTE_MS) == [] and watch.oldest_prepare_ms == {}
