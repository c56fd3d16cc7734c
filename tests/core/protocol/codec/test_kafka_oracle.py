"""Kafka's own message classes as judges: they read what is written here, and write the same bytes again.

Those of 2.8.2; of 4.1.0 for what is newer.

Kafka's JSON form of a message lists its values in the order of its schema, so values are compared leaf by leaf.
"""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kafkatool.core.java import find_java
from kafkatool.core.protocol.codec.compiler import encoder
from kafkatool.core.protocol.codec.file_region import FileRegion
from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.codec.types import Chunk
from kafkatool.core.protocol.frames import encode_request, encode_response
from tests.compat import real_kafka
from tests.core.protocol.codec.leaves import leaves, leaves_of_json
from tests.core.protocol.codec.messages import EVERY_VERSION, case_name, messages

pytestmark = pytest.mark.slow


class Oracle:
    """The Java process, one line in, one line out."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def read(self, api: Api, version: int, kind: str, body: bytes) -> tuple[int, int, bytes, Any]:
        """Return the header's version, how many bytes were not read, what Kafka writes for what it read, its JSON form."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{api.key} {version} {kind} {body.hex()}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().rstrip("\n")
        assert answer and not answer.startswith("error"), answer
        header, left, again, text = answer.split(" ")
        return int(header), int(left), bytes.fromhex(again), json.loads(bytes.fromhex(text))


_NEWER = {
    "AddPartitionsToTxn": 4,
    "AlterPartitionReassignments": 1,
    "ApiVersions": 3,
    "DescribeCluster": 1,
    "DescribeLogDirs": 2,
    "DescribeQuorum": 1,
    "DescribeTopicPartitions": 0,
    "DescribeTransactions": 0,
    "Fetch": 13,
    "FindCoordinator": 4,
    "ListOffsets": 7,
    "ListTransactions": 0,
    "Metadata": 12,
}
"""First version of an API that Kafka 2.8.2 does not know, or not whole: of ApiVersions 3 it lacks a tagged field."""

OracleOf = Callable[[Api, int], Oracle]


@pytest.fixture(scope="module")
def oracle_of() -> Iterator[OracleOf]:
    """Return the judge of a version; each Java starts when it is needed first."""
    with ExitStack() as stack:

        @cache
        def started(kafka: str) -> Oracle:
            real_kafka.require(kafka)
            libraries = real_kafka.libraries(kafka)
            source = Path(__file__).with_name("KafkaOracle.java")
            command = [str(find_java().executable), "-XX:TieredStopAtLevel=1", "-cp", f"{libraries}/*", str(source)]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.enter_context(process)
            stack.callback(process.kill)
            return Oracle(process)

        yield lambda api, version: started("2.8.2" if version < _NEWER.get(api.name, version + 1) else "4.1.0")


def _header_version(api: Api, version: int, message: object, body: bytes) -> int:
    """Return the version of the header that a frame of ours has, which its length tells."""
    if isinstance(message, api.request):
        return {8: 0, 12: 1, 13: 2}[len(encode_request(api, version, 7, "me", message)) - 4 - len(body)]
    frame = b"".join(bytes(c) for c in encode_response(api, version, 7, message) if not isinstance(c, FileRegion))
    return {4: 0, 5: 1}[len(frame) - 4 - len(body)]


@pytest.mark.spec("BRK-162", "ADM-12", "ADM-13", "ADM-14", "TXN-103", "TXN-35")
@pytest.mark.parametrize(("api", "version", "cls"), EVERY_VERSION, ids=case_name)
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(data=st.data())
def test_kafka_reads_the_same_values_and_writes_the_same_bytes(
    oracle_of: OracleOf, api: Api, version: int, cls: type[object], data: st.DataObject
) -> None:
    message = data.draw(messages(cls, version))
    chunks: list[Chunk] = []
    body = bytes(encoder(cls, version, api.is_flexible(version))(message, bytearray(), chunks, 0))
    assert not chunks
    kind = "request" if cls is api.request else "response"
    header, left, again, values = oracle_of(api, version).read(api, version, kind, body)
    assert _header_version(api, version, message, body) == header
    assert left == 0
    assert again == body
    assert leaves_of_json(values) == leaves(message, version)
