"""Records sent from a file."""

from pathlib import Path

import pytest

from kafkatool.core.protocol.codec.file_region import FileRegion
from kafkatool.core.protocol.frames import decode_response, encode_response
from kafkatool.core.protocol.messages import fetch


def test_a_region_reads_its_bytes_and_fewer_from_a_file_that_shrank(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"0123456789")
    with path.open("rb") as file:
        assert FileRegion(file, 2, 5).read() == b"23456"
        assert FileRegion(file, 8, 5).read() == b"89"
        assert FileRegion(file, 3, 0).read() == b""


@pytest.mark.spec("BRK-162")
def test_regions_stand_between_the_bytes_of_a_fetch_response(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"0123456789")
    with path.open("rb") as file:
        regions = [FileRegion(file, 2, 5), FileRegion(file, 0, 0), FileRegion(file, 7, 3)]
        partitions = [fetch.FetchResponsePartition(partition=i, records=r) for i, r in enumerate(regions)]
        response = fetch.FetchResponse(topics=[fetch.FetchResponseTopic(topic="t", partitions=partitions)])
        chunks = encode_response(fetch.API, 4, 1, response)
        assert [c for c in chunks if isinstance(c, FileRegion)] == [regions[0], regions[2]]
        frame = b"".join(c.read() if isinstance(c, FileRegion) else c for c in chunks)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    _, decoded = decode_response(fetch.API, 4, frame[4:])
    assert [bytes(p.records) for p in decoded.topics[0].partitions] == [b"23456", b"", b"789"]
