"""Slices in their places in the result, and what happens when they turn out longer or shorter than their places."""

import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkatool.core.statelog.merging.parts import Part, PartWriter, Slots, SlotTooSmallError, put_right


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(-10, 10), st.booleans()), max_size=8),
    st.integers(1, 7),
)
def test_parts_are_put_right_whatever_their_sizes(
    tmp_path_factory: pytest.TempPathFactory, slices: list[tuple[int, int, bool]], move_bytes: int
) -> None:
    """Each slice: its slot's size, by how much the text differs from it, and whether it was written elsewhere anyway."""
    directory: Path = tmp_path_factory.mktemp("parts")
    target = directory / "target"
    target.touch()
    sizes = [slot for slot, _, _ in slices]
    slots = Slots(target, tuple(sum(sizes[:k]) for k in range(len(sizes) + 1)))
    texts = [bytes([65 + k]) * max(slot + more, 0) for k, (slot, more, _) in enumerate(slices)]
    parts: list[Part] = []
    for index, text in enumerate(texts):
        elsewhere = slices[index][2] or len(text) > sizes[index]
        with PartWriter(directory / f"part-{index}", None if elsewhere else slots, index) as writer:
            writer.write(text[:3])
            writer.write(text[3:])
            parts.append(writer.part)
        assert slots.fits(index, parts[-1]) == (not elsewhere and len(text) == sizes[index])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kafkatool.core.statelog.merging.parts.MOVE_BYTES", move_bytes)
        put_right(target, parts)
    assert target.read_bytes() == b"".join(texts)


def test_a_slot_is_not_left(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"........")
    with PartWriter(tmp_path / "part", Slots(target, (0, 2, 5, 8)), 1) as writer:
        writer.write(b"ab")
        with pytest.raises(SlotTooSmallError):
            writer.write(b"cd")
        assert writer.part == Part(target, 2, 2)
    assert target.read_bytes() == b"..ab...."


@pytest.mark.spec("SCL-22X")
def test_a_full_disk_is_told_with_the_files_name() -> None:
    with PartWriter(Path("/dev/full"), None, 0) as writer, pytest.raises(OSError, match="/dev/full") as caught:
        writer.write(b"text")
    assert caught.value.errno == errno.ENOSPC
