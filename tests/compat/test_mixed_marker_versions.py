"""A real coordinator of a newer inter-broker protocol than any of ours has its markers written here, in version 1 (TXN-99).

As while a cluster is upgraded: one broker is told the newer protocol. The controller is told the older one, as ours speaks
that alone; it is a real one, of whom that broker asks changes of the ISR.
"""

from pathlib import Path
from typing import Any, Final

import pytest

from kafkatool.broker.transactions.states import TransactionState
from kafkatool.core.model.topic_names import TRANSACTION_TOPIC
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.zookeeper.cluster_view import read_cluster
from tests.compat.mixed import OFFSETS, OURS, WAIT_S, Mixed
from tests.compat.mixed_coordination import (
    BESIDE,
    OWN,
    THEIRS,
    Cast,
    Written,
    begin,
    both_of,
    coordinate,
    coordinated_cluster,
    markers,
    read,
    state_of,
    write_marker,
)
from tests.histories.frames.proxy import FrameProxy
from tests.raw_transactions import RawProducer
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.slowest, pytest.mark.timeout(900)]

NONE = ErrorCode.NONE
TOPIC: Final = "marked"


@pytest.mark.spec("TXN-99", "TXN-98", "TXN-59", "TXN-52", "TXN-79")
def test_a_coordinator_of_protocol_2_8_writes_its_markers_here_in_version_1(tmp_path: Path) -> None:
    heard: list[dict[str, Any]] = []
    with (
        coordinated_cluster("2.8.2", "2.3", tmp_path) as mixed,
        FrameProxy(mixed.ours.port, broker=OURS, hears=lambda line: heard.append(dict(line))) as door,
    ):
        mixed.create(TOPIC, {0: (THEIRS, BESIDE, OURS), 1: (OURS, THEIRS, BESIDE)})
        mixed.reign(BESIDE)
        mixed.real.configure(THEIRS, {"inter.broker.protocol.version": "2.8"})
        mixed.stop(THEIRS)
        mixed.start(THEIRS, [TRANSACTION_TOPIC, OFFSETS, TOPIC])
        doored = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{door.port}"}
        mixed.ours.configure({**mixed.ours.options, **doored})
        coordinate(mixed, THEIRS, TOPIC)  # ours is stopped and started, as it had coordinated
        with Cast(mixed, TOPIC) as cast:
            _check(mixed, cast, heard)


def _check(mixed: Mixed, cast: Cast, heard: list[dict[str, Any]]) -> None:
    def versions() -> set[int]:
        return {line["version"] for line in heard if line["what"] == "asked" and line["api"] == "WriteTxnMarkers"}

    theirs, ours = both_of(TOPIC)
    committed, aborted, stale = map(cast.producer, ("committed", "aborted", "stale"))
    epoch = _coordinator_epoch(mixed)
    for leader, place in ((THEIRS, theirs), (OURS, ours)):
        assert write_marker(mixed, leader, place, (stale.producer_id, stale.epoch), epoch + 1) == NONE
    for by in (committed, aborted):
        begin(by, theirs, ours)
        assert by.end(committed=by is committed) == NONE
        _await_complete(mixed, THEIRS, by)
        for leader, place in ((THEIRS, theirs), (OURS, ours)):
            only = [Written(by.epoch, by is committed, epoch)]
            assert markers(mixed, leader, place, by.producer_id) == only
    assert versions() == {1}

    begin(stale, theirs, ours)
    assert stale.end(committed=True) == NONE
    begin(committed, ours)  # comes after that end, at the same leader
    assert committed.end(committed=False) == NONE
    _await_complete(mixed, THEIRS, committed)
    assert state_of(mixed, THEIRS, stale) is TransactionState.PREPARE_COMMIT, "refused, and the coordinator knows"

    coordinate(mixed, OURS, TOPIC)

    _await_complete(mixed, OURS, stale)
    begin(aborted, theirs, ours)
    assert aborted.end(committed=True) == NONE
    _await_complete(mixed, OURS, aborted)
    assert versions() == {1}
    wanted = [
        f"first of {by.transactional_id} in {place}" for by in (committed, stale, aborted) for place in both_of(TOPIC)
    ]
    eventually(lambda: read(mixed, TOPIC) == sorted(wanted), "what was committed, and nothing else", WAIT_S)
    mixed.check_replicas()


def _coordinator_epoch(mixed: Mixed) -> int:
    return read_cluster(mixed.zk, [TRANSACTION_TOPIC]).states[OWN].leader_and_isr.leader_epoch


def _await_complete(mixed: Mixed, broker: int, by: RawProducer) -> None:
    complete = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
    eventually(lambda: state_of(mixed, broker, by) in complete, f"the end of {by.transactional_id}", WAIT_S)
