"""The records of __consumer_offsets: fixed bytes of each version, and everything we write is read back the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkatool.broker.groups.records import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    decode_group,
    decode_key,
    decode_offset,
    encode_group,
    encode_key,
    encode_offset,
)
from kafkatool.core.errors import CorruptRecordsError

text = st.text(max_size=20).filter(lambda s: not any(0xD800 <= ord(c) < 0xE000 for c in s))
int32, int64 = st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**63 - 1)
maybe_text = st.none() | text
members = st.builds(MemberValue, text, maybe_text, text, text, int32, int32, st.binary(), st.binary())
groups = st.builds(
    GroupValue, text, int32, maybe_text, maybe_text, st.none() | int64, st.lists(members, max_size=3).map(tuple)
)


@given(st.one_of(st.builds(OffsetKey, text, text, int32), st.builds(GroupKey, text)))
@pytest.mark.spec("GRP-50", "BRK-162")
def test_keys_come_back(key: OffsetKey | GroupKey) -> None:
    assert decode_key(encode_key(key)) == key


@given(st.builds(OffsetValue, int64, st.none() | st.integers(0, 2**31 - 1), text, int64, st.none() | int64))
@pytest.mark.spec("GRP-50")
def test_offsets_come_back(value: OffsetValue) -> None:
    data = encode_offset(value, with_epoch=True)
    if value.expire_timestamp_ms is None:
        assert data[:2] == b"\x00\x03" and decode_offset(data) == value
    else:  # an own expiry is only in version 1, which has no epoch
        assert data[:2] == b"\x00\x01"
        assert decode_offset(data).expire_timestamp_ms == value.expire_timestamp_ms


@given(groups)
@pytest.mark.spec("GRP-50", "GRP-11")
def test_groups_come_back(value: GroupValue) -> None:
    assert decode_group(encode_group(value)) == value


@given(groups, st.integers(0, 200))
@pytest.mark.spec("GRP-14")
def test_a_cut_value_is_an_error_of_ours(value: GroupValue, cut: int) -> None:
    data = encode_group(value)
    if cut < len(data):
        with pytest.raises(CorruptRecordsError):
            decode_group(data[:cut])


@pytest.mark.spec("GRP-10", "GRP-11")
def test_fixed_bytes_of_each_version() -> None:
    assert encode_key(OffsetKey("g", "t", 1)) == bytes.fromhex("0001 0001 67 0001 74 00000001")
    assert encode_key(GroupKey("g")) == bytes.fromhex("0002 0001 67")
    assert decode_key(bytes.fromhex("0007 00")) is None  # a newer broker's
    assert decode_offset(bytes.fromhex("0000 0000000000000005 0001 6d 0000000000000009")) == OffsetValue(
        5, None, "m", 9, None
    )
    assert decode_offset(bytes.fromhex("0001 0000000000000005 0000 0000000000000009 ffffffffffffffff")) == OffsetValue(
        5, None, "", 9, None
    )
    assert decode_offset(bytes.fromhex("0003 0000000000000005 00000002 0000 0000000000000009")) == OffsetValue(
        5, 2, "", 9, None
    )
    version_0 = bytes.fromhex(
        "0000 0001 63 00000003 0001 70 0001 6c 00000001 0001 6c 0001 69 0001 68 00000064 00000000 00000000"
    )
    assert decode_group(version_0) == GroupValue(
        "c", 3, "p", "l", None, (MemberValue("l", None, "i", "h", 100, 100, b"", b""),)
    )
    for newer in ("0004", "0009"):
        with pytest.raises(CorruptRecordsError):
            decode_offset(bytes.fromhex(newer))
