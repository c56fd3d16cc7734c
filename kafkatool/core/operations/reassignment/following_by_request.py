"""Waiting for moves that the controller carries out (ADM-43)."""

import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final, NamedTuple

from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.errors import BrokerUnreachableError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.reassignment import following, hindrances_by_request
from kafkatool.core.operations.reassignment.copy_progress import Replica, ToCopy
from kafkatool.core.operations.reassignment.following import Progress
from kafkatool.core.operations.reassignment.hindrances import NOTHING
from kafkatool.core.operations.requests.moving import read_moves

FIRST_POLL_S: Final = 1.0
MAX_POLL_S: Final = 5.0


class Waited(NamedTuple):
    """Whether it ``ended``, or the time was up first; ``awaited`` are the brokers that it then waits for, being down."""

    ended: bool
    awaited: tuple[int, ...] = ()


def read_copying(client: ClusterClient, partitions: Collection[TopicPartition]) -> ToCopy:
    """Read which replicas moves have still to copy, and ask for the brokers that hold them."""
    client.begin_anew()
    moving = read_moves(client, partitions, needed=True)
    return ToCopy(frozenset(Replica(p, b) for p, m in moving.items() for b in m.adding), dict(client.brokers))


def wait(
    client: ClusterClient,
    partitions: Collection[TopicPartition],
    *,
    timeout_s: float | None,
    on_progress: Callable[[Progress], None],
    interrupted: Callable[[], bool] = lambda: False,
) -> Waited:
    """Wait until none of those partitions moves, or the time is up; what moves goes on then.

    ``interrupted`` is asked before each look, and ends the wait as the time does.
    """
    begun = time.monotonic()
    deadline = None if timeout_s is None else begun + timeout_s
    pause_s, before = FIRST_POLL_S, -1
    moved_s, looked_s, found = begun, begun, NOTHING
    while not interrupted():
        client.begin_anew()
        moving = read_moves(client, partitions, needed=True)
        left = frozenset(moving)
        now = time.monotonic()
        if len(left) != before:
            moved_s, looked_s, found = now, now, NOTHING
        elif now - looked_s >= following.LOOK_S:  # it stands still: what is in the way?
            looked_s, found = now, hindrances_by_request.find(client, moving)
        found = found._replace(awaited=hindrances_by_request.find_awaited(client, moving))
        counts = (len(partitions) - len(left), len(partitions), 0, 0, now - begun)
        on_progress(Progress(*counts, left=left, still_s=now - moved_s, hindrances=found))
        if not left:
            return Waited(ended=True)
        pause_s = FIRST_POLL_S if len(left) != before else min(pause_s * 1.5, MAX_POLL_S)
        before = len(left)
        if deadline is not None:
            pause_s = min(pause_s, deadline - time.monotonic())
            if pause_s <= 0:
                break
        time.sleep(pause_s)
        with suppress(BrokerUnreachableError):  # who is up is told again at the next look
            client.begin_anew()
            client.refresh()
    return Waited(False, found.awaited)
