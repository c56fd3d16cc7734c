"""Keys and values of ``__consumer_offsets`` (Kafka 2.3.1 group/GroupMetadataManager.scala).

Real brokers read what is written here, and the reverse, whenever such a partition changes its leader (GRP-50, 63).
"""

from dataclasses import dataclass
from typing import NamedTuple

from kafkatool.broker.coordination.record_codec import RecordReader, RecordWriter
from kafkatool.core.errors import CorruptRecordsError
from kafkatool.core.model.topic_names import OFFSETS_TOPIC


class OffsetKey(NamedTuple):
    """A committed offset's key."""

    group: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """A group's key."""

    group: str


Key = OffsetKey | GroupKey

_LONGEST_TEXT_BYTES = 2**15 - 1  # a string's length is an int16, in records as in answers


def storable(text: str | None) -> bool:
    """Tell whether the text fits a record.

    What a client sent may not: bytes that are no UTF-8 are read as U+FFFD, which takes three of them.
    """
    return text is None or len(text) * 4 <= _LONGEST_TEXT_BYTES or len(text.encode()) <= _LONGEST_TEXT_BYTES


class OffsetValue(NamedTuple):
    """A committed offset. Times in ms; ``expire_timestamp_ms`` None: the broker's retention rules (GRP-49, 54)."""

    offset: int
    leader_epoch: int | None
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None


@dataclass(frozen=True, slots=True)
class MemberValue:
    """A member as stored: its bytes for the chosen protocol and its assignment."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupValue:
    """A group as stored. ``state_timestamp_ms`` None: written by a version that did not keep it (GRP-11)."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int | None
    members: tuple[MemberValue, ...]


def encode_key(key: Key) -> bytes:
    """Encode version 1 for offsets, 2 for groups."""
    if isinstance(key, GroupKey):
        writer = RecordWriter(2)
        writer.string(key.group)
    else:
        writer = RecordWriter(1)
        writer.string(key.group)
        writer.string(key.topic)
        writer.add("i", key.partition)
    return bytes(writer.data)


def decode_key(data: bytes | memoryview) -> Key | None:
    """Decode; None for a version of a newer broker, which loading skips (GRP-10). Raises CorruptRecordsError."""
    reader = RecordReader(data, OFFSETS_TOPIC)
    match reader.take("h"):
        case 0 | 1:
            return OffsetKey(reader.string(), reader.string(), reader.take("i"))
        case 2:
            return GroupKey(reader.string())
    return None


def encode_offset(value: OffsetValue, *, with_epoch: bool) -> bytes:
    """Encode version 3; 1 for an IBP below 2.1 (``with_epoch`` false) and for an offset with its own expiry."""
    if value.expire_timestamp_ms is not None or not with_epoch:
        writer = RecordWriter(1)
        writer.add("q", value.offset)
        writer.string(value.metadata)
        writer.add("qq", value.commit_timestamp_ms, _or_minus_one(value.expire_timestamp_ms))
    else:
        writer = RecordWriter(3)
        writer.add("qi", value.offset, _or_minus_one(value.leader_epoch))
        writer.string(value.metadata)
        writer.add("q", value.commit_timestamp_ms)
    return bytes(writer.data)


def decode_offset(data: bytes | memoryview) -> OffsetValue:
    """Decode versions 0 to 3. Raises CorruptRecordsError, also for a newer version."""
    reader = RecordReader(data, OFFSETS_TOPIC)
    version = reader.take("h")
    if not 0 <= version <= 3:
        raise CorruptRecordsError(f"offset value of version {version} in {OFFSETS_TOPIC} is not known")
    offset = reader.take("q")
    epoch = _or_none(reader.take("i")) if version == 3 else None
    metadata = reader.string()
    commit_timestamp_ms = reader.take("q")
    expire = _or_none(reader.take("q")) if version == 1 else None
    return OffsetValue(offset, epoch, metadata, commit_timestamp_ms, expire)


def encode_group(value: GroupValue, *, version: int = 3) -> bytes:
    """Encode version 1 (IBP below 2.1), 2 (below 2.3) or 3."""
    writer = RecordWriter(version)
    writer.string(value.protocol_type)
    writer.add("i", value.generation)
    writer.string(value.protocol)
    writer.string(value.leader)
    if version >= 2:
        writer.add("q", _or_minus_one(value.state_timestamp_ms))
    writer.add("i", len(value.members))
    for member in value.members:
        writer.string(member.member_id)
        if version >= 3:
            writer.string(member.instance_id)
        writer.string(member.client_id)
        writer.string(member.client_host)
        writer.add("ii", member.rebalance_timeout_ms, member.session_timeout_ms)
        writer.bytes(member.subscription)
        writer.bytes(member.assignment)
    return bytes(writer.data)


def decode_group(data: bytes | memoryview) -> GroupValue:
    """Decode versions 0 to 3; version 0 has rebalance timeout = session timeout (GRP-11). Raises CorruptRecordsError."""
    reader = RecordReader(data, OFFSETS_TOPIC)
    version = reader.take("h")
    if not 0 <= version <= 3:
        raise CorruptRecordsError(f"group value of version {version} in {OFFSETS_TOPIC} is not known")
    protocol_type, generation = reader.string(), reader.take("i")
    protocol, leader = reader.nullable(), reader.nullable()
    timestamp = _or_none(reader.take("q")) if version >= 2 else None
    members = []
    for _ in range(reader.take("i")):
        member_id = reader.string()
        instance_id = reader.nullable() if version >= 3 else None
        client_id, client_host = reader.string(), reader.string()
        rebalance = reader.take("i") if version >= 1 else None
        session = reader.take("i")
        timeouts = (session if rebalance is None else rebalance, session)
        member = MemberValue(member_id, instance_id, client_id, client_host, *timeouts, reader.bytes(), reader.bytes())
        members.append(member)
    return GroupValue(protocol_type, generation, protocol, leader, timestamp, tuple(members))


def _or_none(value: int) -> int | None:
    return None if value == -1 else value


def _or_minus_one(value: int | None) -> int:
    return -1 if value is None else value
