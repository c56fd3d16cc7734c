"""Walks at random: what holds of transactions after every step and at the end, and which guards it takes (TXN-110).

The slow test walks as many as the environment's ``WALKS`` says.
"""

import os
import random
from pathlib import Path
from typing import Any

import pytest

from kafkatool.broker.groups.offsets import CommittedOffsets
from kafkatool.broker.storage.producers.producer_state import ProducerState
from kafkatool.broker.transactions import decisions
from kafkatool.broker.transactions.late_markers import LateMarkers
from kafkatool.broker.transactions.states import LEGAL, OPEN, TransactionState
from kafkatool.broker.transactions.transaction import Transaction
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.broker.transactions.stage import Stage
from tests.broker.transactions.walk import intact, walk


def _unverified(on: Stage) -> None:
    on.world.manager.verified_appends.enabled = False


@pytest.mark.spec("TXN-110", "TXN-95", "TXN-106")
@pytest.mark.parametrize("seed", range(20))
def test_every_transaction_ends_one_way_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    walk(seed, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(3600)
@pytest.mark.spec("TXN-110")
def test_many_walks(tmp_path: Path) -> None:
    first = random.randrange(1 << 32)
    for seed in range(first, first + int(os.environ.get("WALKS", "1000"))):
        with pytest.MonkeyPatch.context() as patch:
            walk(seed, tmp_path / str(seed), patch)


def _never_void(patch: pytest.MonkeyPatch) -> None:
    check = ProducerState.check_leave

    def lenient(self: ProducerState, header: Any, verification: Any) -> None:
        try:
            check(self, header, verification)
        except Exception as e:
            if getattr(e, "code", None) is not ErrorCode.INVALID_TXN_STATE or verification is None:
                raise

    patch.setattr(ProducerState, "check_leave", lenient)


def _believed_while_open(patch: pytest.MonkeyPatch) -> None:
    """Look at the identity that is sent only where nothing is open, as Kafka does."""
    give = decisions.give_identity

    def give_identity(known: Transaction | None, busy: bool, now_ms: int, **asked: Any) -> decisions.Outcome:
        is_open = known is not None and known.state in OPEN
        return give(known, busy, now_ms, **{**asked, "expected": None if is_open else asked["expected"]})

    patch.setattr(decisions, "give_identity", give_identity)


def _in_force_at_once(patch: pytest.MonkeyPatch) -> None:
    end = CommittedOffsets.end_transaction

    def end_transaction(self: CommittedOffsets, producer_id: int, *, committed: bool, log_offset: int) -> None:
        end(self, producer_id, committed=True, log_offset=log_offset)

    patch.setattr(CommittedOffsets, "end_transaction", end_transaction)


def _completed_as_not_decided(patch: pytest.MonkeyPatch) -> None:
    """Note every transaction that has its markers as committed: the state machine without its table of moves."""
    patch.setitem(LEGAL, TransactionState.COMPLETE_COMMIT, frozenset(TransactionState))
    patch.setattr(
        decisions,
        "complete",
        lambda known, now_ms: known.moved(TransactionState.COMPLETE_COMMIT, partitions=frozenset(), update_ms=now_ms),
    )


def _markers_at_any_time(patch: pytest.MonkeyPatch) -> None:
    """Write markers whatever they come by."""
    patch.setattr(LateMarkers, "is_superseded", lambda *_: False)


GUARDS = {
    "nobody asks the coordinator": (None, "hangs|torn|did not end"),
    "a leave is never void": (_never_void, "hangs|torn|did not end"),
    "no marker comes too late": (_markers_at_any_time, "torn|did not end|lost"),
    "who was replaced is believed": (_believed_while_open, "a replaced producer ended another's transaction"),
    "a group takes every marker for a commit": (_in_force_at_once, "the group's offset is not what the log says"),
    "a transaction may go from anywhere to anywhere": (_completed_as_not_decided, "illegal move"),
}


@pytest.mark.spec("TXN-110", "TXN-72", "TXN-75", "TXN-85", "TXN-25", "TXN-86", "TXN-17")
@pytest.mark.parametrize("guard", GUARDS)
def test_without_a_guard_the_walks_find_what_it_is_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guard: str
) -> None:
    take_out, found = GUARDS[guard]
    if take_out is not None:
        take_out(monkeypatch)
    with pytest.raises(AssertionError, match=rf"seed \d+: .*({found})"):
        for seed in range(200):
            with pytest.MonkeyPatch.context() as patch:
                walk(seed, tmp_path / str(seed), patch, _unverified if take_out is None else intact)
