"""Log dirs with transactions as real Kafka left them, killed or stopped: what we make of them is what Kafka made of them.

``tests/data/transactions``: 2.8.2 and 3.9.1; the JSON files hold what that Kafka answered on these directories.
"""

import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from kafkatool.broker.groups.loader import load as load_groups
from kafkatool.broker.storage.batches.transaction_markers import Marker, encode_marker
from kafkatool.broker.storage.log.log import Log
from kafkatool.broker.storage.producers.producer_snapshot import read_snapshot, snapshots
from kafkatool.broker.storage.producers.producer_state import UNVERIFIED
from kafkatool.broker.storage.segment.transaction_index import read_aborted
from kafkatool.broker.transactions.loader import load as load_transactions
from kafkatool.broker.transactions.states import TransactionState
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.records.batches import CONTROL, TRANSACTIONAL, iter_batches, iter_records
from tests.broker.storage.logs import everything, make_log

DATA = Path(__file__).parents[3] / "data" / "transactions"
DATA_PARTITIONS = ("in-0", "in-1", "small-0")

_FILTER: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""Python 3.11.4 and later want to be told that nothing outside the directory is to be written."""


@pytest.fixture(params=["2.8.2-killed", "2.8.2-stopped", "3.9.1-killed", "3.9.1-stopped"])
def left(request: pytest.FixtureRequest, tmp_path: Path) -> "Left":
    return Left(request.param, tmp_path)


class Left:
    """One log dir, and what that Kafka said of it."""

    def __init__(self, name: str, directory: Path) -> None:
        self.is_clean = name.endswith("stopped")
        self.directory = directory
        self.told: dict[str, Any] = json.loads((DATA / f"{name}.json").read_bytes())
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress((DATA / f"{name}.tar.gz").read_bytes()))) as archive:
            archive.extractall(directory, **_FILTER)

    def open(self, partition: str) -> Log:
        log = make_log(
            self.directory / partition,
            clean=self.is_clean,
            segment_bytes="600" if partition.startswith("small") else "1000000",
        )
        log.high_watermark = self.told[partition]["high_watermark"] if partition in self.told else log.log_end_offset
        return log

    def indexes(self, partition: str) -> dict[str, bytes]:
        """Return the entries of each index of aborted transactions; after a kill Kafka's own is whole, too."""
        return {
            path.name: data
            for path in sorted((self.directory / partition).glob("*.txnindex"))
            if (data := path.read_bytes())
        }


def aborted(log: Log) -> list[dict[str, int]]:
    read = log.read(0, 1 << 20, log.last_stable_offset, min_one_batch=True)
    found, start = [], 0
    while start < log.last_stable_offset:  # a read ends with its segment
        read = log.read(start, 1 << 20, log.last_stable_offset, min_one_batch=True)
        for one in log.aborted_transactions(read, log.last_stable_offset):
            told = {"producer_id": one.producer_id, "first_offset": one.first_offset}
            if told not in found:
                found.append(told)
        data = read.records if isinstance(read.records, bytes) else read.records.read()
        start = max(header.next_offset for _, header in iter_batches(data))
    return found


def committed(log: Log) -> list[str]:
    """Return what a read_committed consumer is left with."""
    gone = aborted(log)
    values: list[str] = []
    open_: set[int] = set()
    data = memoryview(everything(log))
    for position, header in iter_batches(data):
        if header.base_offset >= log.last_stable_offset:
            break
        open_ |= {one["producer_id"] for one in gone if one["first_offset"] == header.base_offset}
        if header.attributes & CONTROL:
            open_.discard(header.producer_id)
        elif not (header.attributes & TRANSACTIONAL and header.producer_id in open_):
            batch = data[position : position + header.size_bytes]
            values += [bytes(record.value or b"").decode() for record in iter_records(batch)]
    return values


def producers(log: Log) -> list[dict[str, int]]:
    return [
        {
            "producer_id": p.producer_id,
            "producer_epoch": p.epoch,
            "last_sequence": p.last_sequence,
            "last_timestamp": p.last_timestamp,
            "coordinator_epoch": p.coordinator_epoch,
            "transaction_start": p.transaction_start,
        }
        for p in log.active_producers()
    ]


@pytest.mark.spec("TXN-64", "TXN-65", "TXN-66", "TXN-63", "TXN-103")
@pytest.mark.parametrize("partition", DATA_PARTITIONS)
def test_the_same_is_open_aborted_and_read_as_by_kafka(left: Left, partition: str) -> None:
    told = left.told[partition]
    for life in ("Kafka's", "ours"):
        log = left.open(partition)
        assert log.last_stable_offset == told["last_stable_offset"], life
        assert aborted(log) == told["aborted"], life
        assert committed(log) == told["read_committed"], life
        assert producers(log) == sorted(told["producers"], key=lambda p: p["producer_id"]), life
        if life == "Kafka's":
            log.close()
            (newest,) = snapshots(left.directory / partition)[-1:]
            kept = read_snapshot(newest)
            assert kept is not None and sorted(kept.entries) == [p["producer_id"] for p in producers(log)]
            left.is_clean = True


@pytest.mark.spec("TXN-64", "TXN-103")
@pytest.mark.parametrize("partition", DATA_PARTITIONS)
def test_indexes_that_are_lost_are_made_anew_as_kafka_wrote_them(left: Left, partition: str) -> None:
    before = left.indexes(partition)
    left.open(partition).close()
    assert left.indexes(partition) == before
    for path in (left.directory / partition).glob("*.txnindex"):
        path.unlink()
    for path in snapshots(left.directory / partition):
        path.unlink()
    left.is_clean = False
    left.open(partition)
    assert left.indexes(partition) == before
    earlier = [
        entry
        for name in before
        for entry in read_aborted(left.directory / partition / name)
        if entry.first_offset < int(name.partition(".")[0])
    ]
    assert bool(earlier) is partition.startswith("small"), "starts that lie in a segment before the marker's"


@pytest.mark.spec("TXN-64")
def test_followers_write_the_same_index_as_the_leader_and_cut_it_with_the_log(left: Left, tmp_path: Path) -> None:
    source = left.open("in-0")
    follower = make_log(tmp_path / "follower")
    follower.append_as_follower(memoryview(everything(source)))
    index = tmp_path / "follower" / "00000000000000000000.txnindex"
    (kept,) = left.indexes("in-0").values()
    assert index.read_bytes() == kept
    leader, data = make_log(tmp_path / "leader"), memoryview(everything(source))
    for position, header in iter_batches(data):
        sent = bytearray(8) + data[position + 8 : position + header.size_bytes]  # the append gives the offset
        leader.append_as_leader(sent, 0, origin_client=False, verification=UNVERIFIED)
    assert (tmp_path / "leader" / index.name).read_bytes() == kept
    follower.truncate_to(11)  # the marker of the second is at 11
    assert index.read_bytes() == kept[:34]
    follower.truncate_to(6)
    assert not index.exists() or not index.read_bytes()


@pytest.mark.spec("TXN-66", "TXN-59", "TXN-67")
def test_the_same_markers_are_refused_after_a_stop_and_after_a_kill(left: Left) -> None:
    (of_0,) = [p for p in left.told["in-0"]["producers"] if p["producer_id"] == 0]
    assert of_0["coordinator_epoch"] == 0
    refused = [(-1, 9, 47), (0, -1, 52)]
    for life, markers in (("Kafka's", refused), ("ours", [*refused, (0, 0, None), (0, 3, None), (0, 2, 52)])):
        log = left.open("in-0")
        for epoch, coordinator_epoch, code in markers:
            found = None
            marker = encode_marker(0, epoch, Marker(False, coordinator_epoch), 1)
            try:
                log.append_as_leader(marker, 1, origin_client=False)
            except Exception as e:  # noqa: BLE001  # its code is what is looked at
                found = e.code  # type: ignore[attr-defined]
            assert found == code, (life, epoch, coordinator_epoch)
        log.close()
        left.is_clean = True


@pytest.mark.spec("TXN-60", "TXN-103")
def test_our_markers_are_kafkas_byte_for_byte(left: Left) -> None:
    found: list[bool] = []
    for partition in DATA_PARTITIONS:
        log = left.open(partition)
        data = memoryview(everything(log))
        for position, header in iter_batches(data):
            if not header.attributes & CONTROL:
                continue
            theirs = bytes(data[position : position + header.size_bytes])
            (record,) = iter_records(theirs)
            assert record.key is not None and record.value is not None and record.headers == ()
            marker = Marker(bytes(record.key)[-1] == 1, int.from_bytes(record.value[-4:], "big", signed=True))
            ours = encode_marker(header.producer_id, header.producer_epoch, marker, header.max_timestamp)
            assert len(theirs) == 78 and header.base_sequence == -1 and header.attributes == TRANSACTIONAL | CONTROL
            assert header.last_offset_delta == 0, "one offset"
            assert bytes(ours)[16:] == theirs[16:], "all but offset, length and leader epoch, which the append writes"
            found.append(marker.committed)
    assert len(found) >= 10 and set(found) == {True, False}


@pytest.mark.spec("TXN-103", "TXN-98", "TXN-9")
def test_kafkas_records_of_transactions_are_read(left: Left) -> None:
    states: dict[str, TransactionState] = {}
    for directory in sorted(left.directory.glob("__transaction_state-*")):
        loaded = load_transactions(left.open(directory.name), 1 << 20, lambda: True)
        assert loaded is not None and loaded.damaged == {}
        states |= {id_: value.state for id_, value in loaded.transactions.items()}
    assert {id_ for id_, state in states.items() if state is TransactionState.ONGOING} == (
        {"story-o"} if left.told["in-0"]["last_stable_offset"] == 20 else {"story-b"}
    )
    assert set(states.values()) <= set(TransactionState)


@pytest.mark.spec("TXN-88", "TXN-103", "TXN-87")
def test_offsets_pending_in_kafkas_log_are_pending_here(left: Left) -> None:
    told = left.told["story-group"]
    loaded = load_groups(left.open("__consumer_offsets-0"), 1 << 20, lambda: True)
    assert loaded is not None
    offsets = loaded.offsets["story-group"]
    in_force = {tp: commit.value.offset for tp, commit in offsets.in_force.items()}
    pending = {tp for held in offsets.transactional.values() for tp in held}
    for partition, code in ((0, 0), (1, 88)):
        place = TopicPartition("in", partition)
        (loose,), (stable,) = (
            [p for p in told[asked][0]["partitions"] if p["partition"] == partition]
            for asked in ("require_stable false", "require_stable true")
        )
        assert in_force.get(place, -1) == loose["committed_offset"]
        assert (place in pending) == (stable["error_code"] == code == 88)
