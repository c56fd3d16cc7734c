"""Every step of transactions that was spoken to real Kafka is understood, and written here with the same bytes (TXN-103).

``tests/data/transactions/*-wire.tsv.gz``: what a client over raw sockets asked 2.8.2 and 3.9.1, what they answered, and
what that client read in the answer: title, request, answer ("" for none), values as JSON in the order of the bytes (""
where they were too long to be kept).
"""

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from kafkatool.core.protocol.codec.file_region import FileRegion
from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.frames import (
    decode_header,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from tests.core.protocol.apis import APIS
from tests.core.protocol.codec.leaves import leaves, leaves_of_json

DATA: Final = Path(__file__).parents[3] / "data" / "transactions"
STEPS: Final = {"2.8.2": 221, "3.9.1": 260}
READ: Final = {"2.8.2": 219, "3.9.1": 242}
"""How many of them have an answer whose values are compared."""
NEWER: Final = {
    "2.8.2": {},
    "3.9.1": {
        ("Produce", 11): 1,
        ("FindCoordinator", 5): 1,
        ("InitProducerId", 5): 2,
        ("AddPartitionsToTxn", 5): 8,
        ("AddOffsetsToTxn", 4): 1,
        ("EndTxn", 4): 1,
        ("TxnOffsetCommit", 4): 1,
    },
}
"""Of which version -> the steps in versions that are not spoken here."""


class Step(NamedTuple):
    """Frames without their length."""

    title: str
    request: bytes
    answer: bytes
    values: str

    @property
    def api(self) -> Api:
        return APIS[int.from_bytes(self.request[:2])]

    @property
    def version(self) -> int:
        return int.from_bytes(self.request[2:4])

    @property
    def is_spoken(self) -> bool:
        return self.api.min_version <= self.version <= self.api.max_version


@pytest.fixture(params=STEPS)
def kafka(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def steps(kafka: str) -> list[Step]:
    text = gzip.decompress((DATA / f"{kafka}-wire.tsv.gz").read_bytes()).decode()
    rows = [line.split("\t") for line in text.splitlines()]
    return [Step(title, bytes.fromhex(asked), bytes.fromhex(told), values) for title, asked, told, values in rows]


def spoken(steps: list[Step]) -> Iterator[tuple[Step, object, object | None]]:
    """Yield the steps that are spoken here, the request and the answer of each."""
    for step in steps:
        if step.is_spoken:
            _, body = decode_header(step.api, step.request)
            request = decode_request(step.api, step.version, step.request, body)
            answer = decode_response(step.api, step.version, step.answer)[1] if step.answer else None
            yield step, request, answer


@pytest.mark.spec("TXN-103", "TXN-35")
def test_each_recorded_step_is_read_and_written_again_byte_for_byte(kafka: str, steps: list[Step]) -> None:
    assert len(steps) == STEPS[kafka]
    assert Counter((step.api.name, step.version) for step in steps if not step.is_spoken) == NEWER[kafka]
    for step, request, answer in spoken(steps):
        header, _ = decode_header(step.api, step.request)
        again = encode_request(step.api, step.version, header.correlation_id, header.client_id, request)
        assert again[4:] == step.request, step.title
        if answer is not None:
            chunks = encode_response(step.api, step.version, header.correlation_id, answer)
            frame = b"".join(bytes(chunk) for chunk in chunks if not isinstance(chunk, FileRegion))
            assert frame[4:] == step.answer, step.title


@pytest.mark.spec("TXN-103")
def test_each_recorded_answer_says_here_what_the_recording_client_read_in_it(kafka: str, steps: list[Step]) -> None:
    compared = Counter[str]()
    for step, _, answer in spoken(steps):
        if step.values and step.api.name != "ApiVersions":  # whose tagged fields that client left as bytes
            assert leaves(answer, step.version) == leaves_of_json(json.loads(step.values)), step.title
            compared[step.api.name] += 1
    assert compared.keys() == {step.api.name for step in steps} - {"ApiVersions"}
    assert compared.total() == READ[kafka]
