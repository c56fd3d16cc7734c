"""Channels of the simulation carry the product's exchanges: one request under way, and an answer or none."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.transactions.channels import Peer
from kafkatool.core.protocol.messages import write_txn_markers as wire
from tests.histories.simulated.between import Asked, PlayedChannels


class Ends:
    """What a channel sends, and what came of it."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Asked, Callable[[Any], None]]] = []
        self.done: list[tuple[int, list[str], int]] = []
        self.failed: list[tuple[int, list[str]]] = []
        self.channels = PlayedChannels[str](
            lambda broker, asked, told: self.sent.append((broker, asked, told)),
            MetadataCache(1),
            "PLAINTEXT",
            "test",
            1000,
            None,
            lambda queue: (list(queue), []),
            self._exchange,
            lambda broker, items: self.failed.append((broker, list(items))),
        )

    def _exchange(self, broker: int, peer: Peer, items: Sequence[str]) -> None:
        answer = peer.send(wire.API, peer.newest(wire.API), wire.WriteTxnMarkersRequest(markers=[]))
        self.done.append((broker, list(items), len(answer.markers)))


@pytest.mark.spec("HIS-48")
def test_what_is_put_while_a_request_is_under_way_goes_together_with_the_next() -> None:
    ends = Ends()
    for item in "abc":
        ends.channels.put(2, item)
    ends.channels.put(3, "d")
    assert [(broker, asked.api.name) for broker, asked, _ in ends.sent] == [(2, wire.API.name), (3, wire.API.name)]
    assert ends.done == []
    ends.sent[0][2](wire.WriteTxnMarkersResponse(markers=[]))
    assert ends.done == [(2, ["a"], 0)]
    ends.sent[2][2](wire.WriteTxnMarkersResponse(markers=[]))
    assert ends.done == [(2, ["a"], 0), (2, ["b", "c"], 0)]


@pytest.mark.spec("HIS-48")
def test_what_is_not_answered_has_failed_and_what_waits_goes_out() -> None:
    ends = Ends()
    ends.channels.put(2, "a")
    ends.channels.put(2, "b")
    ends.sent[0][2](None)
    assert ends.failed == [(2, ["a"])]
    assert len(ends.sent) == 2
    assert ends.done == []


@pytest.mark.spec("HIS-48")
def test_what_has_not_been_sent_can_be_dropped() -> None:
    ends = Ends()
    ends.channels.put(2, "a")
    ends.channels.put(2, "b")
    assert ends.channels.drop(lambda _: True) == ["b"]
    ends.sent[0][2](None)
    assert len(ends.sent) == 1
