"""How a value travels, byte by byte: as text that names it, its key and its process, behind which its CRC-32C stands."""

import pytest
from confluent_kafka import TopicPartition

from tests.histories.clients.values import decode, encode, key_of, keys_of, partition_of, topic_of


def crc32c(data: bytes) -> int:
    """Return the Castagnoli checksum, bit by bit (RFC 3720)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@pytest.mark.spec("HIS-13")
def test_a_value_travels_as_text_with_a_crc_32c() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # the one known by everybody
    for value, key, process, index in ((7, 3, 24, 0), (-7, 0, 0, 9), (1 << 40, 1_000_000, 1_000_003, 400_000)):
        text = f"{value} {key} {process} {index}".encode()
        assert encode(value, key, process, index) == text + b" " + str(crc32c(text)).encode()
        assert decode(encode(value, key, process, index)) == value
        shorter = f"{value} {key} {process}".encode()  # of the simulation
        assert encode(value, key, process) == shorter + b" " + str(crc32c(shorter)).encode()
        assert decode(encode(value, key, process)) == value


@pytest.mark.spec("HIS-7", "HIS-13")
@pytest.mark.parametrize(
    "data",
    [None, b"", b" ", b"7", b"7 3 24", b"7 3 24 ", b"7 3 24 x", b"7 3 24 -1", b"7 3 24 0", b" 0", b"\xff\x00 \xb2"],
)
def test_what_is_no_such_text_is_no_value(data: bytes | None) -> None:
    assert decode(data) is None


@pytest.mark.spec("HIS-41")
def test_a_key_is_the_partition_k_mod_2_of_the_topic_k_div_2() -> None:
    for key in range(50):
        assert (topic_of(key), partition_of(key)) == (f"history-{key // 2}", key % 2)
        assert key_of(f"history-{key // 2}", key % 2) == key


@pytest.mark.spec("HIS-41", "HIS-45")
def test_a_partition_that_was_added_to_a_topic_is_no_key() -> None:
    partitions = [TopicPartition(f"history-{topic}", partition) for topic in (3, 4) for partition in range(4)]
    assert keys_of(partitions) == [6, 7, 8, 9]
