from pathlib import Path

import pytest

from kafkatool.broker.storage.directories.topic_identity import TopicIdentity, read_identity, write_identity

_IDENTITY = TopicIdentity(0x1_0000_002A, 0x7FFF_FFFF_FFFF_FFFF)


@pytest.mark.spec("BRK-150")
def test_an_identity_that_a_power_cut_tore_or_blanked_counts_as_none(tmp_path: Path) -> None:
    assert read_identity(tmp_path) is None
    assert read_identity(tmp_path / "gone") is None
    write_identity(tmp_path, _IDENTITY)
    assert read_identity(tmp_path) == _IDENTITY
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    for size in range(len(whole)):
        for torn in (whole[:size], whole[:size] + bytes(len(whole) - size)):
            file.write_bytes(torn)
            assert read_identity(tmp_path) is None, torn
    for odd in (whole + b"\n", b"\xff" * len(whole), b"1" + whole[1:]):
        file.write_bytes(odd)
        assert read_identity(tmp_path) is None, odd


@pytest.mark.spec("BRK-150")
@pytest.mark.parametrize(
    ("noted", "now", "before"),
    [((1, 5), (1, 6), True), ((1, 5), (1, 5), False), ((1, 6), (1, 5), False), ((2, 5), (1, 6), False)],
)
def test_topics_are_compared_in_one_zookeeper_alone(
    noted: tuple[int, int], now: tuple[int, int], *, before: bool
) -> None:
    """In one to which the nodes were copied, all have new numbers: every log would be set aside."""
    assert TopicIdentity(*noted).is_before(TopicIdentity(*now)) is before
