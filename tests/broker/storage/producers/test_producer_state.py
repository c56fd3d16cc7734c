from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatool.broker.storage.batches.append_error import AppendError
from kafkatool.broker.storage.producers.producer_snapshot import (
    delete_snapshots,
    read_snapshot,
    snapshots,
    write_snapshot,
)
from kafkatool.broker.storage.producers.producer_state import ProducedBatch, ProducerEntry, ProducerState
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import BatchHeader, read_header
from tests.broker.storage.batch_builders import batch
from tests.broker.storage.full_disk import files_up_to

_MAX = 2**31 - 1


def _header(sequence: int, *, epoch: int = 0, count: int = 1, producer: int = 9, attributes: int = 0) -> BatchHeader:
    found = read_header(batch(count, producer=(producer, epoch, sequence), attributes=attributes))
    assert found is not None
    return found


def _state(*sequences: int, epoch: int = 0, count: int = 1) -> ProducerState:
    state = ProducerState()
    for number, sequence in enumerate(sequences):
        state.record(_header(sequence, epoch=epoch, count=count), 100 + number * count, 1000)
    return state


def _code(state: ProducerState, header: BatchHeader) -> ErrorCode:
    with pytest.raises(AppendError) as caught:
        state.check(header)
    return caught.value.code


@pytest.mark.spec("BRK-91")
def test_each_of_the_last_five_batches_is_known_again_and_no_older_one() -> None:
    state = _state(*range(0, 14, 2), count=2)
    for number in range(2, 7):
        assert state.check(_header(number * 2, count=2)) == ProducedBatch(number * 2 + 1, 100 + number * 2 + 1, 1, 1000)
    assert _code(state, _header(2, count=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.spec("BRK-91")
def test_next_sequence_is_taken_and_a_gap_or_partial_repeat_refused() -> None:
    state = _state(0, count=3)
    assert state.check(_header(3)) is None
    assert _code(state, _header(4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert _code(state, _header(0, count=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert _code(state, _header(1, count=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "only its end is the same"


@pytest.mark.spec("BRK-91")
def test_after_the_largest_sequence_comes_zero_also_inside_a_batch() -> None:
    assert _state(_MAX).check(_header(0)) is None
    state = _state(_MAX - 1, count=4)  # sequences max-1, max, 0, 1
    assert state.check(_header(2)) is None
    assert state.check(_header(_MAX - 1, count=4)) is not None
    last = state.entries[9].batches[-1]
    assert (last.last_sequence, last.offset_delta) == (1, 3), "so that it began with max-1"


@pytest.mark.spec("BRK-91")
def test_old_epoch_is_fenced_and_a_new_one_begins_at_zero() -> None:
    state = _state(0, epoch=3)
    assert _code(state, _header(1, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert state.check(_header(0, epoch=4)) is None
    assert _code(state, _header(1, epoch=4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.spec("BRK-91")
def test_unknown_producer_must_begin_at_zero() -> None:
    assert ProducerState().check(_header(0)) is None
    assert _code(ProducerState(), _header(5)) is ErrorCode.UNKNOWN_PRODUCER_ID


@pytest.mark.spec("BRK-91")
def test_with_only_a_marker_left_the_sequence_is_unknown() -> None:
    state = ProducerState()
    state.restore(9, ProducerEntry(0))
    assert _code(state, _header(5)) is ErrorCode.UNKNOWN_PRODUCER_ID
    assert state.check(_header(0)) is None


def test_idle_producers_are_forgotten_but_none_in_a_transaction() -> None:
    state = _state(0)
    state.record(_header(0, producer=10, attributes=0x10), 200, 1000)
    state.expire(1001)
    assert list(state.entries) == [10]


@pytest.mark.spec("BRK-107", "TXN-63")
def test_nothing_at_or_after_an_open_transaction_is_stable_until_its_end_is_replicated() -> None:
    state = ProducerState()
    state.record(_header(0, attributes=0x10), 50, 1000)
    assert state.last_stable_offset(80) == 50
    assert state.end_transaction(_header(-1), 60, 1) == 50
    assert state.last_stable_offset(60) == 50
    assert state.last_stable_offset(61) == 61


class _Looked(set[int]):
    """Open transactions; whoever ends one is looked at by a reader in the midst of it."""

    def __init__(self, state: ProducerState, high_watermark: int) -> None:
        super().__init__({state.first_open(-1)})
        self.seen: list[int] = []
        self._state, self._high_watermark = state, high_watermark

    def discard(self, start: object) -> None:
        super().discard(start)
        self.seen.append(self._state.last_stable_offset(self._high_watermark))


@pytest.mark.spec("TXN-63", "BRK-107")
def test_a_reader_in_the_midst_of_an_end_does_not_see_it_ended() -> None:
    """Its records would be given out before the log's index says that they are aborted."""
    state = ProducerState()
    state.record(_header(0, attributes=0x10), 50, 1000)
    state._open = looked = _Looked(state, 60)  # noqa: SLF001  # readers hold no lock
    state.end_transaction(_header(-1), 60, 1)
    assert looked.seen == [50]


@pytest.mark.spec("TXN-63")
def test_two_readers_may_forget_the_same_end() -> None:
    state = ProducerState()
    state.record(_header(0, attributes=0x10), 50, 1000)
    state.end_transaction(_header(-1), 60, 1)
    ended: dict[int, int] = state._ended  # noqa: SLF001  # readers hold no lock

    class Open(set[int]):
        """Looked at first; then another reader forgets the end."""

        def __iter__(self) -> Iterator[int]:
            ended.clear()
            return super().__iter__()

    state._open = Open()  # noqa: SLF001
    assert state.last_stable_offset(61) == 61


_entries = st.dictionaries(
    st.integers(0, 2**62),
    st.builds(
        ProducerEntry,
        st.integers(0, 32767),
        st.lists(
            st.builds(ProducedBatch, st.integers(0, _MAX), st.integers(0), st.integers(0, 9), st.just(5)), max_size=1
        ),
        st.integers(-1, 9),
        st.none() | st.integers(0, 99),
    ),
    max_size=4,
)


@pytest.mark.spec("BRK-139")
@settings(deadline=None)
@given(_entries.filter(lambda found: all(b.last_offset < 2**62 for e in found.values() for b in e.batches)))
def test_snapshot_brings_back_every_producer(
    tmp_path_factory: pytest.TempPathFactory, entries: dict[int, ProducerEntry]
) -> None:
    directory = tmp_path_factory.mktemp("snapshot")
    state = ProducerState()
    state.entries, state.end_offset = entries, 42
    write_snapshot(directory, state)
    again = read_snapshot(directory / "00000000000000000042.snapshot")
    assert again is not None
    assert again.end_offset == 42
    assert {
        k: (v.epoch, list(v.batches), v.coordinator_epoch, v.transaction_start) for k, v in again.entries.items()
    } == {k: (v.epoch, list(v.batches), v.coordinator_epoch, v.transaction_start) for k, v in entries.items()}


@pytest.mark.spec("BRK-139")
def test_damaged_snapshot_is_not_believed(tmp_path: Path) -> None:
    write_snapshot(tmp_path, _state(0))
    (path,) = snapshots(tmp_path)
    good = path.read_bytes()
    for at in range(len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :])
        assert read_snapshot(path) is None, at
        path.write_bytes(good[:at])
        assert read_snapshot(path) is None, at


@pytest.mark.spec("BRK-139", "BRK-146")
def test_a_snapshot_for_which_the_disk_has_no_room_is_not_put_in_place(tmp_path: Path) -> None:
    with files_up_to(30), pytest.raises(OSError):
        write_snapshot(tmp_path, _state(0))
    assert snapshots(tmp_path) == []


def test_snapshots_outside_the_wanted_range_are_removed(tmp_path: Path) -> None:
    for offset in (5, 10, 15):
        state = ProducerState()
        state.end_offset = offset
        write_snapshot(tmp_path, state)
    delete_snapshots(tmp_path, below=6, above=14)
    assert [p.name for p in tmp_path.iterdir()] == ["00000000000000000010.snapshot"]
