"""What does not fit into memory lies in a file, and is read as if it did."""

import resource
import shutil
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkatool.core.statelog.sources import spilling
from kafkatool.core.statelog.sources.spilling import in_order, kept

pairs = st.lists(st.tuples(st.integers(0, 9), st.integers()), max_size=60)


@pytest.mark.spec("SCL-22X")
@pytest.mark.parametrize("held", [1, 7, 1000])
@given(items=pairs)
def test_the_order_is_that_of_a_stable_sort_each_time_it_is_read(held: int, items: list[tuple[int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spilling, "MOST_HELD", held)
        patch.setattr(spilling, "BATCH", 3)
        for many, expected in (
            (in_order(items, itemgetter(0)), sorted(items, key=itemgetter(0))),
            (in_order(items), sorted(items)),
            (kept(items), items),
        ):
            assert len(many) == len(items)
            assert list(many) == expected
            assert list(zip(many, many, strict=True)) == [(item, item) for item in expected], "two readers at a time"


@pytest.mark.spec("SCL-22X")
def test_few_items_are_in_memory_and_no_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spilling, "MOST_HELD", 50)
    monkeypatch.setattr(spilling, "BATCH", 2)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/nowhere")
    most = 0

    def watched() -> Iterator[Item]:
        nonlocal most
        for number in range(2000):
            yield Item(-number)
            most = max(most, Item.alive)

    many = in_order(watched(), lambda item: item.number)
    assert [fd.stat().st_size > 0 for fd in open_below(tmp_path)] == [True], "where Spark has its workers write"
    for at, item in enumerate(many):
        assert item.number == at - 1999
        most = max(most, Item.alive)
    assert most < 200
    assert not list(tmp_path.iterdir())
    del many, item
    assert not open_below(tmp_path)


def test_of_several_disks_the_one_with_most_room_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = {"full": 10, "roomy": 30, "half": 20}
    for name in free:
        (tmp_path / name).mkdir()
    disks = ",".join(str(tmp_path / name) for name in (*free, "gone"))
    monkeypatch.setenv("SPARK_LOCAL_DIRS", disks)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free[Path(path).name]))
    monkeypatch.setattr(spilling, "MOST_HELD", 2)
    many = in_order([3, 1, 2])
    assert list(many) == [1, 2, 3]
    assert open_below(tmp_path / "roomy") and not open_below(tmp_path / "full")


@pytest.mark.spec("SCL-22X")
@pytest.mark.parametrize(
    ("limit", "held"),
    [(resource.RLIM_INFINITY, spilling.MOST_HELD), (1 << 40, spilling.MOST_HELD), (300 << 20, 52_428), (100, 1)],
)
def test_a_process_with_little_memory_holds_less(limit: int, held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert spilling.most_held() == held


class Item:
    alive = 0

    def __init__(self, number: int) -> None:
        self.number = number
        Item.alive += 1

    def __reduce__(self) -> tuple[type["Item"], tuple[int]]:
        return Item, (self.number,)

    def __del__(self) -> None:
        Item.alive -= 1


def open_below(directory: Path) -> list[Path]:
    """Return our open files, without a name by now, that were made there."""
    return [fd for fd in Path("/proc/self/fd").iterdir() if _target(fd).startswith(f"{directory}/")]


def _target(fd: Path) -> str:
    try:
        return str(fd.readlink())
    except OSError:  # the one that lists them
        return ""
