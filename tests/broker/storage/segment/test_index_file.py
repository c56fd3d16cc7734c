import struct
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatool.broker.storage.segment import index_file
from kafkatool.broker.storage.segment.index_file import OFFSET_ENTRY, TIME_ENTRY, IndexFile

_rising = st.lists(st.integers(1, 1000), max_size=40, unique=True).map(sorted)


def _index(path: Path) -> IndexFile:
    return IndexFile(path, OFFSET_ENTRY, threading.RLock())


@pytest.mark.spec("BRK-133")
@settings(deadline=None)
@given(_rising, st.integers(0, 45), st.integers(2, 9), st.booleans())
def test_look_up_finds_what_a_scan_finds_wherever_the_entries_are(
    tmp_path_factory: pytest.TempPathFactory, keys: list[int], release_after: int, spill: int, reopen: bool
) -> None:
    path = tmp_path_factory.mktemp("index") / "i"
    index = _index(path)
    index.create()
    entries = [(key, key * 10) for key in keys]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_file, "_SPILL_ENTRIES", spill)
        for number, entry in enumerate(entries):
            if number == release_after:
                index.release()
            index.append(*entry)
        if reopen:
            index.write()
            index = _index(path)
            assert index.open()
        for key in range(0, 1002, 7):
            assert index.floor(key) == max((e for e in entries if e[0] <= key), default=None)
        assert index.count == len(entries)
        assert index.last() == (entries[-1] if entries else None)


@pytest.mark.spec("BRK-142")
@settings(deadline=None)
@given(_rising, st.integers(0, 1000), st.integers(0, 10_000), st.booleans())
def test_truncation_keeps_exactly_the_entries_below_both_limits(
    tmp_path_factory: pytest.TempPathFactory, keys: list[int], key_limit: int, value_limit: int, on_disk: bool
) -> None:
    path = tmp_path_factory.mktemp("index") / "i"
    index = _index(path)
    index.create()
    for key in keys:
        index.append(key, key * 10)
    if on_disk:
        index.release()
    index.truncate(key_limit=key_limit, value_limit=value_limit)
    index.write()
    kept = [key for key in keys if key < key_limit and key * 10 < value_limit]
    assert path.read_bytes() == b"".join(OFFSET_ENTRY.pack(key, key * 10) for key in kept)


@pytest.mark.spec("BRK-134")
@pytest.mark.parametrize("layout", [OFFSET_ENTRY, TIME_ENTRY], ids=["offsets", "times"])
def test_zeros_of_a_preallocated_file_are_not_entries_and_go_with_the_next_write(
    tmp_path: Path, layout: struct.Struct
) -> None:
    data = layout.pack(7, 256) + layout.pack(9, 512)
    (tmp_path / "i").write_bytes(data + bytes(layout.size * 100))
    index = IndexFile(tmp_path / "i", layout, threading.RLock())
    assert index.open()
    assert index.last() == (9, 512)
    assert index.count == 2
    index.append(11, 768)
    index.write()
    assert (tmp_path / "i").read_bytes() == data + layout.pack(11, 768)


@pytest.mark.spec("BRK-134")
def test_an_own_file_is_as_long_as_its_entries(tmp_path: Path) -> None:
    index = _index(tmp_path / "i")
    index.create()
    index.write()
    assert (tmp_path / "i").stat().st_size == 0
    index.append(7, 256)
    index.write()
    assert (tmp_path / "i").stat().st_size == OFFSET_ENTRY.size


@pytest.mark.spec("BRK-135")
def test_an_index_that_is_missing_torn_or_below_its_base_must_be_rebuilt(tmp_path: Path) -> None:
    assert not _index(tmp_path / "missing").open()
    (tmp_path / "torn").write_bytes(bytes(9))
    assert not _index(tmp_path / "torn").open()
    for entry, good in (((-1, 100), False), ((0, 100), True), ((5, -1), False)):
        (tmp_path / "below").write_bytes(OFFSET_ENTRY.pack(*entry))
        assert _index(tmp_path / "below").open() is good
    for entry, good in (((1000, -1), False), ((-2, 0), False), ((-1, 0), True)):
        (tmp_path / "below").write_bytes(TIME_ENTRY.pack(*entry))
        assert IndexFile(tmp_path / "below", TIME_ENTRY, threading.RLock()).open() is good


def test_time_entries_hold_64_bit_times(tmp_path: Path) -> None:
    index = IndexFile(tmp_path / "i", TIME_ENTRY, threading.RLock())
    index.create()
    index.append(1_700_000_000_000, 3)
    index.release()
    assert index.floor(1_700_000_000_001) == (1_700_000_000_000, 3)
