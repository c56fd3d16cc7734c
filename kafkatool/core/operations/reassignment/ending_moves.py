"""Moves that a plan began by the znode, ended by requests to the controller (RSN-37X).

Kafka's controllers of 2.4 to 3.9 take a plan from /admin/reassign_partitions at once, and read a node that was changed
only when the next controller is elected. So a way back written there turns nothing round; it outlives the move, keeps off
other plans and elections, and is carried out by the next controller, unthrottled (seen with 2.8.2 and 3.9.1). The same
controllers, and ours, take AlterPartitionReassignments, for moves that the znode began too, and clear the znode
themselves.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkatool.core.errors import (
    BrokerAnswerError,
    BrokerUnreachableError,
    NoControllerError,
    RefusedError,
    UnsupportedApiError,
)
from kafkatool.core.model.values import Endpoint, TopicPartition
from kafkatool.core.operations.reassignment.status import replicas_of
from kafkatool.core.planner.plan_files import Moves
from kafkatool.core.zookeeper.cluster_view import ClusterView, read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ReassignmentZnode

if TYPE_CHECKING:  # the wire protocol takes as long to import as all else
    from kafkatool.core.client.access import BrokerAccess
    from kafkatool.core.client.cluster import ClusterClient
    from kafkatool.core.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest

WHOLE_TIMEOUT_MS: Final = 30_000  # of each reading and writing, with all that is sent again in it
SHOWN: Final = 3  # refusals in one line
_NOTING_MOVES: Final = 2  # the version of topics' nodes from which on controllers note moves in them: Kafka 2.4


class ControllerUnreachableError(RefusedError):
    """The controller would have to be asked, and is not to be reached; ``endpoint`` is one where it would answer."""

    def __init__(self, why: str, endpoint: Endpoint) -> None:
        super().__init__(
            f"the controller does not look at a changed {ReassignmentZnode.PATH}, and cannot be asked to cancel: {why}; "
            "nothing was written"
        )
        self.endpoint = endpoint


class Ended(NamedTuple):
    """What was ``cancelled``, and what nothing moved and was still in the znode, from which it is ``released``.

    ``unknown``: moves of which the controller does not know the origin, as ours does not of those of an earlier one; it
    turns round at a way back in the znode.
    """

    cancelled: frozenset[TopicPartition] = frozenset()
    released: frozenset[TopicPartition] = frozenset()
    unknown: frozenset[TopicPartition] = frozenset()


@contextmanager
def asking(zk: ZooKeeper, plan: Moves, access: "BrokerAccess") -> "Iterator[ClusterClient | None]":
    """Connect to brokers whose controller cancels moves when asked; None: there is none, so the znode is the way.

    None too where no broker answers and no node of the plan's topics shows that Kafka 2.4 or later has written it. Raises
    ControllerUnreachableError: one does, and something of the plan is in the znode.
    """
    from kafkatool.core.client.addresses import Address
    from kafkatool.core.client.cluster import ClusterClient
    from kafkatool.core.client.settings import ClientSettings
    from kafkatool.core.protocol.messages import alter_partition_reassignments

    view = read_cluster(zk, {p.topic for p in plan}, states=False)
    brokers = sorted(view.brokers.values(), key=lambda b: b.id != view.controller_id)
    if view.controller_id is None or not brokers:
        yield None
        return
    endpoints = [e for b in brokers if (e := access.endpoint(b)) is not None]
    settings = ClientSettings(
        client_id=access.client_id,
        software_version=access.software_version,
        whole_timeout_ms=WHOLE_TIMEOUT_MS,
        security=access.security,
    )
    try:
        if not endpoints:
            raise BrokerUnreachableError(access.why_not(brokers[0]))
        client = ClusterClient([Address(e.host, e.port) for e in endpoints], settings)
    except BrokerUnreachableError as e:
        _check_not_needed(view, plan, e, access.endpoint(brokers[0]) or brokers[0].endpoints[0])
        yield None
        return
    with client:
        try:
            client.version_of(alter_partition_reassignments.API)
            serves = True
        except (UnsupportedApiError, NoControllerError):
            serves = False
        except BrokerUnreachableError as e:
            _check_not_needed(view, plan, e, endpoints[0])
            serves = False
        yield client if serves else None


def _check_not_needed(view: ClusterView, plan: Moves, why: BrokerUnreachableError, endpoint: Endpoint) -> None:
    """Raise ControllerUnreachableError where the controller must be asked."""
    under_way = {p.topic for p in view.reassignment or () if p in plan}
    versions = [view.topics[t].raw.get("version") for t in under_way if t in view.topics]
    if any(isinstance(version, int) and version >= _NOTING_MOVES for version in versions):
        raise ControllerUnreachableError(str(why), endpoint) from why


def end_moves(
    client: "ClusterClient", zk: ZooKeeper, plan: Moves, before: Moves, *, turned_only: bool = False
) -> Ended:
    """Cancel what the znode holds of ``plan``, or of the way to ``before``, unless the controller is on that way.

    What is known to have had its replicas in another order gets them back in that. ``turned_only``: only what the znode
    asks to go back. Raises RefusedError: the controller refuses one; BrokerAnswerError, BrokerUnreachableError.
    """
    from kafkatool.core.operations.requests import reassignments
    from kafkatool.core.operations.requests.moving import read_moves
    from kafkatool.core.protocol.messages.error_codes import ErrorCode

    client.begin_anew()
    cancelling, resting = _choose(client, zk, plan, before, turned_only=turned_only)
    if not cancelling and not resting:
        return Ended()
    outcome = reassignments.send(client, reassignments.requests(client, dict.fromkeys(cancelling)))
    cancelled = _accepted(outcome)
    view = read_cluster(zk, {p.topic for p in (*cancelled, *resting)}, states=False)
    again = {p: before[p] for p in cancelled if p in before and _reordered(replicas_of(view, p), before[p])}
    still = {p: now for p in resting if p in (view.reassignment or {}) and (now := replicas_of(view, p))}
    accepted = _accepted(reassignments.send(client, reassignments.requests(client, {**again, **still})))
    not_moving = [p for p, e in outcome.items() if e is not None and e.code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]
    unknown = read_moves(client, not_moving, needed=True) if not_moving else {}
    return Ended(cancelled, accepted.intersection(still), frozenset(unknown))


def plan_requests(
    client: "ClusterClient", zk: ZooKeeper, plan: Moves, before: Moves
) -> "list[AlterPartitionReassignmentsRequest]":
    """Make the requests that ``end_moves`` would send first, as things stand."""
    from kafkatool.core.operations.requests import reassignments

    cancelling, resting = _choose(client, zk, plan, before, turned_only=False)
    view = read_cluster(zk, {p.topic for p in resting}, states=False)
    return reassignments.requests(client, {**dict.fromkeys(cancelling), **{p: replicas_of(view, p) for p in resting}})


class _Choice(NamedTuple):
    cancelling: list[TopicPartition]
    resting: list[TopicPartition]  # in the znode, and nothing moves them


def _choose(client: "ClusterClient", zk: ZooKeeper, plan: Moves, before: Moves, *, turned_only: bool) -> _Choice:
    """Choose of what the znode asks for, unless that is somebody else's wish, what to end."""
    from kafkatool.core.operations.requests.moving import read_moves

    node = zk.get(ReassignmentZnode.PATH)
    asked = ReassignmentZnode.decode(node.data) if node else {}
    own = {p: to for p, to in asked.items() if p in plan and to in (plan[p], before.get(p))}
    if turned_only:
        own = {p: to for p, to in own.items() if to != plan[p]}
    moving = read_moves(client, own, needed=True) if own else {}
    goes_back = {p for p, to in own.items() if p in moving and moving[p].target == to == before.get(p)}
    return _Choice([p for p in own if p in moving and p not in goes_back], [p for p in own if p not in moving])


def _reordered(replicas: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    return replicas != wanted and sorted(replicas) == sorted(wanted)


def _accepted(outcome: Mapping[TopicPartition, BrokerAnswerError | None]) -> frozenset[TopicPartition]:
    """Return what the controller took; what had ended meanwhile, or is about to, is left out.

    Raises RefusedError with the controller's reasons for what it refuses.
    """
    from kafkatool.core.protocol.messages.error_codes import ErrorCode

    ended = (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, ErrorCode.REASSIGNMENT_IN_PROGRESS)  # the second: of ours alone
    refused = [(p, e) for p, e in sorted(outcome.items()) if e is not None and e.code not in ended]
    if refused:
        told = "; ".join(f"{p}: {e}" for p, e in refused[:SHOWN])
        raise RefusedError(f"the controller refuses {len(refused)} of {len(outcome)} partitions: {told}")
    return frozenset(p for p, e in outcome.items() if e is None)
