"""Requests as a broken or hostile client might send them: the right shape with wild values, or not even that."""

import random
import struct
from collections.abc import Iterator
from typing import Any

from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.codec.schema import Api, Array, Blob, Struct, Text, WireType, fields_of
from kafkatool.core.protocol.codec.types import Fixed
from kafkatool.core.protocol.frames import encode_request
from kafkatool.core.protocol.records.batches import Record, encode_batch
from tests.core.protocol.apis import APIS

CONTROL_KEYS = frozenset({4, 5, 6, 7})
DELETE_TOPICS_KEY = 20
_BITS = {"b": 7, "h": 15, "i": 31, "q": 63}
_CLIENT_ID = "hostile"


class RandomRequests:
    """Seeded. ``names`` are topics, groups and the like that may exist; ``keys`` the APIs to call."""

    def __init__(self, chance: random.Random, names: list[str], keys: list[int]) -> None:
        self._chance = chance
        self._names = names
        self._apis = [APIS[key] for key in keys]

    def frame(self) -> bytes:
        """Return a whole frame that decodes, at least on the outside; length prefix included."""
        api = self._chance.choice(self._apis)
        return self._frame(api, self._chance.randint(api.min_version, api.max_version))

    def _frame(self, api: Api, version: int) -> bytes:
        while True:
            try:
                message = self._message(api.request, version)
                return encode_request(api, version, self._chance.randrange(1 << 31), _CLIENT_ID, message)
            except (ValueError, TypeError, struct.error, OverflowError):
                continue  # a value this version cannot carry

    def each(self) -> Iterator[bytes]:
        """Yield for every version of every API a whole frame, one damaged, one cut off with a length that fits."""
        for api in self._apis:
            for version in range(api.min_version, api.max_version + 1):
                whole = self._frame(api, version)
                yield whole
                yield self._damaged(whole)
                body = whole[4 : self._chance.randrange(4, len(whole))]
                yield struct.pack(">i", len(body)) + body

    def mutated(self) -> bytes:
        """Return a frame, damaged behind its length prefix."""
        return self._damaged(self.frame())

    def _damaged(self, whole: bytes) -> bytes:
        data = bytearray(whole)
        for _ in range(self._chance.randint(1, 4)):
            at = self._chance.randrange(4, len(data))
            match self._chance.randrange(4):
                case 0:
                    data[at] = self._chance.randrange(256)
                case 1:
                    data[at : at + 4] = self._chance.choice([b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0"])
                case 2:
                    data[at:at] = self._chance.randbytes(self._chance.randrange(40))
                case 3 if len(data) - at > 1:
                    del data[at : at + self._chance.randrange(1, 20)]
            if len(data) <= 4:
                data += b"\0"
        struct.pack_into(">i", data, 0, len(data) - 4)
        return bytes(data)

    def rubbish(self) -> bytes:
        """Bytes that never were a request: cut off, wrong lengths, noise, another protocol."""
        chance = self._chance
        match chance.randrange(5):
            case 0:
                return self.frame()[: chance.randrange(1, 30)]
            case 1:
                length = chance.choice([2**31 - 1, -1, -(2**31), 100 * 1024 * 1024 + 1, 0, 1, 7])
                return struct.pack(">i", length) + chance.randbytes(chance.randrange(20))
            case 2:
                return b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
            case 3:
                return b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chance.randbytes(40)  # TLS says hello
            case _:
                return chance.randbytes(chance.randrange(1, 300))

    def _message(self, cls: type[Any], version: int) -> Any:
        values = {f.name: self._value(f.type, version) for f in fields_of(cls) if f.exists(version)}
        if cls is TopicPartition:
            return TopicPartition(**values)
        for field in fields_of(cls):
            if version >= field.null_since and self._chance.random() < 0.2:
                values[field.name] = None
        return cls(**values)

    def _value(self, wire_type: WireType, version: int) -> Any:
        chance = self._chance
        match wire_type:
            case Fixed(code="?"):
                return chance.random() < 0.5
            case Fixed(code="16s"):
                return chance.choice([bytes(16), chance.randbytes(16)])
            case Fixed(code="d"):
                return chance.choice([0.0, -1.0, 1e300, float("inf"), float("nan"), chance.random()])
            case Fixed(code=code):
                top = 1 << _BITS[code]
                return chance.choice([0, 0, 0, 1, 1, 2, -1, -2, -top, top - 1, chance.randrange(-top, top)])
            case Text():
                return chance.choice([*self._names, *self._names, "", "x" * 300, "a/b", "..", "\0", "ü€😀"])
            case Blob():
                return chance.choice([b"", bytes(self._batch()), bytes(self._batch()), chance.randbytes(80)])
            case Array(element=element):
                return [self._value(element, version) for _ in range(chance.choice([0, 1, 1, 2, 5]))]
            case Struct(type=cls):
                return self._message(cls, version)
        raise AssertionError(wire_type)

    def _batch(self) -> bytearray:
        chance = self._chance
        records = [Record(i, chance.choice([0, -1, 1 << 62]), None, b"v" * chance.randrange(50)) for i in range(2)]
        batch = encode_batch(records, codec=chance.choice([0, 0, 1, 2, 3, 4]))
        for _ in range(chance.choice([0, 0, 1, 3])):
            batch[chance.randrange(len(batch))] = chance.randrange(256)
        return batch
