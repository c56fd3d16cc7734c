"""What is kept of batches that were refused: the lowest sequence of each producer's newest epoch, of not too many."""

import pytest

from kafkatool.broker.replication.leading import refused_batches
from kafkatool.broker.replication.leading.refused_batches import NO_SEQUENCE, RefusedBatches
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.records.batches import TRANSACTIONAL, BatchHeader, read_header
from tests.broker.storage.batch_builders import batch

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def of(sequence: int, *, epoch: int = 1, producer: int = 7) -> BatchHeader:
    header = read_header(batch(attributes=TRANSACTIONAL, producer=(producer, epoch, sequence)))
    assert header is not None
    return header


@pytest.mark.spec("TXN-76")
def test_the_lowest_sequence_of_the_newest_epoch_counts_for_that_epoch_and_partition() -> None:
    refused = RefusedBatches()
    for header in (of(9, epoch=0), of(5), of(4), of(6), of(0, epoch=0)):
        refused.note(TP, header)
    assert refused.lowest(TP, of(8)) == 4
    others = [(TP, of(8, epoch=0)), (TP, of(8, epoch=2)), (TP, of(8, producer=8)), (OTHER, of(8))]
    assert {refused.lowest(*one) for one in others} == {NO_SEQUENCE}


@pytest.mark.spec("TXN-76")
def test_what_is_written_and_the_oldest_of_too_many_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_batches, "_KEPT", 2)
    refused = RefusedBatches()
    for producer in (1, 2, 1, 3):
        refused.note(TP, of(5, producer=producer))
    assert [refused.lowest(TP, of(6, producer=producer)) for producer in (1, 2, 3)] == [5, NO_SEQUENCE, 5]
    refused.forget(TP, 1)
    refused.forget(TP, 4)
    assert [refused.lowest(TP, of(6, producer=producer)) for producer in (1, 3)] == [NO_SEQUENCE, 5]


@pytest.mark.spec("TXN-76")
def test_an_hour_after_a_sequence_was_refused_last_the_log_alone_tells() -> None:
    now = 0.0
    refused = RefusedBatches(lambda: now)
    refused.note(TP, of(4))
    now = 1800.0
    refused.note(TP, of(4))
    now = 3600.0
    refused.note(TP, of(5))  # refused as 4 was
    now = 1800.0 + 3599
    assert refused.lowest(TP, of(6)) == 4
    now += 1
    assert refused.lowest(TP, of(6)) == NO_SEQUENCE
